"""Damage to files: failing or killed writes, full or read-only disks, altered contents."""

import ctypes
import errno
import io
import os
import resource
import signal
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

Rng = np.random.Generator

# --- calls of the system --------------------------------------------------------------------------

CALLS = ("open", "write", "fsync", "replace")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT)


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def failing(number: int) -> Callable[[], None]:
    """Raise the error of this number."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


class Disturbed:
    """
    While it is open the count-th call of one kind dies or fails, and all after it where that lasts.
    """

    def __init__(self, call: str, count: int, action: Callable[[], None], lasting: bool = False):
        self._call, self._left, self._action, self._lasting = call, count, action, lasting
        self.times = 0
        """The number of interventions so far."""
        self._before = (os.open, os.fdopen, os.fsync, os.replace)

    def __enter__(self) -> "Disturbed":
        if self._call == "write":
            os.fdopen = self._opened  # type: ignore[assignment]
        else:
            setattr(os, self._call, self._acting(getattr(os, self._call)))
        return self

    def __exit__(self, *_: object) -> None:
        os.open, os.fdopen, os.fsync, os.replace = self._before

    def _acting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def act_or(*arguments: Any, **options: Any) -> Any:
            self.act()
            return function(*arguments, **options)

        return act_or

    def act(self) -> None:
        """Count a call, and perhaps act."""
        self._left -= 1
        if self._left == 0 or (self._left < 0 and self._lasting):
            self.times += 1
            self._action()

    def _opened(self, handle: int, mode: str) -> Any:
        return io.BufferedWriter(_Raw(handle, mode, self), buffer_size=512)


class _Raw(io.FileIO):
    """Half of what it is to write is written before anything happens."""

    def __init__(self, handle: int, mode: str, disturbed: Disturbed):
        super().__init__(handle, mode)
        self._disturbed = disturbed

    def write(self, content: Any) -> int:
        content = bytes(content)
        half = len(content) // 2
        start = super().write(content[:half])
        self._disturbed.act()
        return start + super().write(content[half:])


# --- disks ----------------------------------------------------------------------------------------

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _RECURSIVE, _PRIVATE = 1, 32, 16384, 1 << 18


class Disk:
    """
    A small file system of this process alone, on a folder; a child calls this before it has
    threads.

    :raises OSError: where the system allows none.
    """

    def __init__(self, folder: Path, kilobytes: int):
        self._folder = folder
        self._system = ctypes.CDLL(None, use_errno=True)
        self._options = f"size={kilobytes}k".encode()
        flags = _NEW_MOUNTS if os.geteuid() == 0 else _NEW_MOUNTS | _NEW_USER
        self._check(self._system.unshare(flags))
        self._check(self._system.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
        self._mount(0)

    def fill(self) -> None:
        """Leave no room."""
        with open(self._folder / "filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(1024)):
                    pass
            except OSError:
                pass

    def forbid(self) -> None:
        """Make it read-only."""
        self._mount(_REMOUNT | _READ_ONLY)

    def allow(self) -> None:
        """Make it writable again, with room."""
        self._mount(_REMOUNT)
        (self._folder / "filler").unlink(missing_ok=True)

    def _mount(self, flags: int) -> None:
        self._check(
            self._system.mount(b"tmpfs", os.fsencode(self._folder), b"tmpfs", flags, self._options)
        )

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class Limit:
    """A substitute for a full disk: a limit on the size of files that this process writes."""

    def __init__(self, size: int):
        self._size = size

    def fill(self) -> None:
        """Leave little room."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, resource.RLIM_INFINITY))

    forbid = fill

    def allow(self) -> None:
        """Leave all of it."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


# --- contents -------------------------------------------------------------------------------------


def _truncated(content: bytes, rng: Rng) -> bytes:
    return content[: int(rng.integers(len(content)))]


def _flipped(content: bytes, rng: Rng) -> bytes:
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        found[int(rng.integers(len(found)))] ^= 1 << int(rng.integers(8))
    return bytes(found)


def _zeroed(content: bytes, rng: Rng) -> bytes:
    start, stop = sorted(int(each) for each in rng.integers(len(content), size=2))
    return content[:start] + bytes(stop - start) + content[stop:]


def _overwritten(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(len(content)))
    noise = rng.bytes(int(rng.integers(1, 200)))
    return (content[:start] + noise + content[start + len(noise) :])[: len(content)]


def _lengthened(content: bytes, rng: Rng) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 5000)))


def _moved(content: bytes, rng: Rng) -> bytes:
    """A block of 512 bytes that came to lie where another one was."""
    source, target = (512 * int(each) for each in rng.integers(max(1, len(content) // 512), size=2))
    return content[:target] + content[source : source + 512] + content[target + 512 :]


BYTES: dict[str, Callable[[bytes, Rng], bytes]] = {
    "truncated": _truncated,
    "bits flipped": _flipped,
    "zeroed": _zeroed,
    "overwritten": _overwritten,
    "lengthened": _lengthened,
    "block moved": _moved,
    "empty": lambda content, rng: b"",
    "text": lambda content, rng: b"not what you expect\n",
}
Arrays = dict[str, AnyNDArray]


def _some(arrays: Arrays, rng: Rng) -> str:
    return str(
        rng.choice(
            [name for name, value in arrays.items() if value.dtype.kind == "f" and value.size]
        )
    )


def _swapped(arrays: Arrays, rng: Rng) -> Arrays:
    """Two of one shape where there are such."""
    one = _some(arrays, rng)
    alike = [
        name for name, value in arrays.items() if value.shape == arrays[one].shape and name != one
    ]
    other = str(rng.choice(alike or [name for name in arrays if name != one]))
    return arrays | {one: arrays[other], other: arrays[one]}


def _spoilt(values: AnyNDArray, rng: Rng, value: float) -> AnyNDArray:
    values = np.array(values)
    values.reshape(-1)[int(rng.integers(values.size))] = value
    return values


def _without(arrays: Arrays, rng: Rng) -> Arrays:
    name = str(rng.choice(list(arrays)))
    return {key: value for key, value in arrays.items() if key != name}


def _retold(arrays: Arrays, rng: Rng) -> Arrays:
    """The text with another number, or cut short."""
    name = next((name for name, value in arrays.items() if value.dtype.kind == "U"), None)
    if name is None:
        return _without(arrays, rng)
    text = str(arrays[name])
    places = [place for place, letter in enumerate(text) if letter in "0123456789"] or [0]
    place = int(rng.choice(places))
    changed = text[:place] + ("7" if text[place] != "7" else "3") + text[place + 1 :]
    return arrays | {name: np.array(changed if rng.uniform() < 0.7 else text[:place])}


_CHANGES: dict[str, Callable[[AnyNDArray, Rng], Any]] = {
    "float32": lambda values, rng: values.astype(np.float32),
    "big-endian": lambda values, rng: values.astype(">f8"),
    "integers": lambda values, rng: values.astype(int),
    "objects": lambda values, rng: values.astype(object),
    "text for numbers": lambda values, rng: values.astype(str),
    "another shape": lambda values, rng: np.stack([values, values]),
    "flat": lambda values, rng: values.reshape(-1)[:-1],
    "NaN": lambda values, rng: _spoilt(values, rng, np.nan),
    "infinity": lambda values, rng: _spoilt(values, rng, np.inf),
    "another number": lambda values, rng: _spoilt(values, rng, 0.123),
}
_OTHERS: dict[str, Callable[[Arrays, Rng], Arrays]] = {
    "members swapped": _swapped,
    "one missing": _without,
    "one more": lambda arrays, rng: arrays | {"more": np.zeros(3)},
    "another text": _retold,
    "none": lambda arrays, rng: {},
}
MEMBERS = (*_CHANGES, *_OTHERS)


def changed(way: str, arrays: Arrays, rng: Rng) -> Arrays:
    """Change arrays in one of the ways of `MEMBERS`."""
    if way in _OTHERS:
        return _OTHERS[way](arrays, rng)
    name = _some(arrays, rng)
    return arrays | {name: np.asarray(_CHANGES[way](arrays[name], rng))}


def rewritten(content: bytes, change: Callable[[Arrays], Arrays], check: str) -> bytes:
    """
    An npz file with other members, its sums right.

    :param check: the member that holds the digest of the others, which stays.
    """
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    kept = {check: arrays.pop(check)} if check in arrays else {}
    file = io.BytesIO()
    np.savez(file, **change(arrays), **kept)
    return file.getvalue()


def compressed(content: bytes) -> bytes:
    """The same arrays, packed."""
    found = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as file,
        zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in file.namelist():
            packed.writestr(name, file.read(name))
    return found.getvalue()


THINGS = ("folder", "named pipe", "socket", "link to itself", "below a file")


def put(thing: str, path: Path) -> Path:
    """Put something that is no file at a path where nothing is, and return the path to use."""
    if thing == "folder":
        path.mkdir()
    elif thing == "named pipe":
        os.mkfifo(path)
    elif thing == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif thing == "link to itself":
        path.symlink_to(path.name)
    else:
        path.write_bytes(b"")
        return path / "c.npz"
    return path
