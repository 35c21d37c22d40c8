"""How the rows are partitioned: into blocks that share a site, and blocks into chunks that are worked on together."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from .chunk_loops import concatenate, keep, sum_over_chunks
from .spans import Count

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
