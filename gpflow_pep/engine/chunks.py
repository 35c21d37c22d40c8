"""How the rows are partitioned: into blocks that share a site, and blocks into chunks that are worked on together."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from typing_extensions import override

ROWS_PER_CHUNK = 1024
# Chunks that may be in work at the same time: a triangular solve keeps one core busy only.
CHUNKS_IN_FLIGHT = 3
_MOST_ROWS = 2**30  # of a chunk: row numbers have 32 bits


class Chunks(tf.Module):
    """
    A partition of N rows into blocks, visited some whole blocks at a time.

    Nothing that is computed from all chunks depends on the order of rows or blocks, or on how many rows a chunk has.
    """

    @abstractmethod
    def count(self, num_data: tf.Tensor) -> tf.Tensor:
        """Number of chunks, []."""

    @abstractmethod
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        """Number of blocks B, []."""

    @abstractmethod
    def take(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        """The rows of `values` [N, ...] in a chunk: [n, ...]."""

    @abstractmethod
    def take_blocks(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        """What belongs to a chunk's blocks: from one value per block [B] to [G], a single value [] to []."""

    def num_outputs(self, data: Sequence[tf.Tensor]) -> int:
        """P."""
        return int(data[1].shape[-1])

    def rows(self, data: Sequence[tf.Tensor], chunk: Any) -> tuple[tf.Tensor, ...]:
        """The rows of a chunk: from X [N, D] and Y [N, P] to [n, D] and [n, P]."""
        return tuple(self.take(values, chunk) for values in data)

    def sum(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], Any], zero: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        """Sum what `part` returns for each chunk, tensors of the shapes of `zero`."""
        return sum_over_chunks(self.count(tf.shape(data[0])[0]), part, tuple(zero))


class SingleRows(Chunks):
    """Every row is a block of its own (B = N); chunks are runs of consecutive rows."""

    def __init__(self, chunk_size: int | None = None):
        super().__init__()
        self.chunk_size = _rows_per_chunk(chunk_size)

    @override
    def count(self, num_data: tf.Tensor) -> tf.Tensor:
        return -(-num_data // self.chunk_size)

    @override
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        return num_data

    @override
    def take(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        return values[chunk * self.chunk_size : (chunk + 1) * self.chunk_size]

    @override
    def take_blocks(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        return values if values.shape.rank == 0 else self.take(values, chunk)


class AllRows(Chunks):
    """Every row is a block of its own, and all of them are one chunk, however many there are."""

    @override
    def count(self, num_data: tf.Tensor) -> tf.Tensor:
        return tf.constant(1)

    @override
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        return num_data

    @override
    def take(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        return values

    @override
    def take_blocks(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        return values


class SomeRows(SingleRows):
    """Some of the rows only, in a given order; arrays have all rows."""

    def __init__(self, rows: tf.Tensor, chunk_size: int | None = None):
        """
        :param rows: which rows, [n].
        """
        super().__init__(chunk_size)
        self._rows = rows

    @override
    def count(self, num_data: tf.Tensor) -> tf.Tensor:
        return super().count(tf.size(self._rows))

    @override
    def take(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, super().take(self._rows, chunk))


class Blocks(Chunks):
    """
    Blocks of any size, not necessarily of consecutive rows.

    Blocks of one size share chunks, so that a chunk is a dense array [G, b, ...] and nothing is padded.
    """

    def __init__(self, rows: AnyNDArray, sizes: AnyNDArray, chunk_size: int | None = None):
        """
        :param rows: a permutation of 0..N-1, block after block.
        :param sizes: how many of these rows each block has, [B].
        :param chunk_size: rows worked on together, at least; a block is never divided.
        """
        super().__init__()
        self._chunk_size = _rows_per_chunk(chunk_size)
        plan = self._plan(rows, sizes)
        self._rows, self._blocks, self._table, self.sizes = (
            tf.Variable(values, trainable=False, shape=[None, *values.shape[1:]], dtype=tf.int32) for values in plan
        )

    def _plan(self, rows: AnyNDArray, sizes: AnyNDArray) -> tuple[AnyNDArray, ...]:
        """Rows and blocks in the order they are visited; per chunk (first row, first block, G, b); block sizes."""
        blocks = np.argsort(sizes, kind="stable")  # [B]
        rank = np.argsort(blocks)
        rows = rows[np.argsort(np.repeat(rank, sizes), kind="stable")]  # [N]
        table, row, block = [], 0, 0
        for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
            per_chunk = max(1, self._chunk_size // size)
            for start in range(0, count, per_chunk):
                groups = min(per_chunk, count - start)
                table.append((row, block, groups, size))
                row, block = row + groups * size, block + groups
        return rows, blocks, np.asarray(table), sizes

    def replan(self, rows: AnyNDArray, sizes: AnyNDArray) -> None:
        """Take a new partition, possibly of another number of rows; compiled functions see it."""
        variables = (self._rows, self._blocks, self._table, self.sizes)
        for variable, values in zip(variables, self._plan(rows, sizes), strict=True):
            variable.assign(values)

    @property
    def num_rows(self) -> tf.Tensor:
        """N of the partition, []."""
        return tf.shape(self._rows)[0]

    @override
    def count(self, num_data: tf.Tensor) -> tf.Tensor:
        return tf.shape(self._table)[0]

    @override
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        return tf.shape(self.sizes)[0]

    @override
    def take(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        row, _, groups, size = tf.unstack(self._table[chunk])
        return tf.gather(values, self._rows[row : row + groups * size])

    @override
    def take_blocks(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        if values.shape.rank == 0:
            return values
        _, block, groups, _ = tf.unstack(self._table[chunk])
        return tf.gather(values, self._blocks[block : block + groups])

    def divide(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        """A chunk's rows [n, D] as blocks [G, b, D]."""
        _, _, groups, size = tf.unstack(self._table[chunk])
        return tf.reshape(values, [groups, size, values.shape[-1]])


def _rows_per_chunk(chunk_size: int | None) -> int:
    return ROWS_PER_CHUNK if chunk_size is None else min(chunk_size, _MOST_ROWS)


def sum_over_chunks(count: tf.Tensor, part: Callable[[tf.Tensor], Any], zero: Any) -> tuple[tf.Tensor, ...]:
    """Sum of part(0), ..., part(count - 1), each some tensors of the shapes of `zero`."""

    def step(chunk: tf.Tensor, *total: tf.Tensor) -> tuple[tf.Tensor, ...]:
        added = zip(total, part(chunk), strict=True)
        return chunk + 1, *(tf.ensure_shape(old + new, old.shape) for old, new in added)

    _, *total = tf.while_loop(
        lambda chunk, *_: chunk < count, step, (tf.constant(0), *zero), parallel_iterations=CHUNKS_IN_FLIGHT
    )
    return tuple(total)


def concatenate(
    count: tf.Tensor, part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], dtype: tf.DType, shapes: Sequence[Any]
) -> tuple[tf.Tensor, ...]:
    """The tensors of part(0), ..., part(count - 1), some rows each, one after the other; `shapes` are static."""
    arrays = tuple(tf.TensorArray(dtype, count, infer_shape=False) for _ in shapes)

    def step(chunk: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        return chunk + 1, *(array.write(chunk, value) for array, value in zip(arrays, part(chunk), strict=True))

    _, *arrays = tf.while_loop(
        lambda chunk, *_: chunk < count, step, (tf.constant(0), *arrays), parallel_iterations=CHUNKS_IN_FLIGHT
    )
    return tuple(tf.ensure_shape(array.concat(), shape) for array, shape in zip(arrays, shapes, strict=True))
