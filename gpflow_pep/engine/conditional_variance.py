"""Compute the variance of f given u, and check that it is not negative beyond rounding error."""

import numpy as np
import tensorflow as tf

from ..checks import asserted
from ..linalg import column_products

_SAFETY = 100.0


def conditional_variance_of_f(Kff: tf.Tensor, V: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """
    Compute d = Kff - diag(V'V), [..., n], V = L^-1 Kuf. Rounding below 0 is cut off.

    :raises tf.errors.InvalidArgumentError: as :func:`with_checked_variance` does.
    """
    conditional_variance = Kff - column_products(V, V)
    return tf.nn.relu(with_checked_variance(conditional_variance, conditional_variance, Kff, L))


def with_checked_variance(value: tf.Tensor, conditional_variance: tf.Tensor, Kff: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """
    `value` itself, where the variances of f given u, Kff - diag(V'V) with V = L^-1 Kuf, are not negative beyond
    rounding.

    The computed factorization is the exact one of a Kuu perturbed by some M eps of its entries (Higham 2002, theorem
    10.4). That changes V'V by M eps |Kuu| |w|^2, w = Kuu^-1 Kuf, and |w|^2 <= Kff/lambda for the smallest eigenvalue
    lambda of Kuu. The squared ratio of the largest to the smallest entry of L's diagonal estimates |Kuu|/lambda from
    below; _SAFETY covers what it is short of.

    :param conditional_variance: [..., n], and the prior variances Kff.
    :param L: Cholesky factor of Kuu, [M, M] or [C, M, M].
    :raises tf.errors.InvalidArgumentError: if a variance is negative beyond rounding error.
    """
    diagonal = tf.linalg.diag_part(L)
    condition = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
    condition = condition if condition.shape.rank == 0 else tf.reduce_max(condition)
    size = tf.cast(tf.shape(L)[-1], L.dtype) if L.shape[-1] is None else L.shape[-1]
    bound = (_SAFETY * np.finfo(L.dtype.as_numpy_dtype).eps * size) * condition
    return asserted(
        value,
        ~tf.reduce_any(conditional_variance < -bound * tf.reduce_max(Kff)),  # NaN is found where it does harm
        "the variance of f given u is negative beyond rounding error: Kuu, Kuf and Kff contradict each other, as when "
        "inputs are far from the origin, or spread over far too many lengthscales. Try: subtracting the mean of X from "
        "X, Xnew and the inducing points, or longer lengthscales. The smallest variance is",
        tf.reduce_min(conditional_variance),
    )
