"""Published data files: their addresses, and checked copies on this machine.

A file is taken from the directory named by the environment variable ``GPFLOW_PEP_DATA`` if it is
there, else from the user's cache, into which it is downloaded once. In both its path is
``<owner>+<repository>/<path>``.
"""

import errno
import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

import pooch
from requests.exceptions import RequestException

DIRECTORY_VARIABLE = "GPFLOW_PEP_DATA"
HOST = "https://raw.githubusercontent.com"


class ChecksumError(OSError):
    """Raised if the sha256 of a data file differs from the published file's."""


@dataclass(frozen=True)
class PublishedFile:
    """One file of a public GitHub repository, pinned to a commit and to its content."""

    repository: str
    """Owner and name, ``owner/name``."""

    commit: str
    """Commit to download from."""

    path: str
    """Path inside the repository."""

    sha256: str
    """Digest of the file's bytes, in hexadecimal; if ``packed``, of its unpacked content."""

    packed: bool = False
    """
    True for a gzip file that is identified by its content: another program packs it to other bytes.
    """

    elsewhere: str = ""
    """A second path below ``GPFLOW_PEP_DATA`` to search after ``relative_path``; empty for none."""

    @property
    def url(self) -> str:
        """Address of the file."""
        return f"{HOST}/{self.repository}/{self.commit}/{self.path}"

    @property
    def relative_path(self) -> PurePosixPath:
        """Path of the file below ``GPFLOW_PEP_DATA`` and below the cache."""
        return PurePosixPath(self.repository.replace("/", "+")) / self.path


def published(place: str, **options: Any) -> PublishedFile:
    """Return a file of ``files.txt``, given its repository and path."""
    return PublishedFile(*_pins()[place], **options)


@cache
def _pins() -> dict[str, tuple[str, str, str, str]]:
    _, *lines = Path(__file__).with_name("files.txt").read_text(encoding="ascii").splitlines()
    return {
        f"{repository}/{path}": (repository, commit, path, sha256)
        for repository, commit, path, sha256 in map(str.split, lines)
    }


def local_copy(file: PublishedFile) -> Path:
    """
    Return the path of a copy of ``file`` on this machine; download it if there is none.

    :param file: the file to find.
    :return: path of a file with the published sha256.
    :raises ChecksumError: if the copy below ``GPFLOW_PEP_DATA``, or the download, has another
        sha256.
    :raises ConnectionError: if the file cannot be downloaded.
    :raises OSError: if the cache cannot be read or written.
    """
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        for place in filter(None, (str(file.relative_path), file.elsewhere)):
            path = Path(directory) / place
            if path.is_file():
                digest = _sha256(path, file.packed)
                if digest == file.sha256:
                    return path
                raise ChecksumError(
                    f"{path} is not the published file: expected sha256 {file.sha256}, found "
                    f"{digest}. Replace it by {file.url}, or remove it from the directory named "
                    f"by {DIRECTORY_VARIABLE}."
                )
    return _cached(file)


def _sha256(path: Path, packed: bool) -> str:
    """
    Return the digest of a file, if ``packed`` of its unpacked content; if it does not unpack, a
    message.
    """
    if not packed:
        return pooch.file_hash(path)
    try:
        with gzip.open(path) as content:
            return hashlib.sha256(content.read()).hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"none, since it does not unpack ({error})"


def _cached(file: PublishedFile) -> Path:
    """
    Return the path in the cache; download the file if it is absent or its sha256 is wrong; keep no
    wrong file.
    """
    path = Path(pooch.os_cache("gpflow_pep")) / file.relative_path
    if path.exists() and not path.is_file():  # reading a pipe would not end
        raise FileExistsError(
            errno.EEXIST, "Not a regular file, in the cache of data sets", str(path)
        )
    retrieve = partial(pooch.retrieve, file.url, fname=path.name, path=path.parent)
    try:
        if not file.packed:
            return Path(retrieve(known_hash=f"sha256:{file.sha256}"))
        if path.is_file() and _sha256(path, packed=True) != file.sha256:
            path.unlink()
        return Path(
            retrieve(known_hash=None, downloader=partial(_download_packed, sha256=file.sha256))
        )
    except RequestException as error:
        raise ConnectionError(
            f"{file.url} could not be downloaded ({error}). Without a network, put the file at "
            f"{file.relative_path} below a directory and name that directory in "
            f"{DIRECTORY_VARIABLE} (now {os.environ.get(DIRECTORY_VARIABLE)!r})."
        ) from error
    except ValueError as error:  # pooch's error for a wrong hash; its message has both hashes
        raise ChecksumError(
            f"{file.url} does not serve the published {file.relative_path}. {error} Try again; if "
            "it fails, put the published file below a directory and name that directory in "
            f"{DIRECTORY_VARIABLE}."
        ) from error
    except OSError as error:
        if error.errno is None:  # pooch's own, which names the folder
            raise
        raise OSError(
            error.errno, error.strerror, str(path)
        ) from error  # the error of a full disk names no path


def _download_packed(url: str, output_file: str, pooch_: object, *, sha256: str) -> None:
    """
    Download by pooch; raise pooch's error if the unpacked content is wrong, so that pooch removes
    the file.
    """
    pooch.HTTPDownloader()(url, output_file, pooch_)
    digest = _sha256(Path(output_file), packed=True)
    if digest != sha256:
        raise ValueError(f"Unpacked, its sha256 should be {sha256}, but is {digest}.")
