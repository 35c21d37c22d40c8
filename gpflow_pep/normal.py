"""The logarithm of the normal distribution function, and its derivative, right far into both tails."""

import numpy as np
import tensorflow as tf

_SERIES_BELOW = -12.0
_SERIES_TERMS = 12  # the first one neglected, 23!!/12^24 of 1, is below machine epsilon
_HAZARD_SERIES_BELOW = -300.0  # of three terms; the next one is 1e-14


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """
    log Phi(x), to machine precision *relative* to log Phi: also where Phi(x) is nearly 1 or underflows.

    Above 0 log1p(-erfc(x/√2)/2), below it log(erfc(-x/√2)/2); below -12 the asymptotic series of Mills' ratio.
    """
    far = x < _SERIES_BELOW
    magnitude = tf.where(x > 0.0, x, -x)  # tf.abs has no derivative at 0, log Phi has
    tail = 0.5 * tf.math.erfc(np.sqrt(0.5) * tf.where(far, tf.zeros_like(x), magnitude))  # Phi(-|x|)
    near = tf.where(x > 0.0, tf.math.log1p(-tail), tf.math.log(tail))

    def with_series() -> tf.Tensor:
        return tf.where(far, _log_ndtr_series(tf.where(far, x, _SERIES_BELOW * tf.ones_like(x))), near)

    return tf.cond(tf.reduce_any(far), with_series, lambda: near)


def hazard(x: tf.Tensor, log_cdf: tf.Tensor) -> tf.Tensor:
    """phi(x)/Phi(x), the derivative of log Phi, from log Phi(x); a series where both are so small that it cancels."""
    series = -x - (1.0 - 2.0 / tf.square(x)) / x
    ratio = tf.exp(-0.5 * tf.square(x) - 0.5 * np.log(2.0 * np.pi) - log_cdf)
    return tf.where(x < _HAZARD_SERIES_BELOW, series, ratio)


def _log_ndtr_series(x: tf.Tensor) -> tf.Tensor:
    """log of phi(x)/|x| (1 - 1/x^2 + 3/x^4 - 15/x^6 ...), by Horner's rule."""
    z = 1.0 / tf.square(x)
    total = tf.ones_like(x)
    for term in range(_SERIES_TERMS, 0, -1):
        total = 1.0 - (2 * term - 1) * z * total
    return -0.5 * tf.square(x) - tf.math.log(-x) - 0.5 * np.log(2.0 * np.pi) + tf.math.log(total)
