"""The probability that one of several independent Gaussians is the largest, with derivatives.

    P = Pr(f_y > f_k for all k ≠ y) = ∫ N(f; m_y, v_y) ∏_{k≠y} Φ((f - m_k)/√v_k) df

In units x = (f - m_y)/√v_y with μ_k = (m_k - m_y)/√v_y and ρ_k = √(v_k/v_y) the logarithm of the integrand,

    g(x) = -x²/2 + Σ_k log Φ(z_k),  z_k = (x - μ_k)/ρ_k,  g'' = -1 - Σ_k h(z_k)(z_k + h(z_k))/ρ_k²,  h = φ/Φ

is concave, and the more so the smaller x is. So its mode is found by Newton's method from x = 0, monotonically; what
matters reaches from there as far to the left as the curvature at the mode says, and to the right at most as far as
that of N(0, 1). Where variances are unequal the integrand may have steps as sharp as the smallest ρ_k; panels are
divided until they are resolved.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..normal import hazard, log_ndtr
from .adaptive import Evaluated, Panels, integrate

_MAX_NEWTON = 100
_NEAR_MODE = 0.1  # of the integrand's width there
_NEARER = 0.8  # Newton's steps go on while they shorten the reach by more than this
_GRADES = 2.5 * 4.0 ** np.arange(12)  # ends of panels on the right, in units of the reach to the left
_DROP = 30.0  # of g, below which 1e-13 of P is left out
# Of the last coefficients of what P, its first and its second derivatives are made of, relative to the integral. All
# are entire functions, whose integral's error is smaller by far than the square of these; measured it is 1e-10 or less.
_TOLERANCES = (5e-5, 3e-4, 5e-4)
_OUT_OF_THE_WAY = 40.0  # Φ there is 1
_SMALLEST_VARIANCE = 1e-30
_NARROW = 0.5  # ratio of variances

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)  # type: ignore[no-untyped-call]
# Values at the nodes -> the last three Legendre coefficients, [K, 3].
_LAST = (np.polynomial.legendre.legvander(_NODES, 31) * _WEIGHTS[:, None] * (np.arange(32) + 0.5))[:, -3:]  # type: ignore[no-untyped-call]


class Largest(NamedTuple):
    """log P [R] and its derivatives."""

    log_prob: tf.Tensor
    slope: tf.Tensor
    """d log P / dm_k, [C, R]; P's derivative in v_k is half its second one in m_k."""
    curvature: tf.Tensor
    """d² log P / dm_k², [C, R]."""
    ratio: tf.Tensor
    """Variance of f_k, given that f_y is the largest, over v_k, [C, R]: 1 + v_k curvature without cancellation."""


class _Units(NamedTuple):
    """All rows in units of their own f_y, [C, R] or [R]."""

    place: tf.Tensor
    """μ, far to the left where k = y."""
    inverse: tf.Tensor
    """1/ρ, 1 where k = y."""
    mode: tf.Tensor
    height: tf.Tensor
    """g(mode)"""


def largest(label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> Largest:
    """
    To a relative error of 1e-10, whatever the variances; not differentiable by TensorFlow.

    :param label: y, integers [R] from 0 to C - 1.
    :param mean: m, [C, R].
    :param variance: v, [C, R].
    """
    C, dtype = tf.shape(mean)[0], mean.dtype
    own = tf.equal(tf.range(C)[:, None], label[None])  # [C, R]
    variance = tf.maximum(variance, tf.constant(_SMALLEST_VARIANCE, dtype))
    sd = tf.sqrt(variance)
    m, s = (_chosen(value, own) for value in (mean, sd))
    one = tf.ones_like(mean)
    place = tf.where(own, -_OUT_OF_THE_WAY * one, (mean - m) / s)
    inverse = tf.where(own, one, s / sd)
    mode, height, bend = _mode(place, inverse)
    units = _Units(place, inverse, mode, height)
    left = _reach(units, np.sqrt(2.0 * _DROP) / tf.sqrt(bend), -1.0)
    right = _reach(units, (np.sqrt(2.0 * _DROP) + _NEAR_MODE) * tf.ones_like(left), 1.0)
    sums = _integrate(units, left, right)
    return _largest(units, sums, own, variance, s)


def _chosen(value: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.where(own, value, tf.zeros_like(value)), axis=0)


def _log_product(z: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    Σ_k log Φ(z_k), every h(z_k) and -(log Φ)'' = h (z + h), of z [C, ...]. One logarithm for all classes, unless the
    product underflows.
    """
    cdf = 0.5 * tf.math.erfc(-np.sqrt(0.5) * z)
    product = tf.reduce_prod(cdf, axis=0)

    def plain() -> tuple[tf.Tensor, ...]:
        h = np.sqrt(0.5 / np.pi) * tf.exp(-0.5 * tf.square(z)) / cdf
        return tf.math.log(product), h, tf.nn.relu(h * (z + h))

    def in_logarithms() -> tuple[tf.Tensor, ...]:
        log_cdf = log_ndtr(z)
        h, bend = hazard(z, log_cdf)
        return tf.reduce_sum(log_cdf, axis=0), h, tf.nn.relu(bend)

    smallest = np.sqrt(np.finfo(z.dtype.as_numpy_dtype).tiny)
    return tuple(tf.cond(tf.reduce_all(product > smallest), plain, in_logarithms))


def _slopes(place: tf.Tensor, inverse: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """g, g' and -g'' at x [R]."""
    log_product, h, bend = _log_product((x - place) * inverse)
    slope = tf.reduce_sum(h * inverse, axis=0) - x
    return log_product - 0.5 * tf.square(x), slope, 1.0 + tf.reduce_sum(bend * tf.square(inverse), axis=0)


def _mode(place: tf.Tensor, inverse: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """A point near the mode, on its left, with g and -g'' there, [R] each."""

    def step(number: tf.Tensor, x: tf.Tensor, move: tf.Tensor, g: tf.Tensor, bend: tf.Tensor) -> tuple[tf.Tensor, ...]:
        x = x + move
        g, slope, bend = _slopes(place, inverse, x)
        return number + 1, x, tf.nn.relu(slope / bend), g, bend

    def is_far(number: tf.Tensor, x: tf.Tensor, move: tf.Tensor, g: tf.Tensor, bend: tf.Tensor) -> tf.Tensor:
        return (number < _MAX_NEWTON) & tf.reduce_any(tf.square(move) * bend > _NEAR_MODE**2)

    zero = tf.zeros_like(place[0])
    _, x, _, g, bend = tf.while_loop(is_far, step, step(tf.constant(0), zero, zero, zero, zero))
    return x, g, bend


def _reach(units: _Units, start: tf.Tensor, side: float) -> tf.Tensor:
    """How far from the mode g drops by _DROP, or a little farther, [R]: Newton's method from `start`, outside of it."""

    def step(number: tf.Tensor, t: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
        g, slope, _ = _slopes(units.place, units.inverse, units.mode + side * t)
        nearer = t + tf.minimum((units.height - _DROP - g) / (side * slope), 0.0)
        return number + 1, nearer, t

    def is_far(number: tf.Tensor, t: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        return (number < _MAX_NEWTON) & tf.reduce_any(t < _NEARER * last)

    return tf.while_loop(is_far, step, step(tf.constant(0), start, start))[1]


def _first_panels(left: tf.Tensor, right: tf.Tensor) -> Panels:
    """
    One to the left of the mode; those to the right grow from its width, since what is sharp on the left ends there.
    """
    R = tf.shape(left)[0]
    edges = left[:, None] * tf.constant(_GRADES, left.dtype)  # [R, G]
    edges = tf.minimum(edges, right[:, None])
    edges = tf.concat([edges, right[:, None]], axis=1)
    starts = tf.concat([-left[:, None], tf.zeros_like(left)[:, None], edges[:, :-1]], axis=1)
    ends = tf.concat([tf.zeros_like(left)[:, None], edges], axis=1)  # [R, G + 2]
    row = tf.broadcast_to(tf.range(R)[:, None], tf.shape(starts))
    wide = ends > starts
    row, starts, ends = (tf.boolean_mask(value, wide) for value in (row, starts, ends))
    return Panels(row, starts, 0.5 * (ends - starts))


def _integrate(units: _Units, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Integrals over x - mode of exp(g - height) times 1, x - mode, its square, S2, S1² + S2, each h and each Q h."""
    dtype, R, C = left.dtype, tf.shape(left)[0], units.place.shape[0]
    nodes, weights, last, tolerances = (
        tf.constant(value, dtype) for value in (_NODES + 1.0, _WEIGHTS, _LAST, _TOLERANCES)
    )

    def evaluate(found: Panels) -> Evaluated:
        place, inverse = (tf.gather(value, found.row, axis=1)[..., None] for value in units[:2])  # [C, W, 1]
        t = found.left[:, None] + found.half[:, None] * nodes  # [W, K], from the mode
        x = tf.gather(units.mode, found.row)[:, None] + t
        z = (x - place) * inverse  # [C, W, K]
        log_product, h, bend = _log_product(z)
        w = tf.exp(log_product - 0.5 * tf.square(x) - tf.gather(units.height, found.row)[:, None])
        wh = w * h
        S1 = tf.reduce_sum(h * inverse, axis=0)
        S2 = tf.reduce_sum(bend * tf.square(inverse), axis=0)
        Q = tf.where(inverse > 1.0, (S1 - x) / inverse - h, z)
        resolve = tf.stack([w, w * S1, w * (tf.square(S1) + S2)])  # [3, W, K]
        moduli = tf.linalg.matvec(resolve, weights)  # [3, W]
        tails = tf.reduce_max(tf.abs(tf.matmul(resolve, last)), axis=-1)
        others = tf.linalg.matvec(tf.stack([w * t, w * tf.square(t), w * S2]), weights)
        each = (tf.linalg.matvec(values, weights) for values in (wh, wh * Q))  # [C, W]
        sums = tf.concat([moduli[:1], others, moduli[2:], *each], axis=0)
        integrals, moduli, tails = (tf.transpose(found.half * value) for value in (sums, moduli, tails))
        return Evaluated(integrals, moduli, tails / tolerances)

    sums, _ = integrate(evaluate, _first_panels(left, right), R, shape=(5 + 2 * C, 3), keep=False)
    return sums


def _largest(units: _Units, sums: tf.Tensor, own: tf.Tensor, variance: tf.Tensor, s: tf.Tensor) -> Largest:
    """
    What the integrals make; E is a mean under the integrand. For k ≠ y, and for y itself.

        P'/P = -E[h]/√v_k,   P''/P = -E[Q h]/v_k;     P'/P = E[S1]/√v_y,   P''/P = E[S1² - S2]/v_y.

    Q is z, or, integrated by parts, ρ_k (S1 - x) - h, of which that is taken which does not cancel.
    """
    C = variance.shape[0]
    mass, *means = tf.unstack(tf.transpose(sums[:, :4]))
    of_t, of_tt, of_S2 = (value / mass for value in means)
    of_S1_S2 = sums[:, 4] / mass
    of_h, of_Qh = (tf.transpose(value) / mass for value in tf.split(sums[:, 5:], [C, C], axis=1))  # [C, R]
    slope_own = tf.reduce_sum(of_h * units.inverse, axis=0)  # E[S1]: h = 0 for y itself
    spread = of_S1_S2 - of_S2 - tf.square(slope_own)  # Var[S1]
    ratio_own = of_tt - tf.square(of_t)
    curvature_own = tf.where(ratio_own < _NARROW, ratio_own - 1.0, spread - of_S2)
    sd = tf.sqrt(variance)
    ratio = tf.nn.relu(1.0 - of_Qh - tf.square(of_h))
    return Largest(
        units.height + tf.math.log(mass) - 0.5 * np.log(2.0 * np.pi),
        tf.where(own, slope_own / s, -of_h / sd),
        tf.where(own, curvature_own / tf.square(s), -(of_Qh + tf.square(of_h)) / variance),
        tf.where(own, ratio_own, ratio),
    )
