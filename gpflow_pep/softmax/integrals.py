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

For most rows the trapezoid rule is enough, with S_k from a table: integrands are bounded nearer to the real axis than
π/2, so that points 0.4 apart, or farther apart left of the first decrease of an S_k, err by exp(-π²/0.4). Rows whose
values show a larger error get more points, and then adaptive quadrature.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..maths.adaptive_quadrature import Evaluated, Panels, gauss_legendre, integrate
from ..maths.largest import of_own_class
from ..runtime.tracing import on_demand, refuse_xla
from .survival import LARGEST_G, LARGEST_VARIANCE, LOWEST, log_survival, smallest, tabulated_survival

_FEW, _MANY = 64, 128  # points of the trapezoid rule: the second number for rows that the first does not resolve
_ALIAS = 3e-5  # largest amplitude near the Nyquist frequency, relative to the integral, whose error is about its square
_TRUNCATION = 1e-10  # largest part of an integral beyond the ends or outside of the table
_SPARSER = 5.0  # ratio of the distances of points on the left and on the right of the transition
_NUM_PANELS = 4  # first panels of a row
_TOLERANCE = 1e-5  # of the last coefficients, relative to the integral, whose error is about the square
_RULE = gauss_legendre(32)


def _trapezoid_table(number: int) -> AnyNDArray:
    """Return points from 0 to 1 and the weights of the sum and of the cosine and sine transforms, [4, K]."""
    k = np.arange(number)
    phase = 0.93 * np.pi * k  # just below the Nyquist frequency, at which a sum has no phase
    return np.stack([k / (number - 1), np.ones(number), np.cos(phase), np.sin(phase)])


_TRAPEZOID = np.concatenate([_trapezoid_table(_FEW), _trapezoid_table(_MANY)], axis=1)


class SoftmaxPower(NamedTuple):
    """log E[p^α] / α, or E[log p] if α = 0, and its first two derivatives in each mean."""

    log_normalizer: tf.Tensor  # [R]
    d1: tf.Tensor  # [C, R]
    d2: tf.Tensor  # [C, R]


class _Rows(NamedTuple):
    """The parameters of the integrands of rows (or panels)."""

    own: tf.Tensor  # k = y, [C, R, 1]
    mean: tf.Tensor  # m, but m_y + α v_y for y itself, [C, R, 1]
    variance: tf.Tensor  # [C, R, 1]
    offset: tf.Tensor  # α m_y + α² v_y/2, [R, 1]
    alpha: tf.Tensor  # [R, 1]

    def take(self, row: tf.Tensor) -> "_Rows":
        """Select rows."""
        of_classes = (tf.gather(value, row, axis=1) for value in self[:3])
        return _Rows(*of_classes, *(tf.gather(value, row) for value in self[3:]))


class _Scale(NamedTuple):
    """The location and the size of the integrands, [R] each."""

    left: tf.Tensor
    right: tf.Tensor
    missed: tf.Tensor  # The largest log H (1 - P), roughly
    product: tf.Tensor  # The largest log H P Σ_k h_k, roughly
    transition: tf.Tensor  # Left of this point integrands are exponentials, or as smooth as normal densities

    def take(self, row: tf.Tensor) -> "_Scale":
        """Select rows."""
        return _Scale(*(tf.gather(value, row) for value in self))


def softmax_power(
    label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor, accurate: bool | tf.Tensor = True
) -> SoftmaxPower:
    """
    Compute log Z / α, d1 and d2 with a relative error of 1e-9, up to v = 1e6; TensorFlow cannot differentiate the
    result. If f_y has a variance above 2e4 and all other f_k are nearly certain, d1 and d2 are off by up to 1e-6.

    :param label: y, integers [R] from 0 to C - 1.
    :param mean: m, [C, R].
    :param variance: v, [C, R].
    :param alpha: α in [0, 1], [] or [R].
    :param accurate: whether to integrate all rows that the trapezoid rule does not resolve on panels, or only rows
        with a variance beyond the table.
    :raises NotImplementedError: in functions that XLA compiles.
    """
    refuse_xla("tilted distributions of a softmax, whose number of points depends on the data")
    own = tf.equal(tf.range(tf.shape(mean)[0])[:, None], label[None])  # [C, R]
    alpha, variance = tf.broadcast_to(alpha, tf.shape(label)), tf.nn.relu(variance)
    m, v = (of_own_class(value, own) for value in (mean, variance))
    shifted = tf.where(own, mean + alpha * variance, mean)
    offset = alpha * (m + 0.5 * alpha * v)
    rows = _Rows(own[..., None], shifted[..., None], variance[..., None], offset[..., None], alpha[..., None])
    scale = _scan(rows)
    beyond = tf.reduce_any(variance > LARGEST_VARIANCE, axis=0)
    sums, rest = _by_trapezoid(rows, scale)
    rest = tf.boolean_mask(rest, tf.gather(beyond, rest) | accurate)

    def with_panels() -> tf.Tensor:
        refined = _by_panels(mean.shape[0])(rows.take(rest), scale.take(rest))
        return tf.transpose(tf.tensor_scatter_nd_update(tf.transpose(sums), rest[:, None], tf.transpose(refined)))

    sums = tf.cond(tf.size(rest) > 0, with_panels, lambda: sums)
    return _power(sums, own, scale, alpha)


def _log(value: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.maximum(value, smallest(value.dtype)))


def _log_integrands(rows: _Rows, t: tf.Tensor, log_S: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return log H and log P at points t, [R, K] each, from log S [C, R, K]."""
    own = of_own_class(log_S, rows.own)
    others = tf.reduce_sum(tf.where(rows.own, tf.zeros_like(log_S), log_S), axis=0)
    return rows.alpha * t + rows.offset + own, others


def _approximate_survival(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """
    Return log(-log S) with an absolute error of about 1.

    By Laplace's method log S = -(w²/2 + w)/v - log(1 + w)/2 with w + log w = x + log v (Asmussen, Jensen and
    Rojas-Nandayapa 2016); w by Winitzki's approximation (2003) and a step of Iacono and Boyd's (2017). On the left
    1 - S is rather the largest value of N(f; 0, v) exp(x + f), or of N(f; 0, v), over f < -x, but for the constant.
    """
    v = tf.maximum(v, tf.constant(1e-10, v.dtype))  # a variance of 0 is divided by
    target = x + tf.math.log(v)
    L = tf.nn.softplus(target)
    w = tf.maximum(L * (1.0 - tf.math.log1p(L) / (2.0 + L)), smallest(v.dtype))
    w *= (1.0 + target - tf.math.log(w)) / (1.0 + w)
    laplace = _log((0.5 * w + 1.0) * w / v + 0.5 * tf.math.log1p(w))
    return tf.maximum(laplace, tf.where(x < -v, x + 0.5 * v, -0.5 * tf.square(tf.nn.relu(-x)) / v))


def _scan(rows: _Rows) -> _Scale:
    """Locate the integrands. Each has one hump, so that it is small outside of two points."""
    dtype = rows.mean.dtype
    own, shifted, variance = (value[..., 0] for value in rows[:3])
    mean = tf.where(own, shifted - rows.alpha[:, 0] * variance, shifted)
    reach = 9.0 * tf.sqrt(variance)  # with 30 and 5: farther out there is no integrand
    first = tf.reduce_min(-mean - reach, axis=0) - 30.0
    last = of_own_class(reach - mean, own) + 5.0
    position = tf.constant(np.linspace(0.0, 1.0, 33), dtype)
    step = (last - first)[:, None] / 32.0
    t = first[:, None] + (last - first)[:, None] * position  # [R, K]
    G = _approximate_survival(t + rows.mean, rows.variance)
    H, P = _log_integrands(rows, t, -tf.exp(tf.minimum(G, LARGEST_G)))
    missed = H + _log(-tf.math.expm1(P))
    infinite = tf.constant(-np.inf, dtype)
    by_own, by_others = (H + P + tf.reduce_max(tf.where(mask, G, infinite), axis=0) for mask in (rows.own, ~rows.own))
    matters = tf.zeros_like(t, tf.bool)
    for value in (missed, by_own, by_others):
        matters |= value > tf.reduce_max(value, axis=1, keepdims=True) - 26.0  # below, 1e-11 is left out
    left = tf.reduce_min(tf.where(matters, t - step, last[:, None]), axis=1)
    right = tf.reduce_max(tf.where(matters, t + step, first[:, None]), axis=1)
    transition = tf.reduce_min(tf.sqrt(variance) - shifted, axis=0) - 4.0  # wider functions bend later
    heights = tf.reduce_max(missed, axis=1), tf.reduce_max(tf.maximum(by_own, by_others), axis=1)
    return _Scale(left, right, *heights, tf.clip_by_value(transition, left, right))


def _integrals(
    rows: _Rows, scale: _Scale, t: tf.Tensor, weights: tf.Tensor, log_S: tf.Tensor, hazard: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Sum H (1 - P), each H P h_k and each H P h_k Σ_{j≠k} h_j over points t [R, K], divided by the scale.

    :param log_S: [C, R, K], as the hazard.
    :return: the sums [1 + 2C, R], and the values that must be resolved [4, R, K].
    """
    H, P = _log_integrands(rows, t, log_S)
    missed = -weights * tf.exp(H - scale.missed[:, None]) * tf.math.expm1(P)
    terms = weights * tf.exp(H + P - scale.product[:, None]) * hazard  # [C, R, K]
    pairs = terms * _of_others(hazard)
    h = of_own_class(terms, rows.own)
    resolved = tf.stack([missed, h, tf.reduce_sum(terms, axis=0) - h, tf.reduce_sum(pairs, axis=0)])
    sums = (tf.reduce_sum(value, axis=-1) for value in (missed[None], terms, pairs))
    return tf.concat([*sums], axis=0), resolved


def _by_trapezoid(rows: _Rows, scale: _Scale) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the integrals [1 + 2C, R], and the rows whose integrals are not accurate."""
    dtype, C, R = scale.left.dtype, rows.mean.shape[0], tf.shape(scale.left)[0]
    table = tf.constant(_TRAPEZOID, dtype)

    def level(number: tf.Tensor, row: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
        begin, size = tf.where(number > 0, _FEW, 0), tf.where(number > 0, _MANY, _FEW)
        points = tf.ensure_shape(table[:, begin : begin + size], [4, None])
        integrals, good = _on_points(rows.take(row), scale.take(row), points)
        sums = tf.tensor_scatter_nd_update(sums, row[:, None], tf.transpose(integrals))
        return number + 1, tf.boolean_mask(row, ~good), sums

    _, rest, sums = tf.while_loop(
        lambda number, row, sums: (number < 2) & (tf.size(row) > 0),
        level,
        (tf.constant(0), tf.range(R), tf.zeros([R, 1 + 2 * C], dtype)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None, 1 + 2 * C])),
    )
    return tf.transpose(sums), rest


def _on_points(rows: _Rows, scale: _Scale, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return the integrals [1 + 2C, R] by the trapezoid rule, and whether they are accurate [R].

    :param points: positions and weights, [4, K].
    """
    C, size = rows.mean.shape[0], tf.shape(points)[1]
    t, weights = _points(scale, points[0])
    flat = tf.reshape(t + rows.mean, [-1, size])
    survival = tabulated_survival(flat, tf.minimum(tf.reshape(rows.variance, [-1]), LARGEST_VARIANCE))
    log_S, hazard = (tf.reshape(value, [C, -1, size]) for value in survival)
    sums, resolved = _integrals(rows, scale, t, weights, log_S, hazard)
    return sums, _is_accurate(rows, resolved, log_S, points[1:])


def _points(scale: _Scale, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return points t from left to right and their weights, [R, K] each.

    With κ = _SPARSER they are equally spaced in u, t = transition + (κ+1)/2 u - (κ-1)/2 √(u² + b²). The distance b over
    which the density of points changes is at least 2, or it would be a singularity.
    """
    mean, half = 0.5 * (_SPARSER + 1.0), 0.5 * (_SPARSER - 1.0)
    square = tf.square(tf.maximum(0.05 * (scale.right - scale.left), tf.constant(2.0, position.dtype)))

    def inverse(t: tf.Tensor) -> tf.Tensor:
        return (mean * t + half * tf.sqrt(tf.square(t) + _SPARSER * square)) / _SPARSER

    first, last = (inverse(end - scale.transition)[:, None] for end in (scale.left, scale.right))
    u = first + (last - first) * position
    root = tf.sqrt(tf.square(u) + square[:, None])
    step = (last - first) / tf.cast(tf.size(position) - 1, u.dtype)
    return scale.transition[:, None] + mean * u - half * root, step * (mean - half * u / root)


def _is_accurate(rows: _Rows, values: tf.Tensor, log_S: tf.Tensor, waves: tf.Tensor) -> tf.Tensor:
    """
    Estimate whether the trapezoid rule is accurate, [R].

    :param values: the terms of the sums that must be resolved, [4, R, K].
    :param waves: 1, cosines and sines, [3, K].
    """
    total, cosine, sine = tf.unstack(tf.tensordot(values, waves, [[2], [1]]), axis=-1)  # [4, R]
    amplitude = tf.sqrt(tf.square(cosine) + tf.square(sine))
    ends = tf.maximum(values[..., 0], values[..., -1])
    beyond = log_S < LOWEST  # outside of the table; H depends on S_y alone
    of_own, of_any = tf.reduce_any(beyond & rows.own, axis=0), tf.reduce_any(beyond, axis=0)
    outside = tf.where(tf.stack([of_own, of_any, of_any, of_any]), values, tf.zeros_like(values))
    lost = tf.maximum(ends, tf.reduce_max(outside, axis=-1))
    good = (amplitude <= _ALIAS * total) & (lost <= _TRUNCATION * total)
    in_table = rows.variance[..., 0] <= LARGEST_VARIANCE
    return tf.reduce_all(good, axis=0) & tf.reduce_all(in_table, axis=0)


@functools.cache
def _by_panels(C: int) -> Any:
    """Return a function that integrates rows of C classes on adaptive panels, [1 + 2C, R]."""
    return on_demand(functools.partial(_panel_integrals, C))


def _panel_integrals(C: int, rows: _Rows, scale: _Scale) -> tf.Tensor:
    dtype, R, K = scale.left.dtype, tf.shape(scale.left)[0], len(_RULE.nodes)
    nodes, weights, last = (
        tf.constant(value, dtype)
        for value in (_RULE.nodes + 1.0, _RULE.weights, _RULE.last_coefficients / _RULE.weights[:, None])
    )

    def evaluate(panels: Panels) -> Evaluated:
        of_panels = rows.take(panels.row)
        t = panels.left[:, None] + panels.half[:, None] * nodes  # [W, K]
        x = tf.reshape(t + of_panels.mean, [-1, K])
        log_S, hazard = (
            tf.reshape(value, [C, -1, K]) for value in log_survival(x, tf.reshape(of_panels.variance, [-1]))
        )
        weighted = panels.half[:, None] * weights
        sums, resolved = _integrals(of_panels, scale.take(panels.row), t, weighted, log_S, hazard)
        moduli = tf.reduce_sum(resolved, axis=-1)
        tails = tf.reduce_max(tf.abs(tf.matmul(resolved, last)), axis=-1) / _TOLERANCE
        return Evaluated(*(tf.transpose(value) for value in (sums, moduli, tails)))

    half = (scale.right - scale.left) / (2 * _NUM_PANELS)
    starts = scale.left[:, None] + 2.0 * half[:, None] * tf.range(_NUM_PANELS, dtype=dtype)
    first = Panels(tf.repeat(tf.range(R), _NUM_PANELS), tf.reshape(starts, [-1]), tf.repeat(half, _NUM_PANELS))
    return tf.transpose(integrate(evaluate, first, R, shape=(1 + 2 * C, 4))[0])


def _of_others(value: tf.Tensor) -> tf.Tensor:
    """Sum values [C, ...] over all other classes, without cancellation."""
    C = value.shape[0]
    total = tf.constant(1.0 - np.eye(C), value.dtype) @ tf.reshape(value, [C, -1])
    return tf.reshape(total, tf.shape(value))


def _power(sums: tf.Tensor, own: tf.Tensor, scale: _Scale, alpha: tf.Tensor) -> SoftmaxPower:
    """Compute the result from the integrals."""
    C = own.shape[0]
    log_gamma = tf.math.lgamma(1.0 + alpha)
    missed = tf.exp(scale.missed - log_gamma) * sums[0]
    singles, pairs = sums[1 : 1 + C], sums[1 + C :]  # [C, R]
    nearly_one = alpha * missed < 0.5  # there log1p is more accurate, elsewhere the integral of the product
    safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
    near = tf.where(nearly_one, missed, tf.zeros_like(missed))
    small = tf.where(alpha == 0.0, -near, tf.math.log1p(-alpha * near) / safe)
    large = (scale.product - log_gamma + tf.math.log(tf.reduce_sum(singles, axis=0))) / safe
    log_normalizer = tf.where(nearly_one, small, large)
    factor = tf.exp(scale.product - log_gamma - alpha * log_normalizer)
    singles, pairs = factor * singles, factor * pairs
    others = _of_others(singles)
    return SoftmaxPower(log_normalizer, tf.where(own, others, -singles), alpha * singles * others - pairs)
