"""
Datasets of batches (X, Y) from arrays on disk, CSV and Parquet files, for data larger than memory.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .. import validation

_Path: TypeAlias = str | os.PathLike[str]
_Batch: TypeAlias = dict[str, AnyNDArray]  # columns [n] by name

_ROWS = 8192  # rows per batch
_READ_AHEAD = 2  # batches: one is read while another is used
_BLOCK = 2**24  # bytes of a CSV file that are parsed together; a line must be shorter
_ENCODING = "its encoding is not UTF-8; convert it first"
_INTEGER = r"^\s*[+-]?[0-9]{8,308}\s*$"  # 2^24 has 8 digits, and the largest float64 has 309


def array_batches(X: Any, Y: Any, *, batch_size: int = _ROWS) -> tf.data.Dataset:
    """
    Return batches of two arrays, for example memory-mapped arrays,
    ``np.load("X.npy", mmap_mode="r")``.

    :param X: [N, D], any object with ``shape`` and ``dtype`` whose row slices NumPy can convert.
    :param Y: [N, P].
    :raises ValueError: if X or Y is not a matrix of numbers, or their numbers of rows differ.
    """
    size = validation.positive_integer(batch_size, "batch_size")
    for name, values in (("X", X), ("Y", Y)):
        if isinstance(values, np.ma.MaskedArray):
            raise ValueError(
                f"{name} must be an array without a mask, got a masked array: fill or drop the "
                "values."
            )
        shape = getattr(values, "shape", ())
        dtype = getattr(values, "dtype", None)
        if len(shape) != 2 or getattr(dtype, "kind", "none") not in "fiu":
            found = type(values).__name__
            if isinstance(dtype, np.dtype):
                found = f"shape {tuple(shape)}, dtype {dtype}"
            raise ValueError(f"{name} must be an array [N, columns] of real numbers, got {found}.")
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            f"X and Y must have the same number of rows, got {X.shape[0]} and {Y.shape[0]}."
        )
    dtype = default_float()

    def chunk(values: Any, name: str, start: int) -> AnyNDArray:
        given = np.asarray(values[start : start + size])
        converted: AnyNDArray = given.astype(dtype, copy=False)
        validation.check_integers(given, converted, f"{name} from row {start}")
        return converted

    def rows(start: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        return chunk(X, "X", int(start)), chunk(Y, "Y", int(start))

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
    Return batches of a CSV file whose first line names the columns, by pyarrow:
    ``pip install gpflow_pep[files]``.

    An empty field is read as NaN, which models reject; empty lines are skipped.

    :param inputs: names of the columns of X.
    :param outputs: names of the columns of Y.
    :raises ValueError: if a column is missing, or a line cannot be read as numbers, naming the
        line: in the first megabytes at once, later when it is reached.
    :raises ImportError: without pyarrow.
    """
    import pyarrow.compute  # an extra
    import pyarrow.csv
    import pyarrow.dataset

    path = _checked_file(path)
    dtype = default_float()
    is_character = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if not is_character or delimiter.isalnum() or delimiter in '"\r\n.+-\0':
        raise ValueError(
            "delimiter must be one ASCII character, not a letter, digit, quote, sign, point or "
            f"line break, got {delimiter!r}."
        )
    format = pyarrow.dataset.CsvFileFormat(
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(null_values=[""]),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK
        ),  # one thread counts the lines
    )
    are_integers_checked = False

    def scan(names: Sequence[str], kind: object) -> Iterator[Any]:
        schema = pyarrow.schema([(name, kind) for name in names])
        table = pyarrow.dataset.dataset(path, format=format, schema=schema)
        yield from table.to_batches(batch_size=batch_size, use_threads=False)

    def check_as_text(names: Sequence[str]) -> None:
        """
        Check the integers of a file by its text, since numbers do not show which of them were
        integers.
        """
        for batch in scan(names, pyarrow.string()):
            for name, column in zip(names, batch.columns, strict=True):
                is_integer = pyarrow.compute.match_substring_regex(column, _INTEGER)
                texts = column.filter(is_integer).to_pylist()
                integers = np.array([int(text) for text in texts], dtype=object)
                converted: AnyNDArray = integers.astype(np.float64).astype(dtype)
                validation.check_integers(integers, converted, f"{path}: column {name!r}")

    def read(names: Sequence[str]) -> Iterator[_Batch]:
        nonlocal are_integers_checked
        for batch in scan(names, pyarrow.float64()):
            numbers = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            converted = [column.astype(dtype, copy=False) for column in numbers]
            if not are_integers_checked and any(map(validation.may_round, converted)):
                check_as_text(names)
                are_integers_checked = True
            yield dict(zip(names, numbers, strict=True))

    with _named_errors(path):
        available = pyarrow.dataset.dataset(path, format=format).schema.names
    return _columns_of(path, read, available, inputs, outputs, batch_size)


def parquet_batches(
    path: _Path, *, inputs: Sequence[str], outputs: Sequence[str], batch_size: int = _ROWS
) -> tf.data.Dataset:
    """
    Return batches of a Parquet file, by pyarrow: ``pip install gpflow_pep[files]``. Nulls are read
    as NaN.

    :param inputs: see :func:`csv_batches`; likewise `outputs`.
    :raises ValueError: if a column is missing, or does not hold numbers, or holds integers that
        floating point numbers would round.
    :raises ImportError: without pyarrow.
    """
    import pyarrow
    import pyarrow.parquet

    path = _checked_file(path)
    dtype = default_float()

    def opened() -> Any:
        return pyarrow.parquet.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)

    def read(names: Sequence[str]) -> Iterator[_Batch]:
        with opened() as file:
            for batch in file.iter_batches(batch_size, columns=list(names), use_threads=False):
                yield {
                    name: _numbers(batch.column(name), f"{path}: column {name!r}", dtype)
                    for name in names
                }

    with _named_errors(path), opened() as file:
        available = file.schema_arrow.names
    return _columns_of(path, read, available, inputs, outputs, batch_size)


def _numbers(column: Any, name: str, dtype: object) -> AnyNDArray:
    """Convert a column of a Parquet file to `dtype`; nulls become NaN."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    is_integer = types.is_integer(kind) or (types.is_decimal(kind) and kind.scale <= 0)
    others = (types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    if not (is_integer or any(is_accepted(kind) for is_accepted in others)):
        raise ValueError(f"{name} must hold numbers, got {kind}.")
    numbers = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = numbers.astype(dtype, copy=False)
    if is_integer and validation.may_round(numbers):
        # Decimals become integers, too. Nulls are NaN in `numbers`, which the check leaves out.
        integers = list(map(int, column.fill_null(0).to_pylist()))
        validation.check_integers(np.array(integers, dtype=object), numbers, name)
    return numbers


def _checked_file(path: _Path) -> str:
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise ValueError(f"path must be a file, which can be read again in each pass, got {path}.")
    return path


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Name the file in errors of pyarrow."""
    import pyarrow

    refused = f"{path} cannot be read as columns of numbers:"
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{refused} {_ENCODING}.") from error
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        reason = str(error).rpartition("Invalid: ")[2].partition("\n")[0]  # the innermost error
        is_in_first_line = "Empty CSV file or block" in reason and os.path.getsize(path) > _BLOCK
        if is_in_first_line or "straddl" in reason:
            reason = f"a line is longer than {_BLOCK // 2**20} MiB"
        elif "\0" in reason:
            reason = _ENCODING
        raise ValueError(f"{refused} {reason}") from error


def _columns_of(
    path: str,
    read: Callable[[Sequence[str]], Iterator[_Batch]],
    available: Sequence[str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    batch_size: int,
) -> tf.data.Dataset:
    """Return batches of columns of a file. Each pass calls `read` again."""
    size = validation.positive_integer(batch_size, "batch_size")
    dtype = default_float()
    for argument, given in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(given, str) or not given:
            raise ValueError(f"{argument} must be a list of names of columns, got {given!r}.")
        missing = [name for name in given if list(available).count(name) != 1]
        if missing:
            raise ValueError(
                f"{argument} must be columns of {path}, {list(available)}, each once, got "
                f"{missing}."
            )
    names = [*inputs, *outputs]
    if len(set(names)) < len(names):
        raise ValueError(f"inputs and outputs must name each column once, got {names}.")

    def chosen(columns: _Batch, part: Sequence[str]) -> AnyNDArray:
        return np.stack([columns[name] for name in part], axis=-1).astype(dtype)  # [n, D] or [n, P]

    def batches() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        with _named_errors(path):
            for columns in read(names):
                yield chosen(columns, inputs), chosen(columns, outputs)

    next(batches(), None)  # reads the first block
    signature = tuple(tf.TensorSpec([None, len(columns)], dtype) for columns in (inputs, outputs))
    rows = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return rows.rebatch(size).prefetch(_READ_AHEAD)


class Statistics(NamedTuple):
    """Means and standard deviations of the columns of a dataset."""

    X_mean: AnyNDArray  # [D]
    X_std: AnyNDArray  # [D]
    Y_mean: AnyNDArray  # [P]
    Y_std: AnyNDArray  # [P]


def statistics(dataset: tf.data.Dataset) -> Statistics:
    """
    Compute means and standard deviations in one pass, by the update of Chan, Golub and LeVeque
    (1983).

    :param dataset: batches (X [n, D], Y [n, P]).
    :raises ValueError: if there are no rows, or a column is constant or not finite.
    """
    count = 0
    origin = None
    mean = np.zeros(())
    square = np.zeros(())
    D = 0
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("dataset must be finite, got one that repeats without end.")
    for X, Y in dataset.as_numpy_iterator():
        if len(X) != len(Y):
            raise ValueError(
                f"X and Y of a batch must have the same number of rows, got {len(X)} and {len(Y)}."
            )
        if not len(X):
            continue
        values = np.concatenate([X, Y], axis=1, dtype=float)  # [n, D + P]
        n = len(X)
        D = X.shape[1]
        # Avoids cancellation for values far from 0.
        if origin is None:
            origin = values[0]
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
    """
    Standardize batches by given statistics, such as the training data's; a ValueError if they have
    other columns.
    """
    for name, spec, mean in zip(("X", "Y"), dataset.element_spec, values[::2], strict=True):
        if not spec.shape.is_compatible_with([None, len(mean)]):
            raise ValueError(
                f"values must be of the columns of {name}, {spec.shape[-1]}, got {len(mean)} "
                "columns."
            )

    @tf.autograph.experimental.do_not_convert
    def scaled(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (tf.cast(part, default_float()) for part in (X, Y))
        return (X - values.X_mean) / values.X_std, (Y - values.Y_mean) / values.Y_std

    return dataset.map(scaled, num_parallel_calls=_READ_AHEAD)
