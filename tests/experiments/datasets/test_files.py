"""Published files: the local directory, the download into the cache, and how both fail."""

import errno
import gzip
import hashlib
import os
import socket
from dataclasses import replace

import pooch
import pytest

from experiments import datasets
from experiments.datasets import files
from experiments.datasets.files import PublishedFile, local_copy

NUMBERS = PublishedFile(
    "someone/numbers", "c0ffee", "some/numbers.csv", hashlib.sha256(b"1,2\n").hexdigest()
)
NUMBERS_ADDRESS = "/someone/numbers/c0ffee/some/numbers.csv"


def assert_says(caught, *parts):
    """Assert that the message of an error holds all of these."""
    for part in parts:
        assert part in str(caught.value)


def test_local_file_with_wrong_content(local, publish, server):
    publish(NUMBERS.path, b"tampered")
    with pytest.raises(datasets.ChecksumError) as caught:
        local_copy(NUMBERS)
    hashes = f"expected sha256 {NUMBERS.sha256}, found {hashlib.sha256(b'tampered').hexdigest()}"
    path = str(local / NUMBERS.relative_path)
    assert_says(caught, path, hashes, NUMBERS.url, "GPFLOW_PEP_DATA")
    assert server.asked == []


@pytest.mark.parametrize("folder", [".", "none", None], ids=["without it", "absent", "empty"])
def test_download_into_the_cache(folder, tmp_path, monkeypatch, cache, server):
    monkeypatch.setenv("GPFLOW_PEP_DATA", "" if folder is None else str(tmp_path / folder))
    server.content[NUMBERS_ADDRESS] = b"1,2\n"
    path = local_copy(NUMBERS)
    assert path == cache / "someone+numbers" / "some" / "numbers.csv"
    assert path.read_bytes() == b"1,2\n"
    assert server.asked == [NUMBERS_ADDRESS]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_folder_in_the_cache_is_an_error(make, cache, server):
    """Reading a pipe would wait for ever."""
    path = cache / NUMBERS.relative_path
    path.parent.mkdir(parents=True)
    make(path)
    with pytest.raises(
        FileExistsError, match="Not a regular file, in the cache of data sets"
    ) as caught:
        local_copy(NUMBERS)
    assert caught.value.filename == str(path) and server.asked == []


def test_a_cache_on_a_full_disk(cache, monkeypatch):
    """The error names the file, and nothing is left of it."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", full)
    with pytest.raises(OSError, match="No space left") as caught:
        local_copy(NUMBERS)
    assert caught.value.filename == str(cache / NUMBERS.relative_path)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_no_network(cache, monkeypatch):
    with socket.socket() as taken:  # bound and never listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(files, "HOST", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectionError) as caught:
            datasets.load("yacht")
        (archive,) = datasets.describe("yacht").files
        assert_says(caught, archive.url, str(archive.relative_path), "GPFLOW_PEP_DATA")
    assert caught.value.__cause__ is not None


def test_address_that_serves_nothing(cache, server):
    with pytest.raises(ConnectionError, match=f"{NUMBERS.url} could not be downloaded.*404"):
        local_copy(NUMBERS)


# The same content packed twice: the header holds the time, so that the bytes differ.
PACKED, PACKED_ANEW = (gzip.compress(b"1,2\n", mtime=time) for time in (1, 2))
PACKED_NUMBERS = replace(
    NUMBERS, path="some/numbers.csv.gz", packed=True, elsewhere="other/numbers.gz"
)
PACKED_ADDRESS = f"{NUMBERS_ADDRESS}.gz"


@pytest.mark.parametrize("place", ["someone+numbers/some/numbers.csv.gz", "other/numbers.gz"])
@pytest.mark.parametrize("content", [PACKED, PACKED_ANEW])
def test_packed_file_is_known_by_its_content(place, content, local, server):
    assert PACKED != PACKED_ANEW
    (local / place).parent.mkdir(parents=True)
    (local / place).write_bytes(content)
    assert local_copy(PACKED_NUMBERS) == local / place
    assert server.asked == []


WRONG = {
    "other content": gzip.compress(b"1,3\n"),
    "not packed": b"1,2\n",
    "cut short": PACKED[:-9],
    "damaged": PACKED[:10] + b"\xff" + PACKED[11:],
}


@pytest.mark.parametrize(
    ("file", "content"),
    [(NUMBERS, b"another file"), *((PACKED_NUMBERS, content) for content in WRONG.values())],
    ids=["plain", *WRONG],
)
def test_download_with_wrong_content(file, content, cache, server):
    server.content[NUMBERS_ADDRESS] = server.content[PACKED_ADDRESS] = content
    with pytest.raises(datasets.ChecksumError) as caught:
        local_copy(file)
    assert_says(caught, file.url, str(file.relative_path), file.sha256, "GPFLOW_PEP_DATA")
    if file is NUMBERS:
        assert_says(caught, hashlib.sha256(content).hexdigest())
        assert isinstance(caught.value.__cause__, ValueError)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("file", "content", "damage"),
    [
        (NUMBERS, b"1,2\n", b"damaged"),
        *((PACKED_NUMBERS, PACKED, wrong) for wrong in WRONG.values()),
    ],
    ids=["plain", *WRONG],
)
def test_a_file_is_downloaded_once_and_again_when_damaged(file, content, damage, cache, server):
    address = PACKED_ADDRESS if file.packed else NUMBERS_ADDRESS
    server.content[address] = content
    path = local_copy(file)
    assert path == cache / file.relative_path
    assert local_copy(file).read_bytes() == content
    assert server.asked == [address]
    path.write_bytes(damage)
    assert local_copy(file).read_bytes() == content
    assert server.asked == [address] * 2
