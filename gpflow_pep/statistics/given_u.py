"""Refuses covariances that contradict each other: f given u then has a variance below zero by more than rounding."""

import numpy as np
import tensorflow as tf

from ..validation import asserted

_SAFETY = 100.0


def possible_given_u(value: tf.Tensor, rest: tf.Tensor, Kff: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """
    `value` itself, where the variances `rest` = Kff - diag(V'V), V = L^-1 Kuf, are not negative beyond rounding.

    Factorisation and solution are those of a Kuu changed by some M eps of its entries (Higham 2002, theorem 10.4). That
    changes V'V by M eps |Kuu| |w|^2, w = Kuu^-1 Kuf, and |w|^2 <= Kff/lambda for the smallest eigenvalue lambda of Kuu.
    The diagonal of L stands for |Kuu|/lambda; jitter keeps it as small as lambda is, but for the factor _SAFETY.

    :param rest: [..., n], and the prior variances Kff.
    :param L: Cholesky factor of Kuu, [M, M] or [C, M, M].
    :raises tf.errors.InvalidArgumentError: otherwise.
    """
    diagonal = tf.linalg.diag_part(L)
    condition = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
    condition = condition if condition.shape.rank == 0 else tf.reduce_max(condition)
    size = tf.cast(tf.shape(L)[-1], L.dtype) if L.shape[-1] is None else L.shape[-1]
    bound = (_SAFETY * np.finfo(L.dtype.as_numpy_dtype).eps * size) * condition
    return asserted(
        value,
        ~tf.reduce_any(rest < -bound * Kff),  # NaN is found where it does harm
        "the variance of f given u must not be negative, but Kuu, Kuf and Kff contradict each other: their rounding "
        "errors are large, as when inputs are far from the origin compared with the lengthscale. Try: subtracting the "
        "mean of X from X, Xnew and the inducing points. The smallest variance is",
        tf.reduce_min(rest),
    )
