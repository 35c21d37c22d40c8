"""Partitions of rows in memory whose chunks may be divided among several devices: single rows, and blocks."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from typing_extensions import override

from ..runtime.devices import Devices, LocalChunk, Share, side_by_side
from ..runtime.distribution import local_variable
from ..runtime.tracing import in_xla, refuse_xla
from .chunks import Count, NumberedChunks, Run, Span, concatenate, keep, rows_per_chunk, sum_over_chunks

_Result = TypeVar("_Result")


class Shard(NamedTuple):
    """The rows of a device's share, in the order in which they are visited."""

    begin: tf.Tensor  # How many rows are visited before them, []
    values: tuple[tf.Tensor, ...]  # [n, D] and [n, P]


class DividedChunks(NumberedChunks):
    """Chunks that may be divided among several devices."""

    def __init__(self, devices: Devices | None):
        """
        :param devices: None: TensorFlow chooses one for all chunks.
        """
        super().__init__()
        self._devices = devices

    @abstractmethod
    def _bounds(self, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """How many rows are visited before a chunk and up to its end, [] each; the latter may exceed N."""

    @abstractmethod
    def _visited(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """Rows `begin` to `end` of `values` [N, ...], in the order in which they are visited: [n, ...]."""

    @override
    def take(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        return self._visited(values, *self._bounds(_number(chunk)))

    @override
    def spread(self, data: Sequence[tf.Tensor]) -> Any:
        if self._devices is None:
            return data
        shards = []
        for share in self._shares(self._devices, data):
            begin, end = self._num_before(share.first), self._num_before(share.first + share.count)
            shards.append(Shard(begin, tuple(self._visited(values, begin, end) for values in data)))
        return shards

    def _num_before(self, number: tf.Tensor) -> tf.Tensor:
        """How many rows are visited before a chunk; before the one after the last, all."""
        _, end = self._bounds(tf.maximum(number - 1, 0))
        return tf.where(number > 0, end, tf.zeros_like(end))

    @override
    def rows(self, data: Any, chunk: Any) -> tuple[tf.Tensor, ...]:
        if not isinstance(chunk, LocalChunk):
            return super().rows(data, chunk)
        before, shard = data[chunk.device]
        begin, end = self._bounds(chunk.number)
        return tuple(values[begin - before : end - before] for values in shard)

    @override
    def sum(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], Any], zero: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        if self._devices is None:
            return super().sum(data, part, zero)
        sums = self._on_each(
            self._devices, data, lambda share: sum_over_chunks(share.count, share.each(part), tuple(zero))
        )
        return tuple(map(tf.add_n, zip(*sums, strict=True)))

    @override
    def concatenate(
        self,
        data: Sequence[tf.Tensor],
        part: Callable[[Any], tuple[tf.Tensor, ...]],
        dtype: tf.DType,
        shapes: Sequence[Any],
    ) -> tuple[tf.Tensor, ...]:
        if self._devices is None:
            return super().concatenate(data, part, dtype, shapes)
        parts = self._on_each(
            self._devices, data, lambda share: concatenate(share.count, share.each(part), dtype, shapes)
        )
        return tuple(tf.concat(values, axis=0) for values in zip(*parts, strict=True))

    @override
    def keep(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], tuple[tf.Tensor, ...]], dtype: tf.DType, count: int
    ) -> Callable[[Any], tuple[tf.Tensor, ...]]:
        if self._devices is None:
            return super().keep(data, part, dtype, count)
        kept = self._on_each(self._devices, data, lambda share: keep(share.count, share.each(part), dtype, count))
        return lambda chunk: kept[chunk.device](chunk.local_number)

    def _shares(self, devices: Devices, data: Sequence[tf.Tensor]) -> list[Share]:
        refuse_xla("a model whose rows are divided among several devices")
        return devices.shares(self.count(tf.shape(data[0])[0]))

    def _on_each(
        self, devices: Devices, data: Sequence[tf.Tensor], function: Callable[[Share], _Result]
    ) -> list[_Result]:
        """What a function of its share computes on each device."""
        with side_by_side():
            return [share.compute(partial(function, share)) for share in self._shares(devices, data)]


class SingleRows(DividedChunks):
    """Every row is a block of its own (B = N); chunks are runs of consecutive rows."""

    def __init__(self, chunk_size: int | None = None, devices: Devices | None = None):
        super().__init__(devices)
        self.chunk_size = rows_per_chunk(chunk_size)

    @override
    def count(self, num_data: tf.Tensor) -> Count:
        if not in_xla():
            return -(-num_data // self.chunk_size)
        known = tf.get_static_value(num_data)
        if known is not None and known <= self.chunk_size:
            return [Run(Span(0, 0, int(known), 1), 1)]
        size = tf.maximum(1, tf.minimum(self.chunk_size, num_data))
        whole, rest = num_data // size, num_data % size
        return [Run(Span(0, 0, size, 1), whole), Run(Span(num_data - rest, num_data - rest, rest, 1), 1)]

    @override
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        return num_data

    @override
    def take(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        return chunk.take(values) if isinstance(chunk, Span) else super().take(values, chunk)

    @override
    def take_blocks(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        return values if values.shape.rank == 0 else self.take(values, chunk)

    @override
    def _bounds(self, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return number * self.chunk_size, (number + 1) * self.chunk_size

    @override
    def _visited(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        return values[begin:end]


class Blocks(DividedChunks):
    """
    Blocks of any size, not necessarily of consecutive rows.

    Blocks of one size share chunks, so that a chunk is a dense array [G, b, ...] and nothing is padded.
    """

    def __init__(
        self, rows: AnyNDArray, sizes: AnyNDArray, chunk_size: int | None = None, devices: Devices | None = None
    ):
        """
        :param rows: a permutation of 0..N-1, block after block.
        :param sizes: how many of these rows each block has, [B].
        :param chunk_size: rows worked on together, at least; a block is never divided.
        """
        super().__init__(devices)
        self._chunk_size = rows_per_chunk(chunk_size)
        plan = self._plan(rows, sizes)
        self._rows, self._blocks, self._table, self.sizes = (
            local_variable(values, trainable=False, shape=[None, *values.shape[1:]], dtype=tf.int32) for values in plan
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
    def count(self, num_data: tf.Tensor) -> Count:
        return self._runs() if in_xla() else tf.shape(self._table)[0]

    def _runs(self) -> list[Run]:
        """The chunks, of a partition that the function which XLA compiles cannot change."""
        table = self._table_of_now()
        starts = np.flatnonzero(np.any(np.diff(table[:, 2:], axis=0, prepend=0), axis=1))
        counts = np.diff(starts, append=len(table))
        return [Run(Span(*map(int, table[start])), int(n)) for start, n in zip(starts, counts, strict=True)]

    def _table_of_now(self) -> AnyNDArray:
        with tf.init_scope():
            table: AnyNDArray = self._table.numpy()
        return table

    def is_as_traced(self) -> tf.Tensor:
        """Whether the partition is unchanged since a function that XLA compiles was traced, []."""
        return tf.reduce_all(tf.equal(self._table, self._table_of_now()))

    @override
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        return tf.shape(self.sizes)[0]

    @override
    def take(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        if isinstance(chunk, Span):
            return tf.gather(values, chunk.take(tf.convert_to_tensor(self._rows)))
        return super().take(values, chunk)

    @override
    def take_blocks(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        if values.shape.rank == 0:
            return values
        if isinstance(chunk, Span):
            return tf.gather(values, chunk.take_blocks(tf.convert_to_tensor(self._blocks)))
        _, block, groups, _ = tf.unstack(self._table[_number(chunk)])
        return tf.gather(values, self._blocks[block : block + groups])

    @override
    def in_order_of_data(self, values: tf.Tensor) -> tf.Tensor:
        return tf.scatter_nd(self._rows[:, None], values, tf.shape(values))

    def divide(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        """A chunk's rows [n, D] as blocks [G, b, D]."""
        _, _, groups, size = chunk if isinstance(chunk, Span) else tf.unstack(self._table[_number(chunk)])
        return tf.reshape(values, [groups, size, values.shape[-1]])

    @override
    def _bounds(self, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row, _, groups, size = tf.unstack(self._table[number])
        return row, row + groups * size

    @override
    def _visited(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, self._rows[begin:end])


def _number(chunk: Any) -> tf.Tensor:
    """The chunk's number among all chunks, []."""
    return chunk.number if isinstance(chunk, LocalChunk) else chunk
