"""Datasets from arrays on disk, CSV and Parquet files: the values that are there, in their order, each time."""

import importlib.util

import gpflow
import numpy as np
import pytest

from gpflow_pep import PEPR
from gpflow_pep.data.readers import array_batches, csv_batches, parquet_batches, standardized, statistics

N, D, P = 23, 3, 2
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, D)), RNG.normal(3.0, 2.0, size=(N, P))
NAMES = ["a", "b", "c", "u", "v"]
INPUTS, OUTPUTS = ["c", "a"], ["u"]

needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def rows_of(dataset):
    batches = list(dataset.as_numpy_iterator())
    return [len(values) for values, _ in batches], *(np.concatenate(parts) for parts in zip(*batches, strict=True))


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y.astype(np.float32))
    return [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "XY"]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [";".join(map(repr, map(float, row))) for row in np.column_stack([X, Y])]
    path.write_text("\n".join([";".join(NAMES), *lines]) + "\n")
    return path


def test_arrays_on_disk(npy):
    dataset = array_batches(*npy, batch_size=10)
    for _ in range(2):
        sizes, actual_X, actual_Y = rows_of(dataset)
        assert sizes == [10, 10, 3]
        np.testing.assert_array_equal(actual_X, X)
        np.testing.assert_array_equal(actual_Y, Y.astype(np.float32))
        assert actual_Y.dtype == np.float64


def test_columns_of_csv(written):
    dataset = csv_batches(written, inputs=INPUTS, outputs=OUTPUTS, batch_size=10, delimiter=";")
    for _ in range(2):
        sizes, actual_X, actual_Y = rows_of(dataset)
        assert sizes == [10, 10, 3]
        np.testing.assert_array_equal(actual_X, X[:, [2, 0]])
        np.testing.assert_array_equal(actual_Y, Y[:, :1])


@needs_pyarrow
def test_columns_of_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    columns = dict(zip(NAMES, np.column_stack([X, Y]).T, strict=True)) | {"word": ["x"] * N, "whole": np.arange(N)}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet", row_group_size=7)
    dataset = parquet_batches(tmp_path / "rows.parquet", inputs=INPUTS, outputs=["whole"], batch_size=10)
    for _ in range(2):
        sizes, actual_X, actual_Y = rows_of(dataset)
        assert sum(sizes) == N and max(sizes) <= 10
        np.testing.assert_array_equal(actual_X, X[:, [2, 0]])
        np.testing.assert_array_equal(actual_Y[:, 0], np.arange(N))
    with pytest.raises(ValueError, match="'word' of type string"):
        parquet_batches(tmp_path / "rows.parquet", inputs=["word"], outputs=["a"])


def test_a_model_of_a_file(written):
    read = csv_batches(written, inputs=NAMES[:3], outputs=NAMES[3:], batch_size=7, delimiter=";")
    values = statistics(read)
    for actual, expected in zip(values, (X.mean(0), X.std(0), Y.mean(0), Y.std(0)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-14)
    losses = [
        float(PEPR(data, gpflow.kernels.SquaredExponential(), X[:5].copy()).training_loss())
        for data in (standardized(read, values), ((X - X.mean(0)) / X.std(0), (Y - Y.mean(0)) / Y.std(0)))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-11)


def test_an_empty_field_is_refused_with_its_row(written):
    lines = written.read_text().split("\n")
    lines[18] = ";".join(["", *lines[18].split(";")[1:]])
    written.write_text("\n".join(lines))
    read = csv_batches(written, inputs=INPUTS, outputs=OUTPUTS, delimiter=";")
    with pytest.raises(ValueError, match=r"every value must be finite, got NaN or infinity in row 17\."):
        PEPR(read, gpflow.kernels.SquaredExponential(), X[:5, :2])
    with pytest.raises(ValueError, match=r"column \d of X is constant or not finite"):
        statistics(read)


@pytest.mark.parametrize(("value", "hint"), [("True", r"; write True and False as 1 and 0\.$"), ("Rome", r"\.$")])
def test_a_field_that_is_no_number_is_refused_with_its_place(written, value, hint):
    """When the file is opened; columns that are not read may hold anything."""
    lines = written.read_text().split("\n")
    lines[4] = ";".join([*lines[4].split(";")[:2], value, *lines[4].split(";")[3:]])
    written.write_text("\n".join(lines))
    message = (
        rf"^inputs and outputs must be columns of numbers, got '{value}' in column 'c', row 3 of .*rows\.csv{hint}"
    )
    with pytest.raises(ValueError, match=message):
        csv_batches(written, inputs=INPUTS, outputs=OUTPUTS, delimiter=";")
    _, actual_X, _ = rows_of(csv_batches(written, inputs=["a"], outputs=OUTPUTS, delimiter=";"))
    np.testing.assert_array_equal(actual_X, X[:, :1])


def test_statistics_far_from_the_origin():
    far = 1e9 + X, np.full((N, 1), 5.0) + np.arange(N)[:, None]
    values = statistics(array_batches(*far, batch_size=4))
    np.testing.assert_allclose(values.X_std, far[0].std(0), rtol=1e-12)
    with pytest.raises(ValueError, match="column 0 of Y is constant or not finite"):
        statistics(array_batches(X, np.ones((N, 1))))
    with pytest.raises(ValueError, match="at least one row"):
        statistics(array_batches(X[:0], Y[:0]))


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (X, Y[:-1], "the same number of rows, got 23 and 22"),
        (X[:, 0], Y, r"^X must be an array \[N, columns\]"),
        (X, [[1.0]], "^Y must be an array .* got list"),
        (X.astype(str), Y, "^X must be an array .* dtype"),
    ],
)
def test_arrays_that_are_refused(X, Y, message):
    with pytest.raises(ValueError, match=message):
        array_batches(X, Y)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"inputs": ["a", "z"], "outputs": ["u"]}, r"^inputs must be columns .* got \['z'\]"),
        ({"inputs": ["a"], "outputs": []}, "^outputs must be a list of names"),
        ({"inputs": "a", "outputs": ["u"]}, "^inputs must be a list of names"),
        ({"inputs": ["a", "b"], "outputs": ["a"]}, "must name each column once"),
        ({"inputs": ["a"], "outputs": ["u"], "batch_size": 0}, "^batch_size must be"),
    ],
)
def test_columns_that_are_refused(written, columns, message):
    with pytest.raises(ValueError, match=message):
        csv_batches(written, delimiter=";", **columns)
