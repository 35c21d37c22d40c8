"""Write arrays to one file atomically, and read untrusted files safely."""

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
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

FilePath: TypeAlias = str | os.PathLike[str]
Arrays: TypeAlias = Mapping[str, AnyNDArray]  # by name

# Errors of zipfile and NumPy for files that are damaged, encrypted or of another format.
_DAMAGE = (
    zipfile.BadZipFile,
    ValueError,
    EOFError,
    RuntimeError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
)
# The member that holds the digest of all other members; files of early versions lack it.
DIGEST = "sha256"


def save_arrays(path: FilePath, arrays: Arrays) -> None:
    """
    Write an npz file; when complete, it replaces a file at `path` (or its target, if a link) and
    gets its permissions.

    :raises OSError: if writing fails, or if `path` is a device, a pipe or a folder.
    """
    path = _replaceable(path)
    temporary = None
    try:
        mode = stat.S_IMODE(path.stat().st_mode) & 0o777 if path.exists() else None
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
        # The error may name no path or the temporary file.
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def check_writable(path: FilePath) -> None:
    """Raise an `OSError` if :func:`save_arrays` cannot write to `path`."""
    handle, temporary = _new_file(_replaceable(path), 0o600)
    os.close(handle)
    os.unlink(temporary)


def load_arrays(path: FilePath, name: str) -> dict[str, AnyNDArray]:
    """
    Read a file written by :func:`save_arrays`. Reject pickles, and allocate at most as many bytes
    as the file has.

    :param name: name of the file in error messages.
    :raises ValueError: with the reason, if the file is damaged, altered or of another format.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe might wait forever
        raise unusable(path, name, "it is not a regular file")
    try:
        with open(path, "rb") as opened, zipfile.ZipFile(opened) as file:
            # The size of the open file: the path may be replaced.
            _check_sizes(file, os.fstat(opened.fileno()).st_size)
            return without_digest(
                {each.filename.removesuffix(".npy"): _array(file, each) for each in file.infolist()}
            )
    except _DAMAGE as error:
        raise unusable(path, name, str(error)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # zipfile seeks to a place before the file
            raise
        raise unusable(path, name, "bytes are missing") from error


def without_digest(arrays: Arrays) -> dict[str, AnyNDArray]:
    """
    Return the arrays without their digest; raise a `ValueError` if there is one that is not theirs.
    """
    others = {name: value for name, value in arrays.items() if name != DIGEST}
    if DIGEST in arrays and str(arrays[DIGEST]) != _digest(others):
        raise ValueError("its contents were changed after it was saved")
    return others


def assign_arrays(
    arrays: Arrays, variables: Mapping[str, tf.Variable], *, about: str = "", resize: bool = False
) -> None:
    """
    Assign the arrays to the variables of the same names, or none of them if one does not fit.

    :param about: precedes the array's name in error messages.
    :param resize: whether variables of unknown static shape may change their shape.
    :raises ValueError: for another type or shape, or values that are not finite (except the status
        of new sites).
    """
    for name, variable in variables.items():
        value = arrays[name]
        shape = variable.shape if resize else tf.TensorShape(variable.numpy().shape)
        if value.dtype != variable.dtype.as_numpy_dtype or not shape.is_compatible_with(
            value.shape
        ):
            raise ValueError(
                f"{about}{name} must be {variable.dtype.name} of shape {shape}, got {value.dtype} "
                f"of shape {value.shape}."
            )
        if name != "status" and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"{about}{name} must be finite, got values that are NaN or infinite.")
    for name, variable in variables.items():
        variable.assign(arrays[name])


def unusable(path: FilePath, name: str, reason: str) -> ValueError:
    """Return an error with the reason, shortened to one line, and the remedy."""
    reason = " ".join(reason.split()).rstrip(".")
    # The error may quote a damaged file of any size.
    if len(reason) > 300:
        reason = f"{reason[:300]} ..."
    return ValueError(
        f"{name} {os.fspath(path)!r} cannot be used: {reason}. Give the path of another file."
    )


def _replaceable(path: FilePath) -> Path:
    """Follow links; raise an error for existing paths that are not regular files."""
    try:
        path = Path(path).resolve()
    except RuntimeError as error:  # from pathlib, for a link to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from error
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "Not a regular file", str(path))
    return path


def _digest(arrays: Arrays) -> str:
    """Compute the sha256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        value = np.asarray(value)
        digest.update(f"{name} {value.dtype.str} {value.shape} ".encode() + value.tobytes())
    return digest.hexdigest()


def _check_sizes(file: zipfile.ZipFile, available: int) -> None:
    """Check that the members are uncompressed arrays that declare at most `available` bytes."""
    members = file.infolist()
    names = file.namelist()
    if len(set(names)) < len(names) or not all(name.endswith(".npy") for name in names):
        raise ValueError("it holds entries that are not arrays, or several of one name")
    if any(
        info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size
        for info in members
    ):
        raise ValueError("it is a compressed file, which this library does not write")
    declared = sum(info.file_size for info in members)
    if declared > available:
        raise ValueError(f"it declares {declared} bytes of arrays and has {available}")


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> AnyNDArray:
    """Read an array; its header must declare exactly the bytes of its member."""
    with file.open(info) as member:
        if np.lib.format.read_magic(member) != (1, 0):  # type: ignore[no-untyped-call]
            raise ValueError(f"{info.filename} has an unknown format")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(member)  # type: ignore[no-untyped-call]
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects, not numbers or text")
        values = member.read()
        declared = math.prod(shape) * dtype.itemsize
    if declared != len(values) or min(shape, default=0) < 0:
        raise ValueError(f"{info.filename} declares {declared} bytes and has {len(values)}")
    return np.ndarray(shape, dtype, bytearray(values), order="F" if is_fortran else "C")


def _new_file(path: Path, mode: int) -> tuple[int, str]:
    """Create a file beside `path`, open for writing, with the given mode under the umask."""
    # Not by tempfile: the umask can be read only by setting it, for all threads; the kernel applies
    # it.
    while True:
        name = str(path.with_name(f".{path.name}.{secrets.token_hex(4)}"))
        with contextlib.suppress(FileExistsError):
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), name
