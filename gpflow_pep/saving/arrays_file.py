"""Write arrays to one file atomically; read it without trusting it."""

import contextlib
import errno
import hashlib
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
_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, OverflowError, SyntaxError, tokenize.TokenError)
DIGEST = "sha256"
"""The member that holds the digest of all others; earlier files have none."""
ALTERED = "its arrays are not those that were written"
_LONGEST = 300  # characters of a reason
_VERSIONS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, AnyNDArray]) -> None:
    """
    Write an npz file: an earlier one at `path`, or where a link at `path` leads, stays until it is complete.

    The new file has the mode of the earlier one, or else that of any new file.

    :raises OSError: if that fails, also where `path` is a device, a pipe or a folder, which would be replaced.
    """
    path = _replaceable(path)
    temporary = None
    try:
        mode = _mode(path)
        handle, temporary = _new_file(path, 0o666 if mode is None else 0o600)
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            np.savez(file, **arrays, **{DIGEST: np.array(_digest(arrays))})
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:  # it may have no path, or that of the temporary file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """
    Find out now whether :func:`save_arrays` can write there later.

    :raises OSError: if it cannot.
    """
    path = _replaceable(path)
    handle, temporary = _new_file(path, 0o600)
    os.close(handle)
    os.unlink(temporary)


def load_arrays(path: str | os.PathLike[str], what: str) -> dict[str, AnyNDArray]:
    """
    Read what :func:`save_arrays` wrote. Pickles are refused, and no more memory is allocated than the file has bytes.

    :param what: name of the file in error messages.
    :raises ValueError: if it is damaged or another kind of file, saying why.
    """
    arrays, are_those_written = read_arrays(path, what)
    if not are_those_written:
        raise unusable(path, what, ALTERED)
    return arrays


def read_arrays(path: str | os.PathLike[str], what: str) -> tuple[dict[str, AnyNDArray], bool]:
    """
    Do the same for one who knows more of the arrays and can say what is wrong with altered ones.

    :return: the arrays, and whether they are those that were written.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe might wait for ever
        raise unusable(path, what, "it is not a regular file")
    try:
        with open(path, "rb") as opened, zipfile.ZipFile(opened) as file:
            _check_sizes(file, os.fstat(opened.fileno()).st_size)  # not of a file that has replaced it since
            arrays = {info.filename.removesuffix(".npy"): _array(file, info) for info in file.infolist()}
    except _DAMAGE as error:
        raise unusable(path, what, str(error)) from error
    digest = arrays.pop(DIGEST, None)
    return arrays, digest is None or str(digest) == _digest(arrays)


def unusable(path: str | os.PathLike[str], what: str, reason: str) -> ValueError:
    """Say that a file cannot be used, and what to do."""
    reason = " ".join(reason.split()).rstrip(".")  # in one line
    reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."  # it may quote what is damaged
    return ValueError(f"{what} {os.fspath(path)!r} cannot be used: {reason}. Give the path of another file.")


def _replaceable(path: str | os.PathLike[str]) -> Path:
    """Where a path leads; an error where something is there that a file must not replace."""
    try:
        path = Path(path).resolve()
    except RuntimeError as error:  # how pathlib reports a link that leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from error
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "Not a regular file", str(path))
    return path


def _digest(arrays: Mapping[str, AnyNDArray]) -> str:
    """Compute the sha256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        value = np.asarray(value)
        digest.update(f"{name} {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


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
