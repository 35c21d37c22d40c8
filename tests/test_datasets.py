"""Data sets: reading, splits, standardisation, download and its failures.

Only tests marked ``data`` read real files, from the directory ``GPFLOW_PEP_DATA``; a server on loopback stands in for
the public one.
"""

import hashlib
import http.server
import io
import os
import re
import socket
import tarfile
import threading
from dataclasses import replace

import numpy as np
import pooch
import pytest
from sklearn.datasets import load_diabetes

from gpflow_pep import datasets
from gpflow_pep.datasets import files
from gpflow_pep.datasets.catalogue import ENTRIES, Entry
from gpflow_pep.datasets.files import PublishedFile, local_copy
from gpflow_pep.datasets.sources import ArchivedSplits, MaskedFolds

requires_data = pytest.mark.skipif(
    not os.environ.get("GPFLOW_PEP_DATA"), reason="needs the published files: set GPFLOW_PEP_DATA to their directory"
)

# Rows, inputs, mean and standard deviation of the target column, recorded from the files independently of this reader.
PUBLISHED = {
    "snelson": (200, 1, None, None),
    "boston": (506, 13, 22.5328, 9.1880),
    "concrete": (1030, 8, 35.8180, 16.6976),
    "energy": (768, 8, 22.3072, 10.0836),
    "kin8nm": (8192, 8, 0.7143, 0.2636),
    "naval": (11934, 16, 0.9750, 0.0147),
    "power": (9568, 4, 454.3650, 17.0661),
    "wine-red": (1599, 11, 5.6360, 0.8073),
    "yacht": (308, 6, 10.4954, 15.1359),
    "kin40k": (40000, 8, 0.0, 0.9970),
    "elevators": (16599, 18, 0.0, 0.2526),
    "airfoil": (1503, 5, 0.0, 6.8964),
    "diabetes": (442, 10, 152.1335, 77.0057),
}
BUNDLED = "diabetes"

TOY_TABLE = np.array([[10.0 * row + column for column in range(4)] for row in range(6)])  # [6, 4]
TOY_TABLE[:, 2] = 0.1


def publish(root, path, content):
    """Write ``content`` below ``root`` where a published file of this path lies, and describe that file."""
    file = PublishedFile("someone/numbers", "c0ffee", path, hashlib.sha256(content).hexdigest())
    place = root / file.relative_path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return file


def as_text(rows):
    text = io.BytesIO()
    np.savetxt(text, rows, fmt="%g")
    return text.getvalue()


def toy_archive():
    """A tar archive with one set: inputs are columns 3, 0 and 2 of the table, the target is column 1."""
    members = {"data": TOY_TABLE, "index_features": [3, 0, 2], "index_target": [1]}
    members |= {"index_train_0": [4, 0, 2], "index_test_0": [1, 3, 5]}
    members |= {"index_train_1": [1, 3, 5, 0], "index_test_1": [4, 2]}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, rows in members.items():
            text = as_text(rows)
            header = tarfile.TarInfo(f"toy/data/{name}.txt")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text))
    return packed.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty download cache, and no local directory of files."""
    directory = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda project: directory / project)
    monkeypatch.delenv("GPFLOW_PEP_DATA", raising=False)
    return directory / "gpflow_pep"


@pytest.fixture
def local(tmp_path, monkeypatch, cache):
    """A local directory of files."""
    directory = tmp_path / "local"
    directory.mkdir()
    monkeypatch.setenv("GPFLOW_PEP_DATA", str(directory))
    return directory


@pytest.fixture
def toy(local, monkeypatch):
    """The name of a data set of 6 rows with 2 splits, whose archive lies in the local directory."""
    source = ArchivedSplits(publish(local, "toy.tgz", toy_archive()), "toy", num_splits=2)
    info = replace(ENTRIES["boston"].info, name="toy", num_splits=2, files=source.files)
    monkeypatch.setitem(ENTRIES, "toy", Entry(info, source))
    return "toy"


class Server:
    """Serves files by address on loopback, and notes what was asked for."""

    def __init__(self):
        self.content, self.asked = {}, []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                body = server.content.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *arguments):
                """Keep quiet."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch, cache):
    """A server on loopback in place of the public one."""
    running = Server()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(files, "HOST", running.address)
    yield running
    running.stop()


NUMBERS = PublishedFile("someone/numbers", "c0ffee", "some/numbers.csv", hashlib.sha256(b"1,2\n").hexdigest())
NUMBERS_ADDRESS = "/someone/numbers/c0ffee/some/numbers.csv"


def test_names_and_descriptions():
    assert datasets.names() == tuple(PUBLISHED)
    for name, (N, D, _, _) in PUBLISHED.items():
        info = datasets.describe(name)
        assert (info.name, info.task, info.N, info.D) == (name, "regression", N, D)
        assert info.target
        assert info.licence


def test_number_of_splits():
    folds = {"kin40k", "elevators", "airfoil"}
    assert {name: datasets.describe(name).num_splits for name in datasets.names()} == {
        name: 10 if name in folds else 20 for name in PUBLISHED
    }
    assert {name for name in datasets.names() if not datasets.describe(name).splits_published} == {"snelson", BUNDLED}


def test_every_file_is_pinned():
    pinned = {file for name in datasets.names() for file in datasets.describe(name).files}
    assert len(pinned) == 8  # the archive, snelson, and a table and a mask for each of three sets
    for file in pinned:
        assert file.url == f"https://raw.githubusercontent.com/{file.repository}/{file.commit}/{file.path}"
        assert re.fullmatch("[0-9a-f]{40}", file.commit)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)


@pytest.mark.parametrize("function", [datasets.load, datasets.describe])
def test_unknown_name(function):
    with pytest.raises(ValueError, match=r"name is 'bostn'; accepted are snelson, boston.*Did you mean 'boston'\?"):
        function("bostn")
    with pytest.raises(ValueError, match=r"name is None; accepted are .* diabetes\.$"):
        function(None)


@pytest.mark.parametrize("split", [-1, 20, 1.0, "0", None])
def test_split_out_of_range(split):
    with pytest.raises(ValueError, match=rf"split is {split!r}; diabetes accepts whole numbers from 0 to 19"):
        datasets.load(BUNDLED, split)


def test_archive_gives_the_columns_and_rows_it_names(toy):
    data = datasets.load(toy, 1, standardise=False)
    assert data.name == "toy"
    np.testing.assert_array_equal(data.X_train, TOY_TABLE[[1, 3, 5, 0]][:, [3, 0, 2]])
    np.testing.assert_array_equal(data.Y_train, TOY_TABLE[[1, 3, 5, 0]][:, [1]])
    np.testing.assert_array_equal(data.X_test, TOY_TABLE[[4, 2]][:, [3, 0, 2]])
    np.testing.assert_array_equal(data.Y_test, TOY_TABLE[[4, 2]][:, [1]])


def test_archive_is_not_extracted(toy, tmp_path, monkeypatch):
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    datasets.load(toy)
    assert sorted(tmp_path.rglob("*")) == before


def test_mask_marks_the_test_rows(local):
    mask = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0]])
    source = MaskedFolds(
        publish(local, "data.csv", as_text(TOY_TABLE).replace(b" ", b",")),
        publish(local, "mask.csv", as_text(mask).replace(b" ", b",")),
        num_splits=3,
    )
    table = source.read(1)
    np.testing.assert_array_equal(table.X, TOY_TABLE[:, :3])
    np.testing.assert_array_equal(table.Y, TOY_TABLE[:, 3:])
    np.testing.assert_array_equal(table.train, [0, 2, 3, 5])
    np.testing.assert_array_equal(table.test, [1, 4])


@pytest.mark.parametrize("split", range(20))
def test_seeded_splits_are_as_documented(split):
    X, y = load_diabetes(return_X_y=True, scaled=False)
    rows = np.random.RandomState(split).permutation(442)
    data = datasets.load(BUNDLED, split, standardise=False)
    np.testing.assert_array_equal(data.X_train, X[rows[:398]])
    np.testing.assert_array_equal(data.Y_train, y[rows[:398], None])
    np.testing.assert_array_equal(data.X_test, X[rows[398:]])
    np.testing.assert_array_equal(data.Y_test, y[rows[398:], None])


def test_split_may_be_a_numpy_integer():
    data = datasets.load(BUNDLED, np.int64(3))
    np.testing.assert_array_equal(data.X_test, datasets.load(BUNDLED, 3).X_test)


def test_training_part_has_mean_zero_and_deviation_one():
    data = datasets.load(BUNDLED)
    # Columns reach 1e2 in units of their deviation before centring: rounding of the mean stays under 1e2 eps sqrt(N).
    for columns in (data.X_train, data.Y_train):
        np.testing.assert_allclose(columns.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(columns.std(axis=0), 1.0, rtol=1e-12)
    assert abs(data.Y_test.mean()) > 1e-6  # the test part is not centred by itself


def test_standardised_values_go_back_to_published_units():
    raw, data = datasets.load(BUNDLED, standardise=False), datasets.load(BUNDLED)
    for part in ("train", "test"):
        X, Y = getattr(data, f"X_{part}"), getattr(data, f"Y_{part}")
        np.testing.assert_allclose(X * data.x_scale + data.x_mean, getattr(raw, f"X_{part}"), rtol=1e-12)
        np.testing.assert_allclose(Y * data.y_scale + data.y_mean, getattr(raw, f"Y_{part}"), rtol=1e-12)


def test_without_standardisation_means_are_zero_and_scales_one():
    raw = datasets.load(BUNDLED, standardise=False)
    np.testing.assert_array_equal(raw.x_mean, np.zeros(10))
    np.testing.assert_array_equal(raw.x_scale, np.ones(10))
    np.testing.assert_array_equal(raw.y_mean, [0.0])
    np.testing.assert_array_equal(raw.y_scale, [1.0])


def test_constant_column_keeps_scale_one(toy):
    data = datasets.load(toy)
    constant = 2  # the table's column 2, 0.1 in every row: numpy's deviation of three such rows is 1e-17, not 0
    assert data.x_scale[constant] == 1.0
    np.testing.assert_allclose(data.X_train[:, constant], 0.0, atol=1e-15)
    np.testing.assert_allclose(data.X_test[:, constant], 0.0, atol=1e-15)
    assert np.all(data.x_scale[:2] > 1.0)


def test_arrays_are_float64_matrices():
    data = datasets.load(BUNDLED)
    arrays = {name: array for name, array in vars(data).items() if name != "name"}
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float64)}
    assert {name: array.shape for name, array in arrays.items()} == {
        **{"X_train": (398, 10), "Y_train": (398, 1), "X_test": (44, 10), "Y_test": (44, 1)},
        **{"x_mean": (10,), "x_scale": (10,), "y_mean": (1,), "y_scale": (1,)},
    }


def test_local_directory_is_used_first(local, server):
    file = publish(local, NUMBERS.path, b"1,2\n")
    assert local_copy(file) == local / "someone+numbers" / "some" / "numbers.csv"
    assert server.asked == []


def test_local_file_with_wrong_content(local, server):
    publish(local, NUMBERS.path, b"tampered")
    with pytest.raises(datasets.ChecksumError) as caught:
        local_copy(NUMBERS)
    hashes = f"expected sha256 {NUMBERS.sha256}, found {hashlib.sha256(b'tampered').hexdigest()}"
    for part in (str(local / NUMBERS.relative_path), hashes, NUMBERS.url, "GPFLOW_PEP_DATA"):
        assert part in str(caught.value)
    assert server.asked == []


@pytest.mark.parametrize("value", ["absent file", "absent directory", "empty", "unset"])
def test_download_once_into_the_cache(value, tmp_path, monkeypatch, cache, server):
    if value != "unset":
        directory = {"absent file": str(tmp_path), "absent directory": str(tmp_path / "none"), "empty": ""}[value]
        monkeypatch.setenv("GPFLOW_PEP_DATA", directory)
    server.content[NUMBERS_ADDRESS] = b"1,2\n"
    path = local_copy(NUMBERS)
    assert path == cache / "someone+numbers" / "some" / "numbers.csv"
    assert path.read_bytes() == b"1,2\n"
    assert local_copy(NUMBERS) == path
    assert server.asked == [NUMBERS_ADDRESS]


def test_damaged_cache_is_downloaded_again(cache, server):
    server.content[NUMBERS_ADDRESS] = b"1,2\n"
    local_copy(NUMBERS).write_bytes(b"damaged")
    assert local_copy(NUMBERS).read_bytes() == b"1,2\n"
    assert server.asked == [NUMBERS_ADDRESS] * 2


def test_download_with_wrong_content(cache, server):
    server.content[NUMBERS_ADDRESS] = b"another file"
    with pytest.raises(datasets.ChecksumError) as caught:
        local_copy(NUMBERS)
    hashes = (NUMBERS.sha256, hashlib.sha256(b"another file").hexdigest())
    for part in (NUMBERS.url, str(NUMBERS.relative_path), *hashes, "GPFLOW_PEP_DATA"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_no_network(cache, monkeypatch):
    with socket.socket() as taken:  # bound and never listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(files, "HOST", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectionError) as caught:
            datasets.load("yacht")
        (archive,) = datasets.describe("yacht").files
        for part in (archive.url, str(archive.relative_path), "GPFLOW_PEP_DATA"):
            assert part in str(caught.value)
    assert caught.value.__cause__ is not None


def test_address_that_serves_nothing(cache, server):
    with pytest.raises(ConnectionError, match=f"{NUMBERS.url} could not be downloaded.*404"):
        local_copy(NUMBERS)


@pytest.mark.data
@requires_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_and_target(name):
    N, D, target_mean, target_deviation = PUBLISHED[name]
    data = datasets.load(name, standardise=False)
    num_test = len(data.X_test)
    assert abs(num_test - N / 10) <= 1
    shapes = [array.shape for array in (data.X_train, data.Y_train, data.X_test, data.Y_test)]
    assert shapes == [(N - num_test, D), (N - num_test, 1), (num_test, D), (num_test, 1)]
    Y = np.concatenate([data.Y_train, data.Y_test])
    if target_mean is not None:  # known to four decimals
        assert Y.mean() == pytest.approx(target_mean, abs=6e-5)
        assert Y.std() == pytest.approx(target_deviation, abs=6e-5)


@pytest.mark.data
@requires_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_split_is_a_partition(name):
    source, N = ENTRIES[name].source, datasets.describe(name).N
    tested = set()
    for split in range(datasets.describe(name).num_splits):
        table = source.read(split)
        assert np.isfinite(np.hstack([table.X, table.Y])).all()
        np.testing.assert_array_equal(np.sort(np.concatenate([table.train, table.test])), np.arange(N))
        tested.add(tuple(table.test))
    assert len(tested) == datasets.describe(name).num_splits  # all differ


@pytest.mark.data
@requires_data
@pytest.mark.parametrize("name", ["kin40k", "elevators", "airfoil"])
def test_folds_test_every_row_once(name):
    rows = np.concatenate([ENTRIES[name].source.read(split).test for split in range(10)])
    np.testing.assert_array_equal(np.sort(rows), np.arange(datasets.describe(name).N))


@pytest.mark.data
@requires_data
def test_naval_has_two_constant_inputs():
    data = datasets.load("naval")
    np.testing.assert_array_equal(np.flatnonzero(np.ptp(data.X_train, axis=0) == 0.0), [8, 11])
    np.testing.assert_array_equal(data.x_scale[[8, 11]], 1.0)
    np.testing.assert_allclose(data.X_test[:, [8, 11]], 0.0, atol=1e-9)


@pytest.mark.data
@requires_data
def test_elevators_target_is_a_centred_logarithm_of_whole_thousandths():
    data = datasets.load("elevators", standardise=False)
    target = np.unique(np.concatenate([data.Y_train, data.Y_test]))
    thousandths = 12.0 * np.exp(target - target.min())  # the smallest is 0.012
    # Printed to 5 digits: errors up to 5e-5 and 5e-6 in the two logarithms, times at most 78 thousandths.
    np.testing.assert_allclose(thousandths, np.round(thousandths), atol=78 * 5.5e-5)
    assert len(target) == 61
