"""Datasets of batches (X, Y) from arrays on disk, CSV and Parquet files, for data larger than memory."""

import csv
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .. import validation

_ROWS = 8192  # rows per batch
_READ_AHEAD = 2  # batches: one is read while another is used


def array_batches(X: Any, Y: Any, *, batch_size: int = _ROWS) -> tf.data.Dataset:
    """
    Return batches of two arrays, for example memory-mapped arrays, ``np.load("X.npy", mmap_mode="r")``.

    :param X: [N, D], any object with ``shape`` and ``dtype`` whose row slices NumPy can convert.
    :param Y: [N, P].
    :raises ValueError: if X or Y is not a matrix of numbers, or their numbers of rows differ.
    """
    size = validation.positive_integer(batch_size, "batch_size")
    for name, values in (("X", X), ("Y", Y)):
        if len(getattr(values, "shape", ())) != 2 or np.dtype(values.dtype).kind not in "fiu":
            shape = getattr(values, "shape", None)
            found = type(values).__name__ if shape is None else f"shape {tuple(shape)}, dtype {values.dtype}"
            raise ValueError(f"{name} must be an array [N, columns] of real numbers, got {found}.")
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"X and Y must have the same number of rows, got {X.shape[0]} and {Y.shape[0]}.")
    dtype = default_float()

    def rows(start: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        chunk = slice(int(start), int(start) + size)
        return np.asarray(X[chunk], dtype=dtype), np.asarray(Y[chunk], dtype=dtype)

    @tf.autograph.experimental.do_not_convert
    def read(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X_batch, Y_batch = tf.numpy_function(rows, [start], (dtype, dtype))
        return tf.ensure_shape(X_batch, [None, X.shape[1]]), tf.ensure_shape(Y_batch, [None, Y.shape[1]])

    starts = tf.data.Dataset.range(0, X.shape[0], size)
    return starts.map(read, num_parallel_calls=_READ_AHEAD).prefetch(_READ_AHEAD)


def csv_batches(
    path: str | os.PathLike[str],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    batch_size: int = _ROWS,
    delimiter: str = ",",
) -> tf.data.Dataset:
    """
    Return batches of a CSV file whose first line names the columns. An empty field is read as NaN, which models reject.

    :param inputs: names of the columns of X.
    :param outputs: names of the columns of Y.
    :raises ValueError: if a column is missing, or holds anything but numbers in the first 1000 rows.
    """
    size, path = validation.positive_integer(batch_size, "batch_size"), os.fspath(path)
    with open(path, newline="") as file:
        rows = csv.reader(file, delimiter=delimiter)
        header = next(rows, [])
        names = _checked_columns(inputs, outputs, header, path)
        places = [header.index(name) for name in names]
        for number, row in enumerate(itertools.islice(rows, 1000)):  # a file larger than memory opens at once
            for name, place in zip(names, places, strict=True):
                field = row[place] if place < len(row) else ""
                try:
                    float(field or "nan")
                except ValueError:
                    hint = "; write True and False as 1 and 0" if field.strip().lower() in {"true", "false"} else ""
                    raise ValueError(
                        f"inputs and outputs must be columns of numbers, got {field!r} in column {name!r}, row "
                        f"{number} of {path}{hint}."
                    ) from None
    order = np.argsort(np.argsort(places))  # TensorFlow reads columns in the order of the file
    missing = [tf.constant([np.nan], tf.float64)] * len(places)
    lines = tf.data.experimental.CsvDataset(
        path, missing, header=True, field_delim=delimiter, select_cols=sorted(places)
    )

    @tf.autograph.experimental.do_not_convert
    def pair(*fields: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.cast(tf.stack([fields[place] for place in order], axis=-1), default_float())
        return values[:, : len(inputs)], values[:, len(inputs) :]

    return lines.batch(size).map(pair, num_parallel_calls=_READ_AHEAD).prefetch(_READ_AHEAD)


def parquet_batches(
    path: str | os.PathLike[str], *, inputs: Sequence[str], outputs: Sequence[str], batch_size: int = _ROWS
) -> tf.data.Dataset:
    """
    Return batches of a Parquet file; needs pyarrow, ``pip install gpflow_pep[parquet]``. Nulls are read as NaN.

    :param inputs: see :func:`csv_batches`; likewise `outputs`.
    :raises ValueError: if a column is missing or does not hold numbers.
    :raises ImportError: without pyarrow.
    """
    import pyarrow  # an extra
    import pyarrow.parquet

    size, path = validation.positive_integer(batch_size, "batch_size"), os.fspath(path)
    schema = pyarrow.parquet.read_schema(path)
    names, dtype = _checked_columns(inputs, outputs, schema.names, path), default_float()
    for name in names:
        kind = schema.field(name).type
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
            raise ValueError(f"inputs and outputs must be columns of numbers, got {name!r} of type {kind} in {path}.")

    def pairs() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=names):
                columns = [np.asarray(batch.column(name).cast(pyarrow.float64())) for name in names]
                values = np.stack(columns, axis=-1).astype(dtype)
                yield values[:, : len(inputs)], values[:, len(inputs) :]

    signature = tuple(tf.TensorSpec([None, len(columns)], dtype) for columns in (inputs, outputs))
    return tf.data.Dataset.from_generator(pairs, output_signature=signature).prefetch(_READ_AHEAD)


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
    for X, Y in dataset.as_numpy_iterator():
        values, n, D = np.concatenate([X, Y], axis=1, dtype=float), len(X), X.shape[1]  # [n, D + P]
        origin = values[0] if origin is None else origin  # avoids cancellation for values far from 0
        values = values - origin
        difference = values.mean(axis=0) - mean
        square = square + np.square(values - values.mean(axis=0)).sum(axis=0)
        square = square + np.square(difference) * (count * n / (count + n))
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
    """Standardize the columns of batches by given statistics, for example of the training data."""

    @tf.autograph.experimental.do_not_convert
    def scaled(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (tf.cast(part, default_float()) for part in (X, Y))
        return (X - values.X_mean) / values.X_std, (Y - values.Y_mean) / values.Y_std

    return dataset.map(scaled, num_parallel_calls=_READ_AHEAD)


def _checked_columns(inputs: Sequence[str], outputs: Sequence[str], available: Sequence[str], path: str) -> list[str]:
    for argument, names in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(names, str) or not names:
            raise ValueError(f"{argument} must be a list of names of columns, got {names!r}.")
        missing = [name for name in names if list(available).count(name) != 1]
        if missing:
            raise ValueError(f"{argument} must be columns of {path}, {list(available)}, each once, got {missing}.")
    names = [*inputs, *outputs]
    if len(set(names)) < len(names):
        raise ValueError(f"inputs and outputs must name each column once, got {names}.")
    return names
