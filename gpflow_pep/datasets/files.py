"""Published data files: where each one comes from, and a copy on this machine whose sha256 is right.

A file is taken from the directory that the environment variable ``GPFLOW_PEP_DATA`` names, if it is there, else from
the user's cache, where it is downloaded once. Below either directory it lies at ``<owner>+<repository>/<path>``.
"""

import os
from dataclasses import dataclass
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
    """Digest of the file's bytes, in hexadecimal."""

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
    :raises ChecksumError: where the copy below ``GPFLOW_PEP_DATA``, or what the address serves, has another sha256.
    :raises ConnectionError: where the file must be downloaded and cannot be.
    """
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        path = Path(directory) / file.relative_path
        if path.is_file():
            _check_sha256(path, file)
            return path
    return _cached(file)


def _check_sha256(path: Path, file: PublishedFile) -> None:
    found = pooch.file_hash(str(path), alg="sha256")
    if found != file.sha256:
        raise ChecksumError(
            f"{path} is not the published file: expected sha256 {file.sha256}, found {found}. "
            f"Replace it by what {file.url} serves, or remove it from the directory {DIRECTORY_VARIABLE} names."
        )


def _cached(file: PublishedFile) -> Path:
    """Path below the cache; pooch downloads where it is absent or its sha256 is wrong, and keeps no wrong download."""
    path = Path(pooch.os_cache("gpflow_pep")) / file.relative_path
    try:
        return Path(pooch.retrieve(file.url, known_hash=f"sha256:{file.sha256}", fname=path.name, path=path.parent))
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
