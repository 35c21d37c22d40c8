"""The probability that one of several independent Gaussians is the largest, with derivatives.

    P = Pr(f_y > f_k for all k ≠ y) = ∫ N(f; m_y, v_y) ∏_{k≠y} Φ((f - m_k)/√v_k) df

In units x = (f - m_y)/√v_y with μ_k = (m_k - m_y)/√v_y and ρ_k = √(v_k/v_y) the logarithm of the
integrand,

    g(x) = -x²/2 + Σ_k log Φ(z_k),  z_k = (x - μ_k)/ρ_k,  g'' = -1 - Σ_k h(z_k)(z_k + h(z_k))/ρ_k²,
    h = φ/Φ

is concave, and its curvature increases to the left, so Newton's method converges to the mode
monotonically from x = 0. The curvature at the mode bounds the extent of the integrand to the left,
N(0, 1) bounds it to the right. If variances are unequal, the integrand may rise as steeply as the
smallest ρ_k, but only at its left end: to the left of such a step it vanishes. Positions are
measured from the left end, where the panels start. Panels grow from there to the mode, and from the
mode to the right; they are divided until they are resolved.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..runtime import Tensors
from .adaptive_quadrature import Evaluated, Panels, gauss_legendre, integrate
from .linalg import epsilon
from .normal import LOG_ROOT_2PI, log_ndtr_and_derivatives

# Accepted distance to the mode, in units of the width of the integrand: any point near it suffices.
_NEAR_MODE = 0.1
# The integrand is cut off where g is this much below its maximum: exp(-30) = 1e-13 of P is
# neglected.
_DROP = 30.0
_RULE = gauss_legendre(32)


class Largest(NamedTuple):
    """log P and its derivatives."""

    log_prob: tf.Tensor  # [R]
    slope: tf.Tensor  # d log P / dm_k, [C, R]; dP/dv_k is half of d²P/dm_k²
    curvature: tf.Tensor  # d² log P / dm_k², [C, R]
    # Var(f_k | f_y is the largest)/v_k, [C, R]: 1 + v_k curvature without cancellation.
    ratio: tf.Tensor


class _Units(NamedTuple):
    """Rows in units of the standard deviation of f_y."""

    location: tf.Tensor  # μ, far to the left for k = y, [C, R]
    inverse: tf.Tensor  # 1/ρ, 1 for k = y, [C, R]
    mode: tf.Tensor  # [R]
    height: tf.Tensor  # g(mode), [R]


def select_own(value: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    """Select the observed class, marked by the mask `own`, from values [C, ...]."""
    return tf.reduce_sum(tf.where(own, value, 0.0), axis=0)


def largest(label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> Largest:
    """
    Compute log P and its derivatives, relative error 1e-10, not differentiable; y [R] below C, m
    and v [C, R].
    """
    own = tf.equal(tf.range(tf.shape(mean)[0])[:, None], label[None])  # [C, R]
    sd = tf.sqrt(tf.maximum(variance, 1e-30))  # avoids division by 0
    m, s = (select_own(value, own) for value in (mean, sd))
    # Steeper steps change P by less.
    sd = tf.maximum(sd, (500.0 * epsilon(mean.dtype)) * s)
    one = tf.ones_like(mean)
    location = tf.where(own, -40.0 * one, (mean - m) / s)  # Φ(x + 40) = 1
    inverse = tf.where(own, one, s / sd)
    mode, height, curvature = _mode(location, inverse)
    units = _Units(location, inverse, mode, height)
    return _largest(units, _integrate(units, *_reach(units, curvature)), own, sd, s)


def _log_product(z: tf.Tensor) -> Tensors:
    """
    Return Σ_k log Φ(z_k), by the product unless it underflows, h(z_k) and -(log Φ)'' = h (z + h)
    for z [C, ...].
    """
    cdf = 0.5 * tf.math.erfc(-np.sqrt(0.5) * z)
    product = tf.reduce_prod(cdf, axis=0)

    def plain() -> Tensors:
        h = np.sqrt(0.5 / np.pi) * tf.exp(-0.5 * tf.square(z)) / cdf
        return tf.math.log(product), h, tf.nn.relu(h * (z + h))

    def in_logarithms() -> Tensors:
        log_cdf, h, curvature = log_ndtr_and_derivatives(z)
        return tf.reduce_sum(log_cdf, axis=0), h, tf.nn.relu(curvature)

    smallest = np.sqrt(np.finfo(z.dtype.as_numpy_dtype).tiny)
    return tuple(tf.cond(tf.reduce_all(product > smallest), plain, in_logarithms))


def _derivatives(
    location: tf.Tensor, inverse: tf.Tensor, x: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return g, g' and -g'' at x [R]."""
    log_product, h, curvature = _log_product((x - location) * inverse)
    return (
        log_product - 0.5 * tf.square(x),
        tf.reduce_sum(h * inverse, axis=0) - x,
        1.0 + tf.reduce_sum(curvature * tf.square(inverse), axis=0),
    )


def _continues(number: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
    """Return whether a row needs another Newton step; at most 100 (about 20 suffice)."""
    return (number < 100) & tf.reduce_any(state[-1])


def _mode(location: tf.Tensor, inverse: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    Return a point near the mode, on its left, with g and -g'' at that point, each [R], by Newton's
    method.
    """

    def step(number: tf.Tensor, x: tf.Tensor, move: tf.Tensor, *_: tf.Tensor) -> Tensors:
        x = x + move
        g, slope, curvature = _derivatives(location, inverse, x)
        slope = tf.nn.relu(slope)
        # g can rise by at most slope²/2 and at most Σ log 1/Φ: by less than 5 unless it is low.
        is_low = (slope > 1.0) & (-0.5 * tf.square(x) - g > 5.0)
        return (
            number + 1,
            x,
            slope / curvature,
            g,
            curvature,
            is_low | (tf.square(slope) > _NEAR_MODE**2 * curvature),
        )

    # The rightmost of the modes with h = max(0, -z) for class k and 0 for the rest: g'' misleads
    # left of a steep step.
    start = tf.nn.relu(tf.reduce_max(location / (1.0 + tf.square(1.0 / inverse)), axis=0))
    first = tf.constant(0), start, *[tf.zeros_like(start)] * 3, tf.ones_like(start, bool)
    _, x, _, g, curvature, _ = tf.while_loop(_continues, step, first)
    return x, g, curvature


def _reach(units: _Units, curvature: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    Return the distances to both ends, where g has dropped by _DROP, and over which g rises by it,
    [R] each.
    """
    side = tf.constant([[-1.0], [1.0]], curvature.dtype)
    mode, height = (value[None] for value in (units.mode, units.height))
    location, inverse = (value[:, None] for value in (units.location, units.inverse))  # [C, 1, R]

    def step(number: tf.Tensor, t: tf.Tensor, *_: tf.Tensor) -> Tensors:
        g, slope, _ = _derivatives(location, inverse, mode + side * t)
        drop = height - g
        slope = -side * slope
        nearer = t - tf.nn.relu((drop - _DROP) / slope)
        # Continue only if a step shortens the reach by more than a fifth.
        return number + 1, nearer, drop / slope, (nearer < 0.8 * t) | (drop > 2.0 * _DROP)

    farthest = np.sqrt(2.0 * _DROP)
    start = tf.stack(
        [farthest / tf.sqrt(curvature), (farthest + _NEAR_MODE) * tf.ones_like(curvature)]
    )  # [2, R]
    _, reach, rise, _ = tf.while_loop(
        _continues, step, (tf.constant(0), start, start, tf.ones_like(start, bool))
    )
    return reach[0], reach[1], rise[0]


def _first_panels(left: tf.Tensor, right: tf.Tensor, rise: tf.Tensor) -> Panels:
    """
    Return panels that grow from the left end to the mode, and from there at the scale of this
    distance.
    """
    left, end = left[:, None], (left + right)[:, None]  # [R, 1]
    # Each panel ends four times as far out as the previous one; 4^21 spans the steepest rise, 4^11
    # the longest tail.
    growth = tf.constant(4.0 ** np.arange(22), left.dtype)
    rising = tf.minimum(4.0 * rise[:, None] * growth, left)
    falling = tf.minimum(left + 2.5 * left * growth[:12], end)
    ends = tf.concat([rising, left, falling, end], axis=1)  # [R, G]
    starts = tf.concat([tf.zeros_like(left), ends[:, :-1]], axis=1)
    used = tf.where(ends > starts)  # [W, 2]
    left, half = (tf.gather_nd(value, used) for value in (starts, 0.5 * (ends - starts)))
    return Panels(tf.cast(used[:, 0], tf.int32), left, half)


def _integrate(units: _Units, left: tf.Tensor, right: tf.Tensor, rise: tf.Tensor) -> tf.Tensor:
    """
    Integrate exp(g - height) times 1, t, t², S2, S1² + S2, each h and each Q h over t = x - mode,
    [R, 5 + 2C].
    """
    dtype = left.dtype
    R = tf.shape(left)[0]
    C = units.location.shape[0]
    nodes, weights, last = (tf.constant(value, dtype) for value in _RULE)
    # Tolerances of the last coefficients relative to the integrals of P and its first and second
    # derivatives. The integrands are entire functions: errors are far below the squared tolerances,
    # 1e-10 or less.
    tolerances = tf.constant([5e-5, 3e-4, 5e-4], dtype)
    # μ from the left end.
    class_values = tf.stack([units.location - units.mode + left, units.inverse])
    row_values = tf.stack([units.mode, units.height, left])

    def evaluate(panels: Panels) -> Evaluated:
        location, inverse = tf.unstack(
            tf.gather(class_values, panels.row, axis=2)[..., None]
        )  # [C, W, 1]
        mode, height, left = tf.unstack(
            tf.gather(row_values, panels.row, axis=1)[..., None]
        )  # [W, 1]
        position = panels.left[:, None] + panels.half[:, None] * nodes  # [W, K]
        t = position - left
        x = mode + t
        z = (position - location) * inverse  # [C, W, K]
        log_product, h, curvature = _log_product(z)
        # height is g near the mode; values more than 10 above it are rounding errors of a huge g.
        w = tf.exp(tf.minimum(log_product - 0.5 * tf.square(x) - height, 10.0))
        wh = w * h
        S1 = tf.reduce_sum(h * inverse, axis=0)
        S2 = tf.reduce_sum(curvature * tf.square(inverse), axis=0)
        Q = tf.where(inverse > 1.0, (S1 - x) / inverse - h, z)
        resolve = tf.stack([w, w * S1, w * (tf.square(S1) + S2)])  # [3, W, K]
        moduli = tf.linalg.matvec(resolve, weights)  # [3, W]
        tails = tf.reduce_max(tf.abs(tf.matmul(resolve, last)), axis=-1)
        unchecked = tf.linalg.matvec(tf.stack([w * t, w * tf.square(t), w * S2]), weights)
        first_order = (tf.linalg.matvec(values, weights) for values in (wh, wh * Q))  # [C, W]
        sums = tf.concat([moduli[:1], unchecked, moduli[2:], *first_order], axis=0)
        integrals, moduli, tails = (
            tf.transpose(panels.half * value) for value in (sums, moduli, tails)
        )
        return Evaluated(integrals, moduli, tails / tolerances)

    return integrate(evaluate, _first_panels(left, right, rise), R, shape=(5 + 2 * C, 3))[0]


def _largest(
    units: _Units, sums: tf.Tensor, own: tf.Tensor, sd: tf.Tensor, s: tf.Tensor
) -> Largest:
    """
    Compute the result from the integrals, with E the mean under the integrand; for k ≠ y and for k
    = y.

        P'/P = -E[h]/√v_k,   P''/P = -E[Q h]/v_k;     P'/P = E[S1]/√v_y,   P''/P = E[S1² - S2]/v_y =
        E[x² - 1]/v_y.

    Q is z or, integrated by parts, ρ_k (S1 - x) - h, whichever does not cancel.
    """
    C = sd.shape[0]
    mass, *means = tf.unstack(tf.transpose(sums[:, :4]))
    mass = tf.maximum(mass, np.finfo(sd.dtype.as_numpy_dtype).tiny)
    mean_t, mean_tt, mean_S2 = (value / mass for value in means)
    mean_S1_S2 = sums[:, 4] / mass
    mean_h, mean_Qh = (
        tf.transpose(value) / mass for value in tf.split(sums[:, 5:], [C, C], axis=1)
    )  # [C, R]
    slope_own = tf.reduce_sum(mean_h * units.inverse, axis=0)  # E[S1]; h = 0 for k = y
    spread = mean_S1_S2 - mean_S2 - tf.square(slope_own)  # Var[S1]
    ratio_own = mean_tt - tf.square(mean_t)
    # Two equivalent forms: the spread has large terms for steep steps, the ratio cancels if it is
    # near 1.
    cancels_less = (ratio_own > 0.5) & (tf.reduce_max(units.inverse, axis=0) < 10.0)
    curvature_own = tf.where(cancels_less, spread - mean_S2, ratio_own - 1.0)
    ratio = tf.nn.relu(1.0 - mean_Qh - tf.square(mean_h))
    return Largest(
        units.height + tf.math.log(mass) - LOG_ROOT_2PI,
        tf.where(own, slope_own / s, -mean_h / sd),
        tf.where(own, curvature_own / tf.square(s), -(mean_Qh + tf.square(mean_h)) / tf.square(sd)),
        tf.minimum(tf.where(own, ratio_own, ratio), 1.0),
    )
