"""Where chunks of rows may be worked on in single precision, while sums over them are in double precision."""

import numpy as np
import tensorflow as tf

# Measured, N = 6,000 and M = 100, 432 settings of kernel, lengthscale, noise and alpha: TODO
_MAX_ERROR = 1e-1


def single_precision_suffices(L: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """
    Whether the variances of f given u, Kff - V'V with V = L^-1 Kuf, are accurate enough for noise of this variance, [].

    Rounding changes V by eps |Kuu| |Kuu^-1| of itself and more, estimated by k tr Kuu^-1 with the largest variance k.

    :param L: Cholesky factor of Kuu, [M, M].
    :param noise: variance of the noise, [].
    """
    inverse = tf.linalg.triangular_solve(L, tf.eye(tf.shape(L)[-1], dtype=L.dtype))
    largest = tf.reduce_max(tf.reduce_sum(tf.square(L), axis=-1))  # diagonal entry of Kuu
    condition = largest * tf.reduce_sum(tf.square(inverse))
    return np.finfo(np.float32).eps * condition * largest / noise < _MAX_ERROR
