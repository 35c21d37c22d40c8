"""The choice between two tensors by one condition."""

from typing import Any

import tensorflow as tf


def choose(condition: tf.Tensor, one: Any, two: Any) -> Any:
    """
    Return one of two tensors of the same shape, or of two structures of them, by a scalar condition.

    `tf.where` gives the same; but it broadcasts the condition to [N, 2, C], which takes 200 times as long.
    """
    return tf.nest.map_structure(
        lambda x, y: x if x is y else tf.raw_ops.Select(condition=condition, x=x, y=y), one, two
    )
