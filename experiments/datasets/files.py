"""Published data files: where each one comes from, and a copy on this machine whose sha256 is right.

A file is taken from the directory that the environment variable ``GPFLOW_PEP_DATA`` names, if it is there, else from
the user's cache, where it is downloaded once. Below either directory it lies at ``<owner>+<repository>/<path>``.
"""

import errno
import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import pooch
from requests.exceptions import RequestException

DIRECTORY_VARIABLE = "GPFLOW_PEP_DATA"
HOST = "https://raw.githubusercontent.com"


class ChecksumError(OSError):
    """A data file is not the published one: its sha256 differs."""


@dataclass(frozen=True)
class PublishedFile:
    """One file of a public GitHub repository, pinned to a commit and to its content."""

    repository: str
    """Owner and name, ``owner/name``."""

    commit: str
    """The commit the file is downloaded from."""

    path: str
    """Path inside the repository."""

    sha256: str
    """Digest of the file's bytes, in hexadecimal; where ``packed``, of what the file unpacks to."""

    packed: bool = False
    """True for a gzip file known by its content only: packed by another program, it has other bytes."""

    elsewhere: str = ""
    """A second place below ``GPFLOW_PEP_DATA`` that is looked into, after ``relative_path``; none where empty."""

    @property
    def url(self) -> str:
        """Address the file is downloaded from."""
        return f"{HOST}/{self.repository}/{self.commit}/{self.path}"

    @property
    def relative_path(self) -> PurePosixPath:
        """Where the file lies below ``GPFLOW_PEP_DATA`` and below the cache."""
        return PurePosixPath(self.repository.replace("/", "+")) / self.path


def local_copy(file: PublishedFile) -> Path:
    """
    Path of a copy of ``file`` on this machine, downloaded if there is none yet.

    :param file: the file wanted.
    :return: a path whose content has the published sha256.
    :raises ChecksumError: if the copy below ``GPFLOW_PEP_DATA``, or what the address serves, has another sha256.
    :raises ConnectionError: if the file must be downloaded and cannot be.
    :raises OSError: naming the path, where the cache cannot be read or written.
    """
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        for place in filter(None, (str(file.relative_path), file.elsewhere)):
            path = Path(directory) / place
            if path.is_file():
                _check_sha256(path, file)
                return path
    return _cached(file)


def _check_sha256(path: Path, file: PublishedFile) -> None:
    digest = _sha256(path, file.packed)
    if digest != file.sha256:
        raise ChecksumError(
            f"{path} is not the published file: expected sha256 {file.sha256}, found {digest}. "
            f"Replace it by what {file.url} serves, or remove it from the directory {DIRECTORY_VARIABLE} names."
        )


def _sha256(path: Path, packed: bool) -> str:
    """Digest of a file, or where ``packed`` of what it unpacks to; of one that does not unpack, words that say so."""
    if not packed:
        return str(pooch.file_hash(str(path), alg="sha256"))
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as content:
            while chunk := content.read(1 << 20):
                digest.update(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"none, since it does not unpack ({error})"
    return digest.hexdigest()


def _cached(file: PublishedFile) -> Path:
    """Path below the cache; downloads where it is absent or its sha256 is wrong, and keeps no wrong download."""
    import pooch  # whose progress bar warns in notebooks when it is imported

    path = Path(pooch.os_cache("gpflow_pep")) / file.relative_path
    if path.exists() and not path.is_file():  # a pipe would be read for ever
        raise FileExistsError(errno.EEXIST, "Not a regular file, in the cache of data sets", str(path))
    retrieve = partial(pooch.retrieve, file.url, fname=path.name, path=path.parent)
    try:
        if not file.packed:
            return Path(retrieve(known_hash=f"sha256:{file.sha256}"))
        if path.is_file() and _sha256(path, packed=True) != file.sha256:
            path.unlink()
        return Path(retrieve(known_hash=None, downloader=partial(_download_packed, sha256=file.sha256)))
    except RequestException as error:
        raise ConnectionError(
            f"{file.url} could not be downloaded ({error}). Without a network, put the file at "
            f"{file.relative_path} below a directory and name that directory in {DIRECTORY_VARIABLE} "
            f"(now {os.environ.get(DIRECTORY_VARIABLE)!r})."
        ) from error
    except ValueError as error:  # how pooch reports a wrong hash; its message gives the expected and the found one
        raise ChecksumError(
            f"{file.url} does not serve the published {file.relative_path}. {error} Try again; if it stays so, put "
            f"the published file below a directory and name that directory in {DIRECTORY_VARIABLE}."
        ) from error
    except OSError as error:
        if error.errno is None:  # pooch's own, which names the folder
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # of a full disk it would name none


def _download_packed(url: str, output_file: str, pooch_: object, *, sha256: str) -> None:
    """Pooch's download, and its kind of error where the file unpacks to something else; pooch then removes it."""
    import pooch

    pooch.HTTPDownloader()(url, output_file, pooch_)
    digest = _sha256(Path(output_file), packed=True)
    if digest != sha256:
        raise ValueError(f"Unpacked, its sha256 should be {sha256}, and is {digest}.")
