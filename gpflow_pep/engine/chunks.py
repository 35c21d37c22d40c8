"""
Partition the rows into blocks, which share a site, and the blocks into chunks, which are computed
together.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from typing_extensions import override

from ..runtime import Tensors, assign_all, in_xla, local_variable, refuse_xla, side_by_side

CHUNKS_IN_FLIGHT = 3  # computed in parallel: a triangular solve uses one core only
ROWS_PER_CHUNK = 1024  # wide enough for products at full speed
MOST_ROWS = 2**30  # of a chunk: row numbers have 32 bits

Part = Callable[["Chunk"], Sequence[tf.Tensor]]
State: TypeAlias = tuple[tf.Tensor | tf.TensorArray, ...]  # of a loop over chunks
ChunkStep = Callable[[Any, "Chunk", Any], State]


class Chunk(NamedTuple):
    """The rows of one or more whole blocks."""

    data: Tensors  # The chunk's rows of the data, [n, D] and [n, P]
    take: Callable[[tf.Tensor], tf.Tensor]  # Select the chunk's rows [n, ...] of values [N, ...]
    # Select its blocks [G]; None: every row is a block.
    blocks: Callable[[tf.Tensor], tf.Tensor] | None = None
    # Number and size (G, b) of the blocks, if rows are not blocks.
    shape: tuple[tf.Tensor, tf.Tensor] | None = None
    place: tuple[int, Any] = (0, 0)  # The loop that visits the chunk, and the chunk's number in it
    # Precision of computations with the rows; None: the precision of the data.
    dtype: tf.DType | None = None

    def take_blocks(self, values: object) -> Any:
        """
        Return tensors of the chunk's blocks: [G] from values per block [B]; a single value [] is
        unchanged.
        """
        take = self.blocks or self.take
        return tf.nest.map_structure(
            lambda each: each if each.shape.rank == 0 else take(each), values
        )


class ChunkLoop(NamedTuple):
    """Chunks that are visited one after the other on one device."""

    count: Any  # Number of chunks: the Python integer 1, a tensor, or None if unknown until the end
    chunk: Callable[[Any], Chunk]  # From its number to the chunk
    device: str | None = None  # None: TensorFlow chooses it

    def run(self, step: ChunkStep, start: tuple[Any, ...]) -> tuple[Any, ...]:
        """
        Compute step(number, chunk, total) for each chunk, with the last step's result as the total.
        """
        on_device = nullcontext if self.device is None else partial(tf.device, self.device)

        def body(number: Any, *total: Any) -> tuple[Any, ...]:
            with on_device():
                return number + 1, *step(number, self.chunk(number), total)

        if isinstance(self.count, int):
            return body(0, *start)[1:]
        with on_device():
            ended = tf.while_loop(
                lambda number, *_: number < self.count,
                body,
                (tf.constant(0), *start),
                parallel_iterations=CHUNKS_IN_FLIGHT,
            )
        return tuple(ended[1:])


class ChunkedData:
    """
    Data in chunks, which one or several loops visit, each with `count` and `run` of
    :class:`ChunkLoop`.
    """

    def __init__(self, loops: Sequence[Any], order: Callable[[tf.Tensor], tf.Tensor] = tf.identity):
        self._loops = loops
        self.in_order_of_data = order  # Reorders values [N] from the order of the chunks

    @property
    def only_chunk(self) -> Chunk | None:
        """The single chunk of all rows; None if there may be several."""
        first = self._loops[0]
        if len(self._loops) == 1 and isinstance(first.count, int):
            return first.chunk(0)
        return None

    def sum(self, part: Part, zero: Sequence[tf.Tensor]) -> Tensors:
        """Sum the results of `part`, tensors of the shapes of `zero`, over the chunks."""

        def add(_: Any, chunk: Chunk, total: Any) -> Tensors:
            return tuple(
                tf.ensure_shape(old + new, old.shape)
                for old, new in zip(total, part(chunk), strict=True)
            )

        only = self.only_chunk  # no assignment in the condition: AutoGraph would warn
        if only is not None:
            return tuple(part(only))
        totals = self._run(add, lambda _: tuple(zero))
        return totals[0] if len(totals) == 1 else tuple(map(tf.add_n, zip(*totals, strict=True)))

    def concatenate(self, part: Part, dtype: tf.DType, shapes: Sequence[Any]) -> Tensors:
        """
        Concatenate the results of `part`, tensors of n rows, over the chunks; static `shapes` with
        None for n.
        """
        only = self.only_chunk
        if only is not None:
            return tuple(part(only))
        written = self._written(part, dtype, shapes)
        # Without empty loops: eager concat fails for an empty TensorArray.
        pairs = zip(self._loops, written, strict=True)
        full = [arrays for loop, arrays in pairs if tf.get_static_value(loop.count) != 0]
        parts = [map(_joined, arrays, shapes) for arrays in full]
        return tuple(tf.concat(some, 0) for some in zip(*parts, strict=True))

    def keep(self, part: Part, dtype: tf.DType, count: int) -> Callable[[Chunk], Tensors]:
        """
        Store the results of `part` for each chunk, `count` tensors [..., n]; return a function that
        reads them.
        """
        only = self.only_chunk
        if only is not None:
            kept = tuple(part(only))
            return lambda _: kept
        if any(loop.count is None for loop in self._loops):
            raise TypeError("rows of a dataset are not kept in memory")
        shapes: list[list[int | None]] = []

        def with_shapes(chunk: Chunk) -> Sequence[tf.Tensor]:
            values = part(chunk)
            shapes[:] = [[*value.shape[:-1], None] for value in values]
            return values

        arrays = self._written(with_shapes, dtype, [None] * count)

        def read(chunk: Chunk) -> Tensors:
            loop, number = chunk.place
            return tuple(
                map(tf.ensure_shape, (array.read(number) for array in arrays[loop]), shapes)
            )

        return read

    def _written(
        self, part: Part, dtype: tf.DType, shapes: Sequence[object]
    ) -> list[tuple[tf.TensorArray, ...]]:
        """
        Write the results of `part`, of these static shapes, to arrays with one element per chunk.
        """

        def start(loop: Any) -> tuple[tf.TensorArray, ...]:
            return tuple(
                tf.TensorArray(
                    dtype,
                    size=0 if loop.count is None else loop.count,
                    dynamic_size=loop.count is None,
                    clear_after_read=False,
                    infer_shape=False,
                    element_shape=shape,
                )
                for shape in shapes
            )

        def write(number: object, chunk: Chunk, arrays: Any) -> tuple[tf.TensorArray, ...]:
            return tuple(
                array.write(number, value) for array, value in zip(arrays, part(chunk), strict=True)
            )

        return self._run(write, start)

    def _run(
        self, step: ChunkStep, start: Callable[[Any], tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        def placed(place: int) -> ChunkStep:
            return lambda number, chunk, total: step(
                number, chunk._replace(place=(place, number)), total
            )

        with side_by_side() if len(self._loops) > 1 else nullcontext():
            return [loop.run(placed(place), start(loop)) for place, loop in enumerate(self._loops)]


def _joined(array: tf.TensorArray, shape: Sequence[int | None]) -> tf.Tensor:
    """Concatenate the rows of a loop's chunks, which are of equal size under XLA."""
    if not in_xla():
        return tf.ensure_shape(array.concat(), shape)
    stack = array.stack()  # [chunks, n, ...]
    return tf.reshape(stack, tf.concat([[-1], tf.shape(stack)[2:]], 0))


class Chunks(tf.Module):
    """
    A partition of N rows into blocks, in chunks of whole blocks; results do not depend on order and
    chunk size.
    """

    @abstractmethod
    def split(self, data: Sequence[tf.Tensor]) -> ChunkedData:
        """Split X [N, D] and Y [N, P] into chunks, in one loop per device if there are several."""

    def place(self) -> str:
        """Return where reading has ended, in words for an error message; "" for rows in memory."""
        return ""


class OneChunk(Chunks):
    """Every row is a block; all rows are one chunk, without a loop."""

    @override
    def split(self, data: Sequence[tf.Tensor]) -> ChunkedData:
        chunk = Chunk(tuple(data), tf.convert_to_tensor)
        return ChunkedData([ChunkLoop(1, lambda _: chunk)])


class _Divided(Chunks):
    """Chunks of rows in memory that may be divided among several devices."""

    def __init__(self, devices: Sequence[str] | None):
        super().__init__()
        self._devices = devices

    @abstractmethod
    def _count(self, num_data: tf.Tensor) -> tf.Tensor:
        """Return the number of chunks, []."""

    @abstractmethod
    def _bounds(self, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        First row of a chunk and end of its rows, in the order of visits, [] each; the end may
        exceed N.
        """

    @abstractmethod
    def _visited(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """Rows `begin` to `end` of `values` [N, ...] in the order of visits, [n, ...]."""

    def _order(self, values: tf.Tensor) -> tf.Tensor:
        """Reorder values [N] from the order of visits to the order of the data."""
        return values

    @override
    def split(self, data: Sequence[tf.Tensor]) -> ChunkedData:
        count = self._count(tf.shape(data[0])[0])
        if self._devices is None:
            return ChunkedData(
                [ChunkLoop(count, lambda number: self._chunk(number, data))], self._order
            )
        refuse_xla("a model whose rows are divided among several devices")
        limits = [count * device // len(self._devices) for device in range(len(self._devices) + 1)]
        loops = [
            self._share(data, *share)
            for share in zip(self._devices, limits[:-1], limits[1:], strict=True)
        ]
        return ChunkedData(loops, self._order)

    def _chunk(self, number: tf.Tensor, data: Sequence[tf.Tensor]) -> Chunk:
        def take(values: tf.Tensor) -> tf.Tensor:
            return self._visited(values, *self._bounds(number))

        return Chunk(tuple(map(take, data)), take)

    def _share(
        self, data: Sequence[tf.Tensor], device: str, first: tf.Tensor, stop: tf.Tensor
    ) -> ChunkLoop:
        """
        Return the loop over chunks `first` to `stop` on a device, to which their rows are copied
        once.
        """
        before, end = (
            tf.where(number > 0, self._bounds(tf.maximum(number - 1, 0))[1], 0)
            for number in (first, stop)
        )
        shard = [self._visited(values, before, end) for values in data]

        def chunk(number: tf.Tensor) -> Chunk:
            begin, end = self._bounds(first + number)
            rows = tuple(values[begin - before : end - before] for values in shard)
            return self._chunk(first + number, ())._replace(data=rows)

        return ChunkLoop(stop - first, chunk, device)


class RowChunks(_Divided):
    """
    Every row is a block (B = N); chunks are `chunk_size` consecutive rows, which several devices
    may share.
    """

    def __init__(
        self,
        chunk_size: int | None = None,
        devices: Sequence[str] | None = None,
        *,
        eager_size: int | None = None,
    ):
        """:param eager_size: chunk size outside of compiled functions; None: the same."""
        super().__init__(devices)
        self.chunk_size = ROWS_PER_CHUNK if chunk_size is None else min(chunk_size, MOST_ROWS)
        self._eager_size = eager_size or self.chunk_size

    @property
    def _size(self) -> int:
        return self._eager_size if tf.executing_eagerly() else self.chunk_size

    @override
    def split(self, data: Sequence[tf.Tensor]) -> ChunkedData:
        if not in_xla() or self._devices is not None:
            return super().split(data)
        known = data[0].shape[0]
        if known is not None and known <= self.chunk_size:
            return OneChunk().split(data)
        # XLA needs chunks of equal shape in a loop: one loop over full chunks, one over the rest.
        num_data = tf.shape(data[0])[0]
        size = tf.maximum(1, tf.minimum(self.chunk_size, num_data))
        rest = num_data % size

        def chunk(begin: tf.Tensor, size: tf.Tensor) -> Chunk:
            def take(values: tf.Tensor) -> tf.Tensor:
                sizes = tf.concat([[size], tf.shape(values)[1:]], 0)
                return tf.slice(values, [begin, *[0] * (values.shape.rank - 1)], sizes)

            return Chunk(tuple(map(take, data)), take)

        full = ChunkLoop(num_data // size, lambda number: chunk(number * size, size))
        return ChunkedData([full, ChunkLoop(1, lambda _: chunk(num_data - rest, rest))])

    @override
    def _count(self, num_data: tf.Tensor) -> tf.Tensor:
        return tf.maximum(1, -(-num_data // self._size))

    @override
    def _bounds(self, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return number * self._size, (number + 1) * self._size

    @override
    def _visited(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        return values[begin:end]


def flat_rows(values: tf.Tensor) -> tf.Tensor:
    """Return values [..., D] as rows [n, D]."""
    return tf.reshape(values, [-1, tf.shape(values)[-1]])


def split_rows(data: Sequence[tf.Tensor], chunk_size: int | None) -> ChunkedData:
    """
    Split rows into chunks. If they are known to be few, or `chunk_size` is None: one chunk, without
    a loop.
    """
    count = data[0].shape[0]
    if chunk_size is None or (count is not None and count <= chunk_size):
        return OneChunk().split(data)
    return RowChunks(chunk_size).split(data)


class BlockChunks(_Divided):
    """
    Blocks of any rows; a chunk has blocks of one size: a dense array [G, b, ...] without padding.
    """

    def __init__(
        self,
        rows: AnyNDArray,
        sizes: AnyNDArray,
        chunk_size: int | None = None,
        devices: Sequence[str] | None = None,
    ):
        """
        Take a permutation `rows` of 0..N-1, block after block; a block larger than `chunk_size` is
        one chunk.
        """
        super().__init__(devices)
        self._chunk_size = RowChunks(chunk_size).chunk_size
        self._plan = tuple(
            local_variable(values, tf.int32, [None, *values.shape[1:]])
            for values in self._planned(rows, sizes)
        )
        self._rows, self._numbers, self._table, self.sizes = self._plan

    def _planned(self, rows: AnyNDArray, sizes: AnyNDArray) -> tuple[AnyNDArray, ...]:
        """
        Rows and blocks in the order of visits; per chunk (first row, first block, G, b); block
        sizes.
        """
        blocks = np.argsort(sizes, kind="stable")  # [B]
        rows = rows[np.argsort(np.repeat(np.argsort(blocks), sizes), kind="stable")]  # [N]
        table, row, block = [], 0, 0
        for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
            per_chunk = max(1, self._chunk_size // size)
            for start in range(0, count, per_chunk):
                groups = min(per_chunk, count - start)
                table.append((row, block, groups, size))
                row, block = row + groups * size, block + groups
        return rows, blocks, np.asarray(table), sizes

    def replan(self, rows: AnyNDArray, sizes: AnyNDArray) -> None:
        """
        Assign a new partition, possibly of a different number of rows; compiled functions use it.
        """
        assign_all(self._plan, self._planned(rows, sizes))

    @property
    def num_rows(self) -> tf.Tensor:
        """N of the partition, []."""
        return tf.shape(self._rows)[0]

    @override
    def split(self, data: Sequence[tf.Tensor]) -> ChunkedData:
        refuse_xla("a model with blocks of rows")
        return super().split(data)

    @override
    def _count(self, num_data: tf.Tensor) -> tf.Tensor:
        return tf.shape(self._table)[0]

    @override
    def _bounds(self, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row, _, groups, size = tf.unstack(self._table[number])
        return row, row + groups * size

    @override
    def _visited(self, values: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, self._rows[begin:end])

    @override
    def _chunk(self, number: tf.Tensor, data: Sequence[tf.Tensor]) -> Chunk:
        _, block, groups, size = tf.unstack(self._table[number])

        def take_blocks(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(values, self._numbers[block : block + groups])

        return super()._chunk(number, data)._replace(blocks=take_blocks, shape=(groups, size))

    @override
    def _order(self, values: tf.Tensor) -> tf.Tensor:
        return tf.scatter_nd(self._rows[:, None], values, tf.shape(values))


def default_chunk_size(
    device: str,
    num_inducing: int,
    bytes_per_number: int,
    *,
    num_rows: int = MOST_ROWS,
    on_cpu: int = ROWS_PER_CHUNK,
) -> int:
    """
    Return how many rows to compute together on a variable's ``device`` that has `num_rows`:
    `on_cpu` on a CPU.
    """
    is_gpu = tf.DeviceSpec.from_string(device).device_type == "GPU"
    # On GPUs V [M, n] of a chunk has 256 MB: launching many small operations would leave a GPU
    # idle.
    rows = 2**28 // (num_inducing * bytes_per_number) if is_gpu else on_cpu
    return max(ROWS_PER_CHUNK, min(num_rows, rows))
