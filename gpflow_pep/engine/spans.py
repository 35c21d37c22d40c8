"""The chunks of functions that XLA compiles, where all chunks of a loop must have one shape."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf


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
