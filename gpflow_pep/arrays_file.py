"""Write arrays to one file atomically; read it without trusting it."""

import errno
import math
import os
import secrets
import stat
import tokenize
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from gpflow.base import AnyNDArray

# What zipfile and NumPy raise of files that are damaged, encrypted or of something else.
_DAMAGE = (
    zipfile.BadZipFile,
    ValueError,
    EOFError,
    RuntimeError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
)
_VERSIONS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, AnyNDArray]) -> None:
    """
    Write an npz file: an earlier one at `path`, or where a link at `path` leads, stays until it is complete.

    The new file has the mode of the earlier one, or else that of any new file.
    """
    path = Path(path).resolve()
    mode = _mode(path)
    handle, temporary = _new_file(path, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """
    Find out now whether :func:`save_arrays` can write there later.

    :raises OSError: where it cannot.
    """
    path = Path(path).resolve()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    handle, temporary = _new_file(path, 0o600)
    os.close(handle)
    os.unlink(temporary)


def load_arrays(path: str | os.PathLike[str], what: str) -> dict[str, AnyNDArray]:
    """
    Read what :func:`save_arrays` wrote. Pickles are refused, and no more memory is allocated than the file has bytes.

    :param what: name of the file in error messages.
    :raises ValueError: where it is damaged or another kind of file, saying why.
    """
    try:
        with zipfile.ZipFile(path) as file:
            _check_sizes(file, os.path.getsize(path))
            return {info.filename.removesuffix(".npy"): _array(file, info) for info in file.infolist()}
    except _DAMAGE as error:
        raise unusable(path, what, str(error)) from error


def unusable(path: str | os.PathLike[str], what: str, reason: str) -> ValueError:
    """Say that a file cannot be used, and what to do."""
    reason = " ".join(reason.split()).rstrip(".")  # in one line
    return ValueError(f"{what} {os.fspath(path)!r} cannot be used: {reason}. Give the path of another file.")


def _check_sizes(file: zipfile.ZipFile, available: int) -> None:
    """What is declared is at most what is there: members are not compressed."""
    members = file.infolist()
    names = [info.filename for info in members]
    if len(set(names)) < len(names) or not all(name.endswith(".npy") for name in names):
        raise ValueError("it holds entries that are not arrays, or several of one name")
    if any(info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size for info in members):
        raise ValueError("it is a compressed file, which this library does not write")
    declared = sum(info.file_size for info in members)
    if declared > available:
        raise ValueError(f"it declares {declared} bytes of arrays and has {available}")


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> AnyNDArray:
    with file.open(info) as member:
        _check_header(member, info)
    with file.open(info) as member:
        array: AnyNDArray = np.lib.format.read_array(member, allow_pickle=False)  # type: ignore[no-untyped-call]
        return array


def _check_header(member: IO[bytes], info: zipfile.ZipInfo) -> None:
    version = np.lib.format.read_magic(member)  # type: ignore[no-untyped-call]
    if version not in _VERSIONS:
        raise ValueError(f"{info.filename} is of an unknown format")
    shape, _, dtype = _VERSIONS[version](member)  # type: ignore[no-untyped-call]
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects, not numbers or text")
    declared = math.prod(shape) * dtype.itemsize
    if declared != info.file_size - member.tell() or min(shape, default=0) < 0:
        raise ValueError(f"{info.filename} declares {declared} bytes and has {info.file_size - member.tell()}")


def _mode(path: Path) -> int | None:
    """Who may read and write the file that is there; None where there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o777
    except FileNotFoundError:
        return None


def _new_file(path: Path, mode: int) -> tuple[int, str]:
    """
    Create a file beside `path`, open for writing, of the given mode but for the umask.

    The kernel takes the umask off: a process can read its own only by setting it, which other threads would see.
    """
    while True:
        name = str(path.with_name(f".{path.name}.{secrets.token_hex(4)}"))
        try:
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), name
        except FileExistsError:
            continue
