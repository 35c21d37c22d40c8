"""The logarithm of the normal distribution function, and its derivative, right far into both tails."""

import numpy as np
import tensorflow as tf

_SERIES_BELOW = -12.0  # where x + h, which is 1/|x|, loses digits
_UNDERFLOW_BELOW = -37.0  # where erfc, relative to itself good to x² roundings, leaves the normal numbers
_SERIES_TERMS = 12  # the first one neglected, 23!!/12^24 of 1, is below machine epsilon


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """
    log Phi(x), to machine precision *relative* to log Phi: also where Phi(x) is nearly 1 or underflows.

    Above 0 log1p(-erfc(x/√2)/2), below it log(erfc(-x/√2)/2); below -37 the asymptotic series of Mills' ratio.
    """
    far = x < _UNDERFLOW_BELOW
    magnitude = tf.where(x > 0.0, x, -x)  # tf.abs has no derivative at 0, log Phi has
    tail = 0.5 * tf.math.erfc(np.sqrt(0.5) * tf.where(far, tf.zeros_like(x), magnitude))  # Phi(-|x|)
    near = tf.where(x > 0.0, tf.math.log1p(-tail), tf.math.log(tail))

    def with_series() -> tf.Tensor:
        z = _in_the_tail(x, _UNDERFLOW_BELOW)
        series = -0.5 * tf.square(z) - tf.math.log(-z) - 0.5 * np.log(2.0 * np.pi) + tf.math.log1p(-_mills(z))
        return tf.where(far, series, near)

    return tf.cond(tf.reduce_any(far), with_series, lambda: near)


def hazard(x: tf.Tensor, log_cdf: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    h = phi(x)/Phi(x) and h (x + h), in (0, 1): the first and minus the second derivative of log Phi.

    From log Phi(x), and in the tail from the series of Mills' ratio (1 - g)/|x|, where x + h = |x| g/(1 - g).
    """
    far = x < _SERIES_BELOW
    h = tf.exp(-0.5 * tf.square(x) - 0.5 * np.log(2.0 * np.pi) - log_cdf)
    near = h, h * (x + h)

    def with_series() -> tuple[tf.Tensor, tf.Tensor]:
        z = _in_the_tail(x, _SERIES_BELOW)
        g = _mills(z)
        series = -z / (1.0 - g), tf.square(z / (1.0 - g)) * g
        return tf.where(far, series[0], near[0]), tf.where(far, series[1], near[1])

    slope, drop = tf.cond(tf.reduce_any(far), with_series, lambda: near)
    return slope, drop


def _in_the_tail(x: tf.Tensor, edge: float) -> tf.Tensor:
    return tf.minimum(x, edge * tf.ones_like(x))


def _mills(x: tf.Tensor) -> tf.Tensor:
    """g = 1/x^2 - 3/x^4 + 15/x^6 ... of Phi(x) = phi(x)/|x| (1 - g), by Horner's rule; without cancellation."""
    z = 1.0 / tf.square(x)
    total = tf.ones_like(x)
    for term in range(_SERIES_TERMS, 1, -1):
        total = 1.0 - (2 * term - 1) * z * total
    return z * total
