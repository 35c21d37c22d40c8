"""Constants of double precision."""

import tensorflow as tf


def double(value):
    """Return a tensor of type float64."""
    return tf.constant(value, tf.float64)
