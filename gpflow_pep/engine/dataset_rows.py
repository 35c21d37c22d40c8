"""Rows that are read from a dataset in batches, each time anew, so that memory does not limit their number."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from typing_extensions import override

from ..graphs import refuse_xla
from .chunks import CHUNKS_IN_FLIGHT, Chunks

_WEIGHTS_SEED = 20260101  # of the checksum
_MIXING_FACTORS = (-0xAE502812AA7333, -0x3B314601E57A13AD)


class DatasetChunk(NamedTuple):
    """Some consecutive rows of a dataset."""

    first: tf.Tensor  # number of the first row, []
    X: tf.Tensor  # [n, D]
    Y: tf.Tensor  # [n, P]


class DatasetRows(Chunks):
    """
    Every row is a block of its own; chunks are the batches (X [n, D], Y [n, P]) of a finite dataset.

    The dataset is read once here, to count and check its rows, and again in every pass over the chunks. A checksum of
    all values, in their order, shows whether a pass has read what the first one has.
    """

    def __init__(self, dataset: tf.data.Dataset):
        """
        :param dataset: batches (X [n, D], Y [n, P]), in the same order in every pass.
        :raises ValueError: if the dataset is empty or infinite, or its elements are not pairs of matrices with a known
            number of columns.
        :raises tf.errors.InvalidArgumentError: if a value is not finite, naming its row.
        """
        super().__init__()
        self._dataset = dataset
        self.columns = _columns(dataset)
        self._dtype = default_float()
        rows, checksum = _read(self._checked())
        if int(rows) == 0:
            raise ValueError("data must have at least one row, got a dataset without rows.")
        self.num_data = tf.constant(rows)
        self._checksum = tf.constant(checksum)

    @property
    def dataset(self) -> tf.data.Dataset:
        """The dataset given to the constructor."""
        return self._dataset

    @property
    def identity(self) -> tuple[int, int]:
        """Number of rows, and the checksum of their values."""
        return int(self.num_data), int(self._checksum)

    def __deepcopy__(self, memo: dict[int, Any]) -> "DatasetRows":
        """Return the object itself: it is immutable."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("data: a model with a tf.data.Dataset cannot be pickled. Save its parameters instead.")

    @override
    def count(self, num_data: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError("batches are not numbered")

    @override
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        return self.num_data

    @override
    def num_outputs(self, data: Sequence[tf.Tensor]) -> int:
        return self.columns[1]

    @override
    def rows(self, data: Any, chunk: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return chunk.X, chunk.Y

    @override
    def take(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        return values[chunk.first : chunk.first + tf.shape(chunk.X, chunk.first.dtype)[0]]

    @override
    def take_blocks(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        return values if values.shape.rank == 0 else self.take(values, chunk)

    @override
    def sum(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], Any], zero: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        refuse_xla("a model of a tf.data.Dataset, which is read while the function runs")
        shapes = [value.shape for value in zero]
        batches = self._checked().map(
            tf.autograph.experimental.do_not_convert(lambda batch, checksum: (checksum, *part(batch))),
            num_parallel_calls=CHUNKS_IN_FLIGHT,
        )

        @tf.autograph.experimental.do_not_convert
        def add(total: tuple[tf.Tensor, ...], values: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
            return tuple(old + new for old, new in zip(total, values, strict=True))

        start = (tf.zeros([2], tf.int64), *zero)
        seen, *total = batches.with_options(_options()).reduce(start, add)
        same = tf.reduce_all(tf.equal(seen, tf.stack([self.num_data, self._checksum])))
        message = (
            "data: the dataset must give the same rows in the same order in every pass: it must not shuffle, and its "
            "files must not change. Number of rows in the first pass and in this one (if they are equal, values or "
            "their order differ):"
        )
        with tf.control_dependencies([tf.debugging.Assert(same, [message, self.num_data, seen[0]])]):
            return tuple(tf.ensure_shape(tf.identity(value), shape) for value, shape in zip(total, shapes, strict=True))

    def _checked(self) -> tf.data.Dataset:
        """Batches of finite values, each with its number of rows and its checksum, [2]."""
        weights = np.random.default_rng(_WEIGHTS_SEED).integers(2**62, size=sum(self.columns))

        @tf.autograph.experimental.do_not_convert
        def numbered(first: tf.Tensor, pair: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, DatasetChunk]:
            X, Y = (tf.cast(values, self._dtype) for values in pair)
            return first + tf.shape(X, tf.int64)[0], DatasetChunk(first, X, Y)

        @tf.autograph.experimental.do_not_convert
        def checked(batch: DatasetChunk) -> tuple[DatasetChunk, tf.Tensor]:
            first, X, Y = batch
            rows, of_Y = tf.shape(X, tf.int64)[0], tf.shape(Y, tf.int64)[0]
            message = "data: X and Y of a batch must have the same number of rows, got"
            with tf.control_dependencies([tf.debugging.Assert(tf.equal(rows, of_Y), [message, rows, of_Y])]):
                values = tf.concat([X, Y], axis=-1)  # [n, D + P]
            numbers = first + tf.range(rows)
            is_bad = tf.reduce_any(~tf.math.is_finite(values), axis=-1)
            row = tf.reduce_min(tf.where(is_bad, numbers, tf.int64.max))
            message = "data: every value must be finite, but one is not, in row"
            with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(is_bad), [message, row])]):
                bits = tf.bitcast(tf.cast(values, tf.float64), tf.int64)
            by_row = _mixed(tf.reduce_sum(_mixed(bits) * (2 * weights + 1), axis=-1))
            checksum = tf.reduce_sum(_mixed(by_row + _mixed(numbers)))  # modulo 2^64
            return batch, tf.stack([rows, checksum])

        return self._dataset.scan(tf.constant(0, tf.int64), numbered).map(checked, num_parallel_calls=CHUNKS_IN_FLIGHT)


def _mixed(values: tf.Tensor) -> tf.Tensor:
    """Mix the bits of int64 numbers, one to one and not linearly (the finalizer of MurmurHash3)."""
    unsigned = tf.bitcast(values, tf.uint64)
    for factor in _MIXING_FACTORS:
        unsigned = tf.bitwise.bitwise_xor(unsigned, tf.bitwise.right_shift(unsigned, tf.constant(33, tf.uint64)))
        unsigned = tf.bitcast(tf.bitcast(unsigned, tf.int64) * factor, tf.uint64)
    return tf.bitcast(
        tf.bitwise.bitwise_xor(unsigned, tf.bitwise.right_shift(unsigned, tf.constant(33, tf.uint64))), tf.int64
    )


def _options() -> tf.data.Options:
    """Return options that switch off the rewriting of the dataset, which takes longer than a pass over few rows."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _columns(dataset: tf.data.Dataset) -> tuple[int, int]:
    """D and P."""
    spec = dataset.element_spec
    wanted = "data must be a pair (X, Y) or a tf.data.Dataset of batches (X [n, D], Y [n, P]) of real numbers"
    pair = isinstance(spec, tuple) and len(spec) == 2 and all(isinstance(part, tf.TensorSpec) for part in spec)
    if not pair or any(part.shape.rank != 2 or not (part.dtype.is_floating or part.dtype.is_integer) for part in spec):
        raise ValueError(f"{wanted}, got elements {spec}.")
    if any(part.shape[1] == 0 for part in spec):
        raise ValueError(f"{wanted}, of at least one column each, got elements {spec}.")
    if any(part.shape[1] is None for part in spec):
        raise ValueError(
            f"data must be a dataset whose numbers of columns are known (give output_signature), got elements {spec}."
        )
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("data must be a finite dataset, got one that repeats without end.")
    return int(spec[0].shape[1]), int(spec[1].shape[1])


def _read(checked: tf.data.Dataset) -> tuple[np.int64, np.int64]:
    """Number of rows and checksum of a dataset."""

    @tf.autograph.experimental.do_not_convert
    def add(total: tf.Tensor, values: tuple[DatasetChunk, tf.Tensor]) -> tf.Tensor:
        return total + values[1]

    rows, checksum = checked.reduce(tf.zeros([2], tf.int64), add).numpy()
    return rows, checksum
