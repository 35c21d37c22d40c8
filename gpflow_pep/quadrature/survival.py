"""The Laplace transform of a log-normal variable, S(x) = E[exp(-exp(u))] with u ~ N(x, v), and its hazard -S'/S.

S is the probability that u is below the logarithm of an exponential variable. By a shift of the mean

    -S'(x) = E[exp(u) exp(-exp(u))] = exp(x + v/2) S(x + v).

Expectations are trapezoidal sums, which converge exponentially: where v is small, over the normal variable. Elsewhere
over u, of what is left of exp(-exp(u)) when a function is taken away that is like it for small and for large u, and
whose expectation is known: with b a constant and B² = v + b²

    E[Φ(-u/b)] = Φ(-x/B),   E[exp(u) Φ(-u/b)] = exp(x + v/2) Φ(-(x + v)/B).
"""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import ndtr

from ..graphs import in_xla
from ..normal import log_ndtr

_NARROW = 1.0  # variances for which the sum is one over the normal variable
_FAR_LEFT = -10.0  # for these the series in powers of exp(u) has a relative error of 1e-13 here
_FAR_RIGHT = 40.0  # standard deviations beyond x = v, where S is less than 1e-300
_FAR_RIGHT_IN_SINGLE = 13.0  # the same of 32-bit numbers, where S is less than 1e-37
_WIDTH = 0.5  # b
_SMALLEST = 1e-300  # under logarithms; of 32-bit numbers the smallest normal one, since this is 0 there


def log_survival(x: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    log S(x) and the hazard [Q, K], to a relative error of 1e-11 where the hazard is below 1 or so, and of 1e-9 where it
    is below 2; farther to the right errors are 1e-15 of 1.

    :param x: [Q, K].
    :param variance: v, [Q].
    """
    is_wide = variance >= _NARROW
    if in_xla():  # in which numbers of rows cannot depend on values
        v = variance[:, None]
        pairs = zip(_narrow(x, tf.minimum(v, _NARROW)), _wide(x, tf.maximum(v, _NARROW)), strict=True)
        log_S, hazard = (tf.where(is_wide[:, None], wide, narrow) for narrow, wide in pairs)
        return log_S, hazard
    places = [tf.cast(tf.where(mask)[:, 0], tf.int32) for mask in (~is_wide, is_wide)]
    parts = [(tf.gather(x, place), tf.gather(variance, place)[:, None]) for place in places]
    narrow, wide = _narrow(*parts[0]), _wide(*parts[1])
    log_S, hazard = (tf.dynamic_stitch(places, list(values)) for values in zip(narrow, wide, strict=True))
    return log_S, hazard


def smallest(dtype: tf.DType) -> tf.Tensor:
    """What stands under a logarithm in the place of 0."""
    return tf.constant(max(_SMALLEST, np.finfo(dtype.as_numpy_dtype).tiny), dtype)


def _normal_rule() -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes and weights [48] for N(0, 1); S for large x depends on its left tail."""
    nodes = np.linspace(-8.4, 7.6, 48)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def _remainders() -> tuple[AnyNDArray, AnyNDArray]:
    """
    Nodes u [64], half as dense on the left, where densities of a variance of 1 are resolved nevertheless; the trapezoid
    rule's weights times what remains there of 1 - exp(-y), of exp(-y) and of y exp(-y), y = exp(u), [64, 3].
    """
    tau = np.linspace(-15.0, 4.5, 64)
    ratio = np.exp(-0.5 * (tau + 3.0))
    u = tau - 2.0 * np.log1p(ratio)
    y, above = np.exp(u), ndtr(u / _WIDTH)
    missed = -np.expm1(-y)
    series = -y * y * (0.5 - y * (1.0 / 6.0 - y * (1.0 / 24.0 - y / 120.0)))  # of missed - y, where that cancels
    difference = np.where(y < 0.01, series, missed - y)
    remainders = np.stack([difference - above * (1.0 - y), above - missed, y * (above - missed)], axis=1)
    weights = (tau[1] - tau[0]) * (1.0 + ratio / (1.0 + ratio)) / np.sqrt(2.0 * np.pi)
    return u, weights[:, None] * remainders


_NODES, _WEIGHTS = _normal_rule()
_POINTS, _REMAINDERS = _remainders()


def _narrow(x: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums over the normal variable, of x [Q, K] and v [Q, 1]."""
    weights = tf.constant(_WEIGHTS, x.dtype)
    factor = tf.exp(tf.sqrt(v) * tf.constant(_NODES, x.dtype))  # [Q, 48]
    scale = tf.exp(tf.minimum(x, tf.constant(_FAR_RIGHT, x.dtype)))
    values = tf.exp(-scale[..., None] * (factor - factor[:, :1])[:, None])  # [Q, K, 48], 1 at the first node
    sums = tf.matmul(values, tf.stack([weights + tf.zeros_like(factor), weights * factor], axis=-1))  # [Q, K, 2]
    S, slope = tf.unstack(sums, axis=-1)
    far = x < _FAR_LEFT
    F = _series(tf.where(far, scale, tf.zeros_like(x)), tf.exp(0.5 * v))
    return tf.where(far, tf.math.log1p(-F), tf.math.log(S) - scale * factor[:, :1]), scale * slope / S


def _series(scale: tf.Tensor, growth: tf.Tensor) -> tf.Tensor:
    """1 - S = E[y] - E[y²]/2 + E[y³]/6 - E[y⁴]/24, where E[y^k] = s^k g^(k²) with s = exp(x) and g = exp(v/2)."""
    total = tf.ones_like(scale)
    for k in (3, 2, 1):
        total = 1.0 - scale * growth ** (2 * k + 1) * total / (k + 1)
    return scale * growth * total


def _wide(x: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Sums over u, of x [Q, K] and v [Q, 1]. They have a factor exp(x²/2v) where x > 0, so that nothing underflows.
    """
    dtype = x.dtype
    sd, B = tf.sqrt(v), tf.sqrt(v + _WIDTH**2)
    beyond, x = x, tf.minimum(x, v + (_FAR_RIGHT_IN_SINGLE if dtype == tf.float32 else _FAR_RIGHT) * sd)
    height = -0.5 * tf.square(tf.nn.relu(x)) / v
    parts = [x / v, -0.5 / v + tf.zeros_like(x), -0.5 * tf.square(tf.nn.relu(-x)) / v - tf.math.log(sd)]
    u = tf.constant(np.stack([_POINTS, _POINTS**2, np.ones_like(_POINTS)]), dtype)
    density = tf.exp(tf.tensordot(tf.stack(parts, axis=-1), u, 1))  # [Q, K, 64], N(u; x, v) but for the factor
    F, S, slope = tf.unstack(tf.tensordot(density, tf.constant(_REMAINDERS, dtype), 1), axis=-1)
    tail = tf.exp(x + 0.5 * v + log_ndtr(-(x + v) / B) - height)
    F += tf.exp(log_ndtr(x / B)) + tail
    S += tf.exp(log_ndtr(-x / B) - height)
    left = x < 0.0
    F = tf.where(left, F, tf.zeros_like(F))
    S = tf.where(left, 1.0 - F, tf.maximum(S, smallest(dtype)))
    fall = -0.5 * tf.square(tf.nn.relu(beyond)) / v
    return tf.where(left, tf.math.log1p(-F), fall + tf.math.log(S)), tf.nn.relu(slope + tail) / S
