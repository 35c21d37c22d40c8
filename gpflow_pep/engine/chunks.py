"""How the rows are partitioned: into blocks that share a site, and blocks into chunks that are worked on together."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from typing_extensions import override

# The chunks of functions that XLA compiles, where all chunks of a loop must have one shape.


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


# Loops over chunks, compiled: what is computed for each is added up, written one after the other, or kept.


# Chunks that are processed at the same time: a triangular solve uses one core only.
CHUNKS_IN_FLIGHT = 3


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


def keep(
    chunks: Count, part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], dtype: tf.DType, count: int
) -> Callable[[tf.Tensor], tuple[tf.Tensor, ...]]:
    """Compute what `part` returns for each chunk, `count` tensors [..., n], and return a function that reads it."""
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


ROWS_PER_CHUNK = 1024
_GPU_BYTES = 2**28  # of V [M, n] in a chunk: a GPU waits for small operations in a loop to be started
_MOST_ROWS = 2**30  # of a chunk: row numbers have 32 bits


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
        return keep(self.count(tf.shape(data[0])[0]), part, dtype, count)


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


def rows_per_chunk(chunk_size: int | None) -> int:
    """Return how many rows are worked on together, given what the user asks for."""
    return ROWS_PER_CHUNK if chunk_size is None else min(chunk_size, _MOST_ROWS)
