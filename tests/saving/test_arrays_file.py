"""
A file that is damaged, of something else or hostile is refused, with a reason; nothing in it is
run.
"""

import errno
import io
import os
import stat
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from gpflow_pep.saving.arrays_file import check_writable, load_arrays, save_arrays

ARRAYS = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "text": np.array("a b"),
    "none": np.zeros((0, 2)),
    "one": np.array(3),
}


def refused(path, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        load_arrays(path, "the file")
    message = str(caught.value)
    assert message.startswith(f"the file {str(path)!r} cannot be used: ") and "\n" not in message
    assert message.endswith("Give the path of another file.") and len(message) < 600


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.npz"


@pytest.fixture
def saved(path):
    save_arrays(path, ARRAYS)
    return path


def test_written_arrays_are_read(saved):
    found = load_arrays(saved, "the file")
    assert found.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


class Hostile:
    """Unpickled it would make a folder."""

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("object array", "Python objects"),
        ("pickle", "zip file"),
        ("pickle in a zip file", "magic string"),
    ],
)
def test_pickled_objects_are_not_run(tmp_path, path, kind, reason):
    made = tmp_path / "made"
    Hostile.path = str(made)
    content = np.array([Hostile()], dtype=object)
    if kind == "object array":
        np.savez(path, numbers=content)
    elif kind == "pickle":
        path.write_bytes(content.dumps())
    else:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("numbers.npy", content.dumps())
    refused(path, reason)
    assert not made.exists()


def header(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 8), (-1, -8), (3,)])
def test_a_declared_size_is_compared_before_anything_is_made(path, shape):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("numbers.npy", header(shape) + bytes(64))
    tracemalloc.start()
    refused(path, "numbers.npy declares -?[0-9]+ bytes and has 64")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def test_compressed_zeros_are_not_unpacked(path):
    np.savez_compressed(path, numbers=np.zeros(10**6))
    refused(path, "it is a compressed file")


def test_rejects_overlapping_members(path):
    """A directory that names the same bytes many times declares more than there is."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("0.npy", header((1000,)) + bytes(8000))
        first = file.infolist()[0]
        for number in range(1, 50):
            again = zipfile.ZipInfo(f"{number}.npy")
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.compress_size = again.file_size = first.file_size
            file.filelist.append(again)
    refused(path, "it declares [0-9]+ bytes of arrays and has")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("readme.txt", b"", "entries that are not arrays"),
        ("folder/", b"", "entries that are not arrays"),
        ("numbers.npy.txt", b"", "entries that are not arrays"),
        ("numbers.npy", b"", "cannot be used: .."),
        ("numbers.npy", b"\x93NUMPY", "cannot be used: .."),
        (
            "numbers.npy",
            b"\x93NUMPY\x01\x00" + struct.pack("<H", 9) + b"{'descr':",
            "cannot be used: ..",
        ),
        # A name in the directory of the file may have 65,535 bytes; the reason is cut short.
        (f"{'n' * 10000}.npy", b"\x93NUMPY\x03\x00", "n{250}"),
    ],
    ids=range(7),
)
def test_rejects_members_that_are_no_arrays(path, name, content, reason):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, content)
    refused(path, reason)


def test_rejects_exchanged_arrays(path):
    """
    The arrays have one shape and type, and the zip checksums are valid; files of early versions
    have no digest.
    """
    save_arrays(path, {"a": np.ones(3), "b": np.zeros(3)})
    with np.load(path) as file:
        written = dict(file)
    np.savez(path, **{**written, "a": written["b"], "b": written["a"]})
    refused(path, "its contents were changed after it was saved")
    del written["sha256"]
    np.savez(path, **written)
    assert load_arrays(path, "the file").keys() == {"a", "b"}


def refusal(path):
    """The message of a refusal; none if the arrays are those that were saved."""
    try:
        found = load_arrays(path, "the file")
    except ValueError as error:
        return str(error)
    np.testing.assert_equal(found, ARRAYS)
    return ""


def test_random_damage_is_refused_or_changes_no_array(saved):
    """Bytes are missing, changed or written over; some of them belong to no array."""
    content = saved.read_bytes()
    messages = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        start, end = np.sort(rng.integers(len(content), size=2))
        head, cut, tail = content[:start], content[start:end], content[end:]
        flipped = bytes([content[start] ^ 1]) + cut[1:]
        damaged = (head, head + tail, head + flipped + tail, head + rng.bytes(len(cut)) + tail)
        saved.write_bytes(damaged[seed % 4])
        messages.append(refusal(saved))
    named = [str(saved) in message and "\n" not in message for message in messages if message]
    assert len(named) > 150 and all(named)
    for reason in ("not a zip file", "Bad CRC-32"):
        assert any(reason in message for message in messages)


@pytest.mark.parametrize("thing", ["pipe", "folder"])
def test_pipes_and_devices_are_neither_read_nor_replaced(tmp_path, path, thing):
    """Reading a pipe would wait for ever; a device, such as /dev/null, would be gone."""
    (os.mkfifo if thing == "pipe" else os.mkdir)(path)
    kind = stat.S_IFMT(path.stat().st_mode)
    refused(path, "it is not a regular file")
    for write in (check_writable, lambda path: save_arrays(path, ARRAYS)):
        with pytest.raises(OSError, match=r"Not a regular file|Is a directory") as caught:
            write(path)
        assert caught.value.filename == str(path)
    assert stat.S_IFMT(path.stat().st_mode) == kind and list(tmp_path.iterdir()) == [path]


# --- how it is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_the_mode_is_that_of_other_files(path, mask):
    before = os.umask(mask)
    try:
        save_arrays(path, ARRAYS)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_the_mode_of_an_earlier_file_stays(path, mode):
    """Neither is it opened to others, nor closed to those who could read it."""
    save_arrays(path, {"one": np.array(1)})
    path.chmod(mode)
    save_arrays(path, ARRAYS)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert load_arrays(path, "the file").keys() == ARRAYS.keys()


def test_a_temporary_name_that_is_taken(tmp_path, monkeypatch):
    names = iter(["00000000", "00000001"])
    monkeypatch.setattr("secrets.token_hex", lambda count: next(names))
    (tmp_path / ".a.npz.00000000").write_bytes(b"of someone else")
    save_arrays(tmp_path / "a.npz", ARRAYS)
    assert (tmp_path / ".a.npz.00000000").read_bytes() == b"of someone else"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.npz.00000000", "a.npz"]


def test_a_file_that_is_replaced_while_it_is_read(saved, monkeypatch):
    """Another process replaces it: the open file is read."""

    class Replaced(zipfile.ZipFile):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            monkeypatch.undo()
            save_arrays(saved, {"one": np.array(1)})

    monkeypatch.setattr(zipfile, "ZipFile", Replaced)
    assert load_arrays(saved, "the file").keys() == ARRAYS.keys()
    assert load_arrays(saved, "the file").keys() == {"one"}


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_write_that_fails_names_the_path_and_leaves_the_earlier_file(
    tmp_path, path, monkeypatch, call
):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    path.write_bytes(b"of an earlier call")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left") as caught:
        save_arrays(path, ARRAYS)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"of an earlier call"


def test_reports_a_link_to_itself(path):
    path.symlink_to(path.name)
    for use in (
        check_writable,
        lambda path: save_arrays(path, ARRAYS),
        lambda path: load_arrays(path, "the file"),
    ):
        with pytest.raises(OSError, match="Too many levels of symbolic links") as caught:
            use(path)
        assert caught.value.filename == str(path)
    assert path.is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(tmp_path, there):
    target = tmp_path / "far" / "a.npz"
    link = tmp_path / "link.npz"
    target.parent.mkdir()
    if there:
        save_arrays(target, {"one": np.array(1)})
    link.symlink_to(target)
    save_arrays(link, ARRAYS)
    assert link.is_symlink() and load_arrays(target, "the file").keys() == ARRAYS.keys()
    assert [path.name for path in target.parent.iterdir()] == ["a.npz"]
