"""Powers of a softmax of independent Gaussians, p = exp(f_y)/Σ_k exp(f_k): E[p^α] and its derivatives in the means.

With E_k exponential variables and γ a gamma variable of shape α,

    p^α = Pr(log γ - f_y < log E_k - f_k for all k ≠ y),

so that E[p^α] is one integral over t = log γ - f_y, whose integrand is a product of functions S_k of one class each
(:mod:`.survival`): S_k(t) = E[exp(-exp(t + f_k))], and in the place of f_y's own

    H(t) = E[exp(α u - exp(u))] = exp(α (t + m_y) + α² v_y/2) S_y(t + α v_y),  u = t + f_y.

Neither of these divides a difference by α (P = ∏_{k≠y} S_k, h = -S'/S; by parts):

    (1 - E[p^α])/α = ∫ H (1 - P) dt / Γ(1+α),   E[p^α] = ∫ H P Σ_k h_k dt / Γ(1+α).

At α = 0 the first is E[-log p]. All terms are positive, also in the derivatives of log E[p^α] / α: with <h> =
∫ H P h dt / (Γ(1+α) E[p^α]) they are in m_k

    -<h_k>, but 1 - <h_y> for y itself;   α <h_k>(1 - <h_k>) - <h_k Σ_{j≠k} h_j>.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .adaptive import Evaluated, Panels, integrate
from .survival import log_survival

_FAR_IN_SD, _FAR_LEFT, _FAR_RIGHT = 9.0, 30.0, 5.0  # how far integrands may reach beyond the means
_NUM_SCANNED = 33  # points to find how far they do
_DROP = 28.0  # of their logarithms, below which 1e-12 is left out
_NUM_PANELS = 4  # to begin with
_TOLERANCE = 1e-5  # of the last coefficients, relative to the integral, whose error is much smaller; 1e-9 is measured
_SMALLEST = 1e-300
_NEARLY_ONE = 0.5

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)  # type: ignore[no-untyped-call]
# Values at the nodes -> the last three Legendre coefficients, [K, 3].
_LAST = (np.polynomial.legendre.legvander(_NODES, 31) * _WEIGHTS[:, None] * (np.arange(32) + 0.5))[:, -3:]  # type: ignore[no-untyped-call]


class SoftmaxPower(NamedTuple):
    """log E[p^α] / α [R], or E[log p] where α = 0, and its first two derivatives in each mean [C, R]."""

    log_normaliser: tf.Tensor
    d1: tf.Tensor
    d2: tf.Tensor


class _Parts(NamedTuple):
    """Rows (or panels) [C, W, 1], and what else the integrands depend on."""

    own: tf.Tensor
    """Whether k = y."""
    mean: tf.Tensor
    """m, but m_y + α v_y for y itself."""
    variance: tf.Tensor
    offset: tf.Tensor
    """α m_y + α² v_y/2, [W, 1]."""
    alpha: tf.Tensor
    """[W, 1]"""


class _Logs(NamedTuple):
    """At points t [W, K]."""

    H: tf.Tensor
    """log H, [W, K]."""
    P: tf.Tensor
    """log P, [W, K]."""
    hazard: tf.Tensor
    """h, [C, W, K]."""


def softmax_power(label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor) -> SoftmaxPower:
    """
    To a relative error of 1e-9 (of 1e-15 v where v is above 1e6); not differentiable by TensorFlow.

    :param label: y, integers [R] from 0 to C - 1.
    :param mean: m, [C, R].
    :param variance: v, [C, R].
    :param alpha: α in [0, 1], [] or [R].
    """
    own = tf.equal(tf.range(tf.shape(mean)[0])[:, None], label[None])  # [C, R]
    alpha, variance = tf.broadcast_to(alpha, tf.shape(label)), tf.nn.relu(variance)
    m, v = (_chosen(value, own) for value in (mean, variance))
    shifted = tf.where(own, mean + alpha * variance, mean)
    offset = alpha * (m + 0.5 * alpha * v)
    rows = _Parts(own[..., None], shifted[..., None], variance[..., None], offset[..., None], alpha[..., None])
    sd = tf.sqrt(variance)
    first = tf.reduce_min(-mean - _FAR_IN_SD * sd, axis=0) - _FAR_LEFT
    last = -m + _FAR_IN_SD * tf.sqrt(v) + _FAR_RIGHT
    left, right, heights = _scan(rows, first, last)
    sums = _integrate(rows, left, right, heights)
    return _power(sums, own, heights, alpha)


def _chosen(value: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.where(own, value, tf.zeros_like(value)), axis=0)


def _logs(parts: _Parts, t: tf.Tensor) -> _Logs:
    C, K = parts.mean.shape[0], t.shape[-1]
    x = tf.reshape(t + parts.mean, [-1, K])  # [C W, K]
    found = log_survival(x, tf.reshape(parts.variance, [-1]))
    log_S, hazard = (tf.reshape(value, [C, -1, K]) for value in found)
    own = _chosen(log_S, parts.own)
    others = tf.reduce_sum(tf.where(parts.own, tf.zeros_like(log_S), log_S), axis=0)
    return _Logs(parts.alpha * t + parts.offset + own, others, hazard)


def _log(value: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.maximum(value, tf.constant(_SMALLEST, value.dtype)))


def _scan(rows: _Parts, first: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    """
    Where the integrands are, [R] each: none has more than one hump, so that they are small outside of two points where
    they are; and the largest values of log H (1 - P) and log H P.
    """
    steps = tf.linspace(tf.zeros([], first.dtype), tf.ones([], first.dtype), _NUM_SCANNED)
    step = (last - first)[:, None] / (_NUM_SCANNED - 1)
    t = first[:, None] + (last - first)[:, None] * steps  # [R, K]
    logs = _logs(rows, t)
    h = _chosen(logs.hazard, rows.own)
    total = tf.reduce_sum(logs.hazard, axis=0)
    missed = logs.H + _log(-tf.math.expm1(logs.P))
    product = logs.H + logs.P
    matters = tf.zeros_like(t, tf.bool)
    for value in (missed, product + _log(total - h), product + _log(h)):
        matters |= value > tf.reduce_max(value, axis=1, keepdims=True) - _DROP
    left = tf.reduce_min(tf.where(matters, t - step, last[:, None]), axis=1)
    right = tf.reduce_max(tf.where(matters, t + step, first[:, None]), axis=1)
    heights = tf.reduce_max(missed, axis=1), tf.reduce_max(product + _log(total), axis=1)
    return left, right, heights


def _integrate(rows: _Parts, left: tf.Tensor, right: tf.Tensor, heights: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Integrals of H (1 - P), each H P h_k and each H P h_k Σ_{j≠k} h_j, over the exponentials of the heights."""
    dtype, R, C = left.dtype, tf.shape(left)[0], rows.mean.shape[0]
    nodes, weights, last = (tf.constant(value, dtype) for value in (_NODES + 1.0, _WEIGHTS, _LAST))

    def evaluate(found: Panels) -> Evaluated:
        own, mean, variance = (tf.gather(value, found.row, axis=1) for value in rows[:3])  # [C, W, 1]
        parts = _Parts(own, mean, variance, *(tf.gather(value, found.row) for value in rows[3:]))
        t = found.left[:, None] + found.half[:, None] * nodes  # [W, K]
        logs = _logs(parts, t)
        high = [tf.gather(height, found.row)[:, None] for height in heights]
        missed = -tf.exp(logs.H - high[0]) * tf.math.expm1(logs.P)
        each = tf.exp(logs.H + logs.P - high[1]) * logs.hazard  # [C, W, K]
        pairs = each * _of_others(logs.hazard)
        h = _chosen(each, own)
        resolve = tf.stack([missed, h, tf.reduce_sum(each, axis=0) - h, tf.reduce_sum(pairs, axis=0)])  # [4, W, K]
        moduli = tf.linalg.matvec(resolve, weights)
        tails = tf.reduce_max(tf.abs(tf.matmul(resolve, last)), axis=-1) / _TOLERANCE
        sums = tf.concat([moduli[:1], *(tf.linalg.matvec(value, weights) for value in (each, pairs))], axis=0)
        return Evaluated(*(tf.transpose(found.half * value) for value in (sums, moduli, tails)))

    half = (right - left) / (2 * _NUM_PANELS)
    starts = left[:, None] + 2.0 * half[:, None] * tf.range(_NUM_PANELS, dtype=dtype)
    first = Panels(tf.repeat(tf.range(R), _NUM_PANELS), tf.reshape(starts, [-1]), tf.repeat(half, _NUM_PANELS))
    sums, _ = integrate(evaluate, first, R, shape=(1 + 2 * C, 4), keep=False)
    return tf.transpose(sums)


def _of_others(value: tf.Tensor) -> tf.Tensor:
    """Σ_{j≠k} of values [C, ...], without cancellation."""
    before, after = tf.cumsum(value, exclusive=True), tf.cumsum(value, exclusive=True, reverse=True)
    return before + after


def _power(sums: tf.Tensor, own: tf.Tensor, heights: tuple[tf.Tensor, tf.Tensor], alpha: tf.Tensor) -> SoftmaxPower:
    C = own.shape[0]
    log_gamma = tf.math.lgamma(1.0 + alpha)
    missed = tf.exp(heights[0] - log_gamma) * sums[0]
    each, pairs = sums[1 : 1 + C], sums[1 + C :]  # [C, R]
    nearly_one = alpha * missed < _NEARLY_ONE
    safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
    near = tf.where(nearly_one, missed, tf.zeros_like(missed))
    small = tf.where(alpha == 0.0, -near, tf.math.log1p(-alpha * near) / safe)
    large = (heights[1] - log_gamma + tf.math.log(tf.reduce_sum(each, axis=0))) / safe
    log_normaliser = tf.where(nearly_one, small, large)
    scale = tf.exp(heights[1] - log_gamma - alpha * log_normaliser)
    each, pairs = scale * each, scale * pairs
    others = _of_others(each)
    return SoftmaxPower(log_normaliser, tf.where(own, others, -each), alpha * each * others - pairs)
