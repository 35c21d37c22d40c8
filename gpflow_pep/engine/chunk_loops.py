"""Loops over chunks, compiled: what is computed for each is added up, written one after the other, or kept."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .spans import Count, Run

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
