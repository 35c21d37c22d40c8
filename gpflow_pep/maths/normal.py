"""log Φ and its derivatives, accurate in both tails."""

import numpy as np
import tensorflow as tf

from ..runtime import Tensors, on_demand, shared

LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)
# Below this, x + h = 1/|x| or so loses digits, and the series of Mills' ratio replaces it.
_SERIES_BELOW = -12.0


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """
    Compute log Phi(x) with a *relative* error of machine precision, also if Phi(x) is nearly 1 or
    underflows, by log1p(-erfc(x/√2)/2) above 0, log(erfc(-x/√2)/2) below 0, and the series of
    Mills' ratio if erfc underflows.
    """
    x = tf.convert_to_tensor(x)
    return _in_shape_of(x, _log_ndtr(tf.reshape(x, [-1])))


def _in_shape_of(x: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.reshape(values, tf.shape(x)), x.shape)


@shared
def _log_ndtr(x: tf.Tensor) -> tf.Tensor:
    limit = {tf.float64: -37.0, tf.float32: -12.5}[x.dtype]  # below, erfc is subnormal
    far = x < limit
    near = _log_cdf_from_erfc(tf.where(~far, x, 0.0))

    def with_series() -> tf.Tensor:
        z = tf.minimum(x, limit)
        # First neglected term: 13!!/37^14 = 1.5e-17; in single precision 13!!/12.5^14 = 6e-11.
        return tf.where(far, _log_cdf_from_mills(z, _mills(z, terms=6)), near)

    return tf.cond(tf.reduce_any(far), with_series, lambda: near)


def log_ndtr_and_derivatives(x: tf.Tensor) -> Tensors:
    """
    Compute log Phi(x), its derivative h = phi(x)/Phi(x) and its negative second derivative h (x +
    h), in (0, 1): in the left tail from the series of Mills' ratio (1 - g)/|x|, with x + h = |x|
    g/(1 - g).
    """
    return tuple(
        _in_shape_of(x, values) for values in _log_ndtr_and_derivatives(tf.reshape(x, [-1]))
    )


@shared
def _log_ndtr_and_derivatives(x: tf.Tensor) -> Tensors:
    far = x < _SERIES_BELOW
    log_cdf = _log_cdf_from_erfc(tf.where(~far, x, 0.0))
    h = tf.exp(-0.5 * tf.square(x) - LOG_ROOT_2PI - log_cdf)
    near = log_cdf, h, h * (x + h)

    def with_series() -> Tensors:
        series = _derivatives_in_the_tail(tf.minimum(x, _SERIES_BELOW))
        return tuple(tf.where(far, value, other) for value, other in zip(series, near, strict=True))

    return tf.cond(tf.reduce_any(far), with_series, lambda: near)


def _log_cdf_from_erfc(x: tf.Tensor) -> tf.Tensor:
    magnitude = tf.where(x > 0.0, x, -x)  # unlike tf.abs, differentiable at 0
    tail = 0.5 * tf.math.erfc(np.sqrt(0.5) * magnitude)  # Phi(-|x|)
    left = tf.where(x > 0.0, tf.ones_like(tail), tail)  # avoids log 0, whose derivative is NaN
    return tf.where(x > 0.0, tf.math.log1p(-tail), tf.math.log(left))


@on_demand
def _derivatives_in_the_tail(x: tf.Tensor) -> Tensors:
    g = _mills(x, terms=12)  # first neglected term 25!!/12^26 = 7e-16, three times machine epsilon
    slope = -x / (1.0 - g)
    return _log_cdf_from_mills(x, g), slope, tf.square(slope) * g


def _log_cdf_from_mills(x: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
    """Return log Phi from Mills' ratio (1 - g)/|x|."""
    return -0.5 * tf.square(x) - tf.math.log(-x) - LOG_ROOT_2PI + tf.math.log1p(-g)


def _mills(x: tf.Tensor, terms: int) -> tf.Tensor:
    """Return g = 1/x^2 - 3/x^4 + 15/x^6 ... of Phi(x) = phi(x)/|x| (1 - g), by Horner's rule."""
    z = 1.0 / tf.square(x)
    one = total = tf.ones_like(x)
    for term in range(terms, 1, -1):
        total = one - (2 * term - 1) * z * total
    return z * total
