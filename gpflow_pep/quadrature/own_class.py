"""The value of the observed class among those of all classes."""

import tensorflow as tf


def of_own_class(value: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    """From values [C, ...], and which of them is of the observed class, to that one, [...]."""
    return tf.reduce_sum(tf.where(own, value, tf.zeros_like(value)), axis=0)
