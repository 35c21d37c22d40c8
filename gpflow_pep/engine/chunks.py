"""How the rows are partitioned: into blocks that share a site, and blocks into chunks that are worked on together."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from typing_extensions import override

from ..graphs import in_xla, refuse_xla
from .devices import Devices, LocalChunk, Share, side_by_side
from .workers import local_variable

ROWS_PER_CHUNK = 1024
_GPU_BYTES = 2**28  # of V [M, n] in a chunk: a GPU waits for small operations in a loop to be started
# Chunks that may be in work at the same time: a triangular solve keeps one core busy only.
CHUNKS_IN_FLIGHT = 3
_MOST_ROWS = 2**30  # of a chunk: row numbers have 32 bits

_Result = TypeVar("_Result")


class Span(NamedTuple):
    """A chunk in a function that XLA compiles: it has a number of rows that is known before the function runs."""

    row: Any  # The first row, []
    block: Any  # The first block, []
    groups: Any  # G, the number of blocks, []
    size: Any  # b, the number of rows of each, []

    def take(self, values: tf.Tensor) -> tf.Tensor:
        """The rows of `values` [N, ...]: [G b, ...]."""
        return _slice(values, self.row, self.groups * self.size)

    def take_blocks(self, values: tf.Tensor) -> tf.Tensor:
        """What belongs to the blocks, of one value per block [B]: [G]."""
        return _slice(values, self.block, self.groups)


class Run(NamedTuple):
    """Chunks of the same shape, one after the other, in a function that XLA compiles."""

    first: Span
    count: Any  # How many

    def span(self, number: tf.Tensor) -> Span:
        """Return one of the chunks."""
        row, block, groups, size = self.first
        return Span(row + number * groups * size, block + number * groups, groups, size)

    def each(self, part: Callable[[Span], Any]) -> Callable[[tf.Tensor], Any]:
        """Return `part` as a function of the number of a chunk."""
        return lambda number: part(self.span(number))


def _slice(values: tf.Tensor, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """`count` of the rows of `values` [N, ...], which XLA takes in loops, where it does not take ``values[a:b]``."""
    begin = [first, *[0] * (values.shape.rank - 1)]
    return tf.slice(values, begin, tf.concat([[count], tf.shape(values)[1:]], 0))


Count: TypeAlias = tf.Tensor | list[Run]
"""How many chunks there are, []; in a function that XLA compiles, which ones: all of a loop must have one shape."""


class Chunks(tf.Module):
    """
    A partition of N rows into blocks, visited some whole blocks at a time: a chunk.

    Nothing that is computed from all chunks depends on the order of rows or blocks, or on how many rows a chunk has.
    """

    @abstractmethod
    def num_blocks(self, num_data: tf.Tensor) -> tf.Tensor:
        """Number of blocks B, []."""

    @abstractmethod
    def num_outputs(self, data: Sequence[tf.Tensor]) -> int:
        """P."""

    def spread(self, data: Sequence[tf.Tensor]) -> Any:
        """Return X [N, D] and Y [N, P] as `rows` reads them: each of several devices has those of its share."""
        return data

    @abstractmethod
    def rows(self, data: Any, chunk: Any) -> tuple[tf.Tensor, ...]:
        """The rows of a chunk, [n, D] and [n, P], from what `spread` returns."""

    @abstractmethod
    def take(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        """The rows of `values` [N, ...] in a chunk: [n, ...]."""

    @abstractmethod
    def take_blocks(self, values: tf.Tensor, chunk: Any) -> tf.Tensor:
        """What belongs to a chunk's blocks: from one value per block [B] to [G], a single value [] to []."""

    @abstractmethod
    def in_order_of_data(self, values: tf.Tensor) -> tf.Tensor:
        """Return one value for each row [N], given chunk after chunk, in the order of the data."""

    @abstractmethod
    def sum(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], Any], zero: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        """Sum what `part` returns for each chunk, tensors of the shapes of `zero`."""

    @abstractmethod
    def concatenate(
        self,
        data: Sequence[tf.Tensor],
        part: Callable[[Any], tuple[tf.Tensor, ...]],
        dtype: tf.DType,
        shapes: Sequence[Any],
    ) -> tuple[tf.Tensor, ...]:
        """Concatenate what `part` returns for each chunk, tensors of so many rows; `shapes` are static."""


class NumberedChunks(Chunks):
    """Chunks 0, 1, ... of rows in memory."""

    @abstractmethod
    def count(self, num_data: tf.Tensor) -> Count:
        """Number of chunks, []."""

    @override
    def num_outputs(self, data: Sequence[tf.Tensor]) -> int:
        return int(data[1].shape[-1])

    @override
    def rows(self, data: Any, chunk: Any) -> tuple[tf.Tensor, ...]:
        return tuple(self.take(values, chunk) for values in data)

    @override
    def in_order_of_data(self, values: tf.Tensor) -> tf.Tensor:
        return values

    @override
    def sum(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], Any], zero: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        return sum_over_chunks(self.count(tf.shape(data[0])[0]), part, tuple(zero))

    @override
    def concatenate(
        self,
        data: Sequence[tf.Tensor],
        part: Callable[[Any], tuple[tf.Tensor, ...]],
        dtype: tf.DType,
        shapes: Sequence[Any],
    ) -> tuple[tf.Tensor, ...]:
        return concatenate(self.count(tf.shape(data[0])[0]), part, dtype, shapes)

    def keep(
        self, data: Sequence[tf.Tensor], part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], dtype: tf.DType, count: int
    ) -> Callable[[tf.Tensor], tuple[tf.Tensor, ...]]:
        """Compute what `part` returns for each chunk, `count` tensors [..., n], and return a function that reads it."""
        return _keep(self.count(tf.shape(data[0])[0]), part, dtype, count)


class Shard(NamedTuple):
    """The rows of a device's share, in the order in which they are visited."""

    begin: tf.Tensor  # How many rows are visited before them, []
    values: tuple[tf.Tensor, ...]  # [n, D] and [n, P]


class SharedChunks(NumberedChunks):
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
        kept = self._on_each(self._devices, data, lambda share: _keep(share.count, share.each(part), dtype, count))
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


class SingleRows(SharedChunks):
    """Every row is a block of its own (B = N); chunks are runs of consecutive rows."""

    def __init__(self, chunk_size: int | None = None, devices: Devices | None = None):
        super().__init__(devices)
        self.chunk_size = _rows_per_chunk(chunk_size)

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


class AllRows(NumberedChunks):
    """Every row is a block of its own, and all of them are one chunk, however many there are: nothing loops."""

    @override
    def count(self, num_data: tf.Tensor) -> Count:
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

    @override
    def sum(
        self, data: Sequence[tf.Tensor], part: Callable[[Any], Any], zero: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        return tuple(part(tf.constant(0)))

    @override
    def concatenate(
        self,
        data: Sequence[tf.Tensor],
        part: Callable[[Any], tuple[tf.Tensor, ...]],
        dtype: tf.DType,
        shapes: Sequence[Any],
    ) -> tuple[tf.Tensor, ...]:
        return part(tf.constant(0))

    @override
    def keep(
        self, data: Sequence[tf.Tensor], part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], dtype: tf.DType, count: int
    ) -> Callable[[tf.Tensor], tuple[tf.Tensor, ...]]:
        whole = part(tf.constant(0))
        return lambda chunk: whole


class Blocks(SharedChunks):
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
        self._chunk_size = _rows_per_chunk(chunk_size)
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
        """Whether the partition is the one that it was when a function that XLA compiles was traced, []."""
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
    """Of a chunk among all, []."""
    return chunk.number if isinstance(chunk, LocalChunk) else chunk


def default_chunk_size(
    device: str,
    num_inducing: int,
    bytes_per_number: int,
    *,
    num_rows: int = _MOST_ROWS,
    on_cpu: int = ROWS_PER_CHUNK,
) -> int:
    """
    Return how many rows are worked on together.

    :param device: where the data are, as a variable's ``device`` says it.
    :param num_rows: those of each of several devices, none of which is to be left without.
    :param on_cpu: how many where the device is no GPU.
    """
    is_gpu = tf.DeviceSpec.from_string(device).device_type == "GPU"
    return max(ROWS_PER_CHUNK, min(num_rows, _GPU_BYTES // (num_inducing * bytes_per_number) if is_gpu else on_cpu))


def _rows_per_chunk(chunk_size: int | None) -> int:
    return ROWS_PER_CHUNK if chunk_size is None else min(chunk_size, _MOST_ROWS)


def sum_over_chunks(count: Count, part: Callable[[Any], Any], zero: Any) -> tuple[tf.Tensor, ...]:
    """Sum of what `part` returns for each chunk, each some tensors of the shapes of `zero`."""
    if isinstance(count, list):
        total = tuple(zero)
        for run in count:
            total = _sum(run.count, run.each(part), total)
        return total
    return _sum(count, part, zero)


def _sum(count: Any, part: Callable[[tf.Tensor], Any], start: Any) -> tuple[tf.Tensor, ...]:
    """`start` and part(0), ..., part(count - 1), added up."""

    def step(chunk: tf.Tensor, *total: tf.Tensor) -> tuple[tf.Tensor, ...]:
        added = zip(total, part(chunk), strict=True)
        return chunk + 1, *(tf.ensure_shape(old + new, old.shape) for old, new in added)

    if isinstance(count, int) and count == 1:
        return step(tf.constant(0), *start)[1:]
    _, *total = tf.while_loop(
        lambda chunk, *_: chunk < count, step, (tf.constant(0), *start), parallel_iterations=CHUNKS_IN_FLIGHT
    )
    return tuple(total)


def _keep(
    chunks: Count, part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], dtype: tf.DType, count: int
) -> Callable[[tf.Tensor], tuple[tf.Tensor, ...]]:
    shapes: list[list[int | None]] = []
    arrays = tuple(tf.TensorArray(dtype, chunks, clear_after_read=False, infer_shape=False) for _ in range(count))

    def with_shapes(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        values = part(chunk)
        shapes[:] = [[*value.shape[:-1], None] for value in values]
        return values

    arrays = _written(chunks, with_shapes, arrays)
    return lambda chunk: tuple(
        tf.ensure_shape(array.read(chunk), shape) for array, shape in zip(arrays, shapes, strict=True)
    )


def concatenate(
    count: Count, part: Callable[[Any], tuple[tf.Tensor, ...]], dtype: tf.DType, shapes: Sequence[Any]
) -> tuple[tf.Tensor, ...]:
    """The tensors that `part` returns for each chunk, some rows each, one after the other; `shapes` are static."""
    if isinstance(count, list):
        runs = [_concatenate_run(run, part, dtype, shapes) for run in count]
        return tuple(tf.concat(values, axis=0) for values in zip(*runs, strict=True))
    if tf.get_static_value(count) == 0:  # which TensorFlow does not concatenate when it runs eagerly
        return tuple(tf.zeros([0, *shape[1:]], dtype) for shape in shapes)
    arrays = tuple(tf.TensorArray(dtype, count, infer_shape=False, element_shape=_of_chunk(shape)) for shape in shapes)
    arrays = _written(count, part, arrays)
    return tuple(tf.ensure_shape(array.concat(), shape) for array, shape in zip(arrays, shapes, strict=True))


def _of_chunk(shape: Any) -> tf.TensorShape:
    """The static shape of some rows, given that of all: TensorFlow needs it where there are no chunks."""
    shape = tf.TensorShape(shape)
    return shape if shape.rank is None else tf.TensorShape([None]).concatenate(shape[1:])


def _written(count: Any, part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], arrays: Any) -> Any:
    """The arrays with part(0), ..., part(count - 1) in them."""

    def step(chunk: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        return chunk + 1, *(array.write(chunk, value) for array, value in zip(arrays, part(chunk), strict=True))

    _, *arrays = tf.while_loop(
        lambda chunk, *_: chunk < count, step, (tf.constant(0), *arrays), parallel_iterations=CHUNKS_IN_FLIGHT
    )
    return arrays


def _concatenate_run(
    run: Run, part: Callable[[Any], tuple[tf.Tensor, ...]], dtype: tf.DType, shapes: Sequence[Any]
) -> list[tf.Tensor]:
    if isinstance(run.count, int) and run.count == 1:
        return list(part(run.first))
    arrays = tuple(tf.TensorArray(dtype, run.count, element_shape=shape) for shape in shapes)
    stacks = [array.stack() for array in _written(run.count, run.each(part), arrays)]
    return [tf.reshape(stack, tf.concat([[-1], tf.shape(stack)[2:]], 0)) for stack in stacks]  # [count, n, ...]
