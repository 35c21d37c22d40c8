"""
Datasets from arrays on disk, CSV and Parquet files: the values that are there, in their order, each
time.
"""

import numpy as np
import pandas
import pytest
import tensorflow as tf
from comparisons import assert_all_close
from gpflow.kernels import SquaredExponential
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from gpflow_pep import PEPR
from gpflow_pep.data.readers import (
    array_batches,
    csv_batches,
    parquet_batches,
    standardized,
    statistics,
)

N = 23
D = 3
P = 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = RNG.normal(3.0, 2.0, size=(N, P))
NAMES = ["a", "b", "c", "u", "v"]
INPUTS = ["c", "a"]
OUTPUTS = ["u"]
AB = {"inputs": ["a"], "outputs": ["b"]}


def assert_twice(dataset, X, Y, sizes):
    """A dataset gives these rows in batches of these sizes, and again the next time."""
    for _ in range(2):
        found, actual_X, actual_Y = rows_of(dataset)
        assert found == sizes
        assert_array_equal(actual_X, X)
        assert_array_equal(actual_Y, Y)
        assert actual_Y.dtype == np.float64


def rows_of(dataset):
    batches = list(dataset.as_numpy_iterator())
    return [len(values) for values, _ in batches], *(
        np.concatenate(parts) for parts in zip(*batches, strict=True)
    )


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


@pytest.fixture
def parquet(tmp_path):
    """Write columns in a Parquet file."""
    import pyarrow.parquet

    def write(columns, **options):
        path = tmp_path / "rows.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
        return path

    return write


def test_arrays_on_disk(npy):
    dataset = array_batches(*npy, batch_size=10)
    assert_twice(dataset, X, Y.astype(np.float32), [10, 10, 3])


def test_columns_of_csv(written):
    dataset = csv_batches(written, inputs=INPUTS, outputs=OUTPUTS, batch_size=10, delimiter=";")
    for _ in range(2):
        assert_twice(dataset, X[:, [2, 0]], Y[:, :1], [10, 10, 3])
        written.write_bytes(written.read_bytes().replace(b"\n", b"\r\n"))


def test_columns_of_parquet(parquet):
    columns = dict(zip(NAMES, np.column_stack([X, Y]).T, strict=True)) | {
        "word": ["x"] * N,
        "whole": np.arange(N),
    }
    path = parquet(columns, row_group_size=7)
    dataset = parquet_batches(path, inputs=INPUTS, outputs=["whole"], batch_size=10)
    for _ in range(2):
        sizes, actual_X, actual_Y = rows_of(dataset)
        assert sum(sizes) == N and max(sizes) <= 10
        assert_array_equal(actual_X, X[:, [2, 0]])
        assert_array_equal(actual_Y[:, 0], np.arange(N))


@pytest.mark.parametrize(
    ("values", "found"),
    [(["1", "2"], "string"), (np.array([1, 2], "M8[s]"), "timestamp")],
)
def test_columns_of_parquet_that_hold_no_numbers(parquet, values, found):
    path = parquet({"a": values, "b": [1.0, 2.0]})
    with refused(rf"rows\.parquet: column 'a' must hold numbers, got {found}"):
        parquet_batches(path, **AB)


def test_row_groups_are_read_by_batches(parquet):
    """A file of 2 kB holds a row group of 240 MB; a batch has 131 kB."""
    import pyarrow

    zeros = np.zeros(15_000_000)
    path = parquet({"a": zeros, "b": zeros}, row_group_size=2**31 - 1)
    del zeros
    pool = pyarrow.proxy_memory_pool(pyarrow.default_memory_pool())
    default = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pool)
    try:
        next(iter(parquet_batches(path, **AB)))
    finally:
        pyarrow.set_memory_pool(default)
    assert pool.max_memory() < 2**25  # bytes: pages of 1 MB and batches, read ahead


def test_damaged_parquet_is_named(parquet):
    columns = {"a": X[:, 0], "b": X[:, 1]}
    for compression in ("snappy", "zstd", "gzip", "none"):
        path = parquet(columns, compression=compression, write_page_checksum=True)
        content = bytearray(path.read_bytes())
        content[60:100] = bytes(40)
        for damaged in (content, content[:50]):
            path.write_bytes(damaged)
            with refused(r"rows\.parquet cannot be read as columns of numbers"):
                parquet_batches(path, **AB)


def test_integers_that_would_be_rounded_are_refused(tmp_path):
    """By readers of arrays, CSV and Parquet files alike; 2^53 + 2 and -2^63 are exact."""
    import pyarrow
    import pyarrow.parquet

    csv, parquet, decimals = (tmp_path / name for name in ("a.csv", "a.parquet", "b.parquet"))
    decimal = pyarrow.decimal128(20, 0)
    for value in (2**53 + 2, -(2**63), 2**53 + 1, -(2**53) - 1, 2**63 - 1):
        table = pandas.DataFrame({"a": [1, value], "b": [0.5, 1.0]})
        table.to_csv(csv, index=False)
        table.to_parquet(parquet)
        of_decimals = pyarrow.table({"a": pyarrow.array([1, value], decimal), "b": [0.5, 1.0]})
        pyarrow.parquet.write_table(of_decimals, decimals)
        readers = (
            lambda: csv_batches(csv, **AB),
            lambda: parquet_batches(parquet, **AB),
            lambda: parquet_batches(decimals, **AB),
            lambda table=table: array_batches(table[["a"]].to_numpy(), table[["b"]].to_numpy()),
        )
        for read in readers:
            if int(float(value)) == value:
                assert_array_equal(rows_of(read())[1], [[1.0], [float(value)]])
                continue
            with pytest.raises(
                (ValueError, tf.errors.InvalidArgumentError),
                match=rf"{value}, which float64 rounds",
            ):
                rows_of(read())


def test_a_model_of_a_file(written):
    read = csv_batches(written, inputs=NAMES[:3], outputs=NAMES[3:], batch_size=7, delimiter=";")
    values = statistics(read)
    assert_all_close(values, (X.mean(0), X.std(0), Y.mean(0), Y.std(0)), rtol=1e-13, atol=1e-14)
    losses = [
        PEPR(data, SquaredExponential(), X[:5]).training_loss()
        for data in (
            standardized(read, values),
            ((X - X.mean(0)) / X.std(0), (Y - Y.mean(0)) / Y.std(0)),
        )
    ]
    assert_allclose(*losses, rtol=1e-11)


def test_an_empty_field_is_refused_with_its_row(written):
    lines = written.read_text().split("\n")
    lines[18] = ";".join(["", *lines[18].split(";")[1:]])
    written.write_text("\n".join(lines))
    read = csv_batches(written, inputs=INPUTS, outputs=OUTPUTS, delimiter=";")
    with refused(r"every value must be finite, got NaN or infinity in row 17\."):
        PEPR(read, SquaredExponential(), X[:5, :2])
    with refused(r"column \d of X is constant or not finite"):
        statistics(read)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n3,True\n", "Row #3: .*invalid value 'True'"),
        ("a,b\n1,2\n3\n", "Row #3: Expected 2 columns, got 1"),
        ("a,b\n1,2,3\n", "Row #2: Expected 2 columns, got 3"),
        ("a,b\n1," + "z" * 2**25 + "\n", "a line is longer than 16 MiB"),
        ("a,b" + "z" * 2**24 + "\n1,2\n", "a line is longer than 16 MiB"),
        ("a,b\n1_0,2\n", "Row #2: .*invalid value '1_0'"),
        ("", "Empty CSV file"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, text, reason):
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with refused(rf"^.*wrong\.csv cannot be read as columns of numbers: .*{reason}"):
        csv_batches(path, **AB)


def test_columns_that_are_not_read_may_hold_anything(tmp_path):
    path = tmp_path / "text.csv"
    path.write_text(
        'a,b,text\n1,2,"one, ""two"""\n\n3,4,"several\nlines"\n5,6,it"s\n7,8,'
        + "z" * 2_000_000
        + "\n"
    )
    _, actual_X, actual_Y = rows_of(csv_batches(path, **AB))
    assert_array_equal(actual_X, [[1.0], [3.0], [5.0], [7.0]])
    assert_array_equal(actual_Y, actual_X + 1.0)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_named(tmp_path, encoding):
    path = tmp_path / "rows.csv"
    path.write_bytes("größe,b\n1,2\n".encode(encoding))
    with refused(r"rows\.csv cannot be read .* encoding is not UTF-8"):
        csv_batches(path, inputs=["b"], outputs=["größe"])


@pytest.mark.parametrize("delimiter", ["||", "", "\n", '"', "é", "1", ".", None, 3])
def test_delimiters_that_are_refused(written, delimiter):
    with refused(r"^delimiter must be one ASCII character"):
        csv_batches(written, inputs=INPUTS, outputs=OUTPUTS, delimiter=delimiter)


def test_files_that_are_refused(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    with refused(r"^path must be a file, .* got .*pipe"):
        csv_batches(tmp_path / "pipe", **AB)


def test_statistics_far_from_the_origin():
    far = 1e9 + X, np.full((N, 1), 5.0) + np.arange(N)[:, None]
    values = statistics(array_batches(*far, batch_size=4))
    assert_allclose(values.X_std, far[0].std(0), rtol=1e-12)
    with refused("column 0 of Y is constant or not finite"):
        statistics(array_batches(X, np.ones((N, 1))))
    with refused("at least one row"):
        statistics(array_batches(X[:0], Y[:0]))
    with refused("must be finite, got one that repeats"):
        statistics(array_batches(X, Y).repeat())
    unequal = tf.data.Dataset.from_tensors((X, Y[:-1]))
    with refused("the same number of rows, got 23 and 22"):
        statistics(unequal)
    empty = tf.data.Dataset.from_tensors((X[:0], Y[:0]))
    values = statistics(empty.concatenate(array_batches(X, Y)))
    assert_all_close(values[:2], (X.mean(0), X.std(0)), rtol=1e-12)


def test_statistics_of_other_columns_are_refused():
    of_one = statistics(array_batches(X[:, :1], Y))
    with refused(r"^values must be of the columns of X, 3, got 1 columns"):
        standardized(array_batches(X, Y), of_one)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (X, Y[:-1], "the same number of rows, got 23 and 22"),
        (X[:, 0], Y, r"^X must be an array \[N, columns\]"),
        (X, [[1.0]], "^Y must be an array .* got list"),
        (X.astype(str), Y, "^X must be an array .* dtype"),
        (np.ma.masked_less(X, 0.0), Y, "^X must be an array without a mask"),
        (pandas.DataFrame(X), Y, "^X must be an array .* got DataFrame"),
        (X, tf.constant(Y), "^Y must be an array .* got EagerTensor"),
    ],
)
def test_arrays_that_are_refused(X, Y, message):
    with refused(message):
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
    with refused(message):
        csv_batches(written, delimiter=";", **columns)
