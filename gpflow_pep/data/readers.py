"""Datasets of batches (X, Y) from arrays on disk, CSV and Parquet files, for data larger than memory."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .. import validation

_Path: TypeAlias = str | os.PathLike[str]

_ROWS = 8192  # rows per batch
_READ_AHEAD = 2  # batches: one is read while another is used
_BLOCK = 2**24  # bytes of a CSV file that are parsed together; a line must be shorter


def array_batches(X: Any, Y: Any, *, batch_size: int = _ROWS) -> tf.data.Dataset:
    """
    Return batches of two arrays, for example memory-mapped arrays, ``np.load("X.npy", mmap_mode="r")``.

    :param X: [N, D], any object with ``shape`` and ``dtype`` whose row slices NumPy can convert.
    :param Y: [N, P].
    :raises ValueError: if X or Y is not a matrix of numbers, or their numbers of rows differ.
    """
    size = validation.positive_integer(batch_size, "batch_size")
    for name, values in (("X", X), ("Y", Y)):
        if isinstance(values, np.ma.MaskedArray):
            raise ValueError(
                f"{name} must be an array without a mask, got a masked array: fill or drop the values."
            )
        shape = getattr(values, "shape", ())
        if len(shape) != 2 or np.dtype(values.dtype).kind not in "fiu":
            found = (
                f"shape {tuple(shape)}, dtype {values.dtype}"
                if hasattr(values, "shape")
                else type(values).__name__
            )
            raise ValueError(f"{name} must be an array [N, columns] of real numbers, got {found}.")
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            f"X and Y must have the same number of rows, got {X.shape[0]} and {Y.shape[0]}."
        )
    dtype = default_float()

    def rows(start: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        chunk = slice(int(start), int(start) + size)
        return np.asarray(X[chunk], dtype=dtype), np.asarray(Y[chunk], dtype=dtype)

    @tf.autograph.experimental.do_not_convert
    def read(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X_batch, Y_batch = tf.numpy_function(rows, [start], (dtype, dtype))
        return tf.ensure_shape(X_batch, [None, X.shape[1]]), tf.ensure_shape(
            Y_batch, [None, Y.shape[1]]
        )

    starts = tf.data.Dataset.range(0, X.shape[0], size)
    return starts.map(read, num_parallel_calls=_READ_AHEAD).prefetch(_READ_AHEAD)


def csv_batches(
    path: _Path,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    batch_size: int = _ROWS,
    delimiter: str = ",",
) -> tf.data.Dataset:
    """
    Return batches of a CSV file whose first line names the columns, by pyarrow: ``pip install gpflow_pep[files]``.

    An empty field is read as NaN, which models reject; empty lines are skipped.

    :param inputs: names of the columns of X.
    :param outputs: names of the columns of Y.
    :raises ValueError: if a column is missing, or a line cannot be read as numbers, naming the line: in the first
        megabytes at once, later when it is reached.
    :raises ImportError: without pyarrow.
    """
    import pyarrow.csv  # an extra
    import pyarrow.dataset

    format = pyarrow.dataset.CsvFileFormat(
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(null_values=[""]),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK
        ),  # one thread counts the lines
    )
    return _columns_of(path, format, inputs, outputs, batch_size)


def parquet_batches(
    path: _Path, *, inputs: Sequence[str], outputs: Sequence[str], batch_size: int = _ROWS
) -> tf.data.Dataset:
    """
    Return batches of a Parquet file, by pyarrow: ``pip install gpflow_pep[files]``. Nulls are read as NaN.

    :param inputs: see :func:`csv_batches`; likewise `outputs`.
    :raises ValueError: if a column is missing, or does not hold numbers, or integers beyond 2^53.
    :raises ImportError: without pyarrow.
    """
    return _columns_of(path, "parquet", inputs, outputs, batch_size)


def _columns_of(
    path: _Path, format: Any, inputs: Sequence[str], outputs: Sequence[str], batch_size: int
) -> tf.data.Dataset:
    """Return batches of columns of a file in one of pyarrow's formats, read anew in each pass."""
    import pyarrow
    import pyarrow.dataset

    size, dtype, path = (
        validation.positive_integer(batch_size, "batch_size"),
        default_float(),
        os.fspath(path),
    )
    if not os.path.isfile(path):
        raise ValueError(f"path must be a file, which can be read again in each pass, got {path}.")

    @contextmanager
    def named_errors() -> Iterator[None]:
        try:
            yield
        except pyarrow.ArrowException as error:
            reason = str(error).rpartition("Invalid: ")[2].partition("\n")[0]  # the innermost error
            raise ValueError(f"{path} cannot be read as columns of numbers: {reason}") from error

    def batches(names: Sequence[str]) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        schema = pyarrow.schema([(name, pyarrow.float64()) for name in names])
        with named_errors():
            table = pyarrow.dataset.dataset(path, format=format, schema=schema)
            for batch in table.to_batches(batch_size=size, use_threads=False):
                columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
                values = np.stack(columns, axis=-1).astype(dtype)
                yield values[:, : len(inputs)], values[:, len(inputs) :]

    with named_errors():
        available = pyarrow.dataset.dataset(path, format=format).schema
    names = _checked_columns(inputs, outputs, available.names, path)
    next(batches(names), None)  # reads the first block
    signature = tuple(tf.TensorSpec([None, len(columns)], dtype) for columns in (inputs, outputs))
    rows = tf.data.Dataset.from_generator(lambda: batches(names), output_signature=signature)
    return rows.rebatch(size).prefetch(_READ_AHEAD)


class Statistics(NamedTuple):
    """Means and standard deviations of the columns of a dataset."""

    X_mean: AnyNDArray  # [D]
    X_std: AnyNDArray  # [D]
    Y_mean: AnyNDArray  # [P]
    Y_std: AnyNDArray  # [P]


def statistics(dataset: tf.data.Dataset) -> Statistics:
    """
    Compute means and standard deviations in one pass, by the update of Chan, Golub and LeVeque (1983).

    :param dataset: batches (X [n, D], Y [n, P]).
    :raises ValueError: if there are no rows, or a column is constant or not finite.
    """
    count, origin, mean, square, D = 0, None, np.zeros(()), np.zeros(()), 0
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("dataset must be finite, got one that repeats without end.")
    for X, Y in dataset.as_numpy_iterator():
        if len(X) != len(Y):
            raise ValueError(
                f"X and Y of a batch must have the same number of rows, got {len(X)} and {len(Y)}."
            )
        if not len(X):
            continue
        values, n, D = np.concatenate([X, Y], axis=1, dtype=float), len(X), X.shape[1]  # [n, D + P]
        origin = (
            values[0] if origin is None else origin
        )  # avoids cancellation for values far from 0
        values = values - origin
        difference = values.mean(axis=0) - mean
        square = square + n * values.var(axis=0) + np.square(difference) * (count * n / (count + n))
        mean = mean + difference * (n / (count + n))
        count += n
    if origin is None:
        raise ValueError("dataset must have at least one row, got none.")
    deviations = np.split(np.sqrt(square / count), [D])
    for name, deviation in zip(("X", "Y"), deviations, strict=True):
        wrong = np.flatnonzero(~(deviation > 0.0) | ~np.isfinite(deviation))
        if wrong.size:
            raise ValueError(f"dataset: column {wrong[0]} of {name} is constant or not finite.")
    X_mean, Y_mean = np.split(origin + mean, [D])
    return Statistics(X_mean, deviations[0], Y_mean, deviations[1])


def standardized(dataset: tf.data.Dataset, values: Statistics) -> tf.data.Dataset:
    """Standardize batches by given statistics, such as the training data's; a ValueError if they have other columns."""
    for name, spec, mean in zip(("X", "Y"), dataset.element_spec, values[::2], strict=True):
        if not spec.shape.is_compatible_with([None, len(mean)]):
            raise ValueError(
                f"values must be of the columns of {name}, {spec.shape[-1]}, got {len(mean)} columns."
            )

    @tf.autograph.experimental.do_not_convert
    def scaled(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (tf.cast(part, default_float()) for part in (X, Y))
        return (X - values.X_mean) / values.X_std, (Y - values.Y_mean) / values.Y_std

    return dataset.map(scaled, num_parallel_calls=_READ_AHEAD)


def _checked_columns(
    inputs: Sequence[str], outputs: Sequence[str], available: Sequence[str], path: str
) -> list[str]:
    for argument, names in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(names, str) or not names:
            raise ValueError(f"{argument} must be a list of names of columns, got {names!r}.")
        missing = [name for name in names if list(available).count(name) != 1]
        if missing:
            raise ValueError(
                f"{argument} must be columns of {path}, {list(available)}, each once, got {missing}."
            )
    names = [*inputs, *outputs]
    if len(set(names)) < len(names):
        raise ValueError(f"inputs and outputs must name each column once, got {names}.")
    return names
