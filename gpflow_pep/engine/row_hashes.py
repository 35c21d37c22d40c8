"""Hashes of rows, by the finalizer of MurmurHash3: for the checksum of a dataset, and to compare workers' rows."""

import tensorflow as tf

_WEIGHTS_SEED = 20260101
_MIXING_FACTORS = (-0xAE502812AA7333, -0x3B314601E57A13AD)


def row_hashes(values: tf.Tensor) -> tf.Tensor:
    """Hash each row of `values` [n, D], [n] in 64 bits; columns that are exchanged change it."""
    numbers = mixed(tf.range(_WEIGHTS_SEED, _WEIGHTS_SEED + values.shape[-1], dtype=tf.int64))
    weights = tf.bitwise.bitwise_or(numbers, tf.ones_like(numbers))  # odd numbers, one for each column
    bits = tf.bitcast(tf.cast(values, tf.float64), tf.int64)
    return mixed(tf.reduce_sum(mixed(bits) * weights, axis=-1))


def mixed(values: tf.Tensor) -> tf.Tensor:
    """Mix the bits of int64 numbers, one to one and not linearly (the finalizer of MurmurHash3)."""

    def shifted(unsigned: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.bitwise_xor(unsigned, tf.bitwise.right_shift(unsigned, tf.constant(33, tf.uint64)))

    unsigned = tf.bitcast(values, tf.uint64)
    for factor in _MIXING_FACTORS:
        unsigned = tf.bitcast(tf.bitcast(shifted(unsigned), tf.int64) * factor, tf.uint64)
    return tf.bitcast(shifted(unsigned), tf.int64)
