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

In most rows the trapezoid rule is enough, with S_k from a table: integrands are bounded nearer to the real axis than
π/2, so that some points a distance of 0.4 apart, and farther apart left of where the first S_k falls, have an error of
exp(-π²/0.4). Rows whose values show that they need more get more, and in the end panels that are divided.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..maths.adaptive_quadrature import (
    LAST_COEFFICIENTS,
    LEGENDRE_NODES,
    LEGENDRE_WEIGHTS,
    Evaluated,
    Panels,
    integrate,
)
from ..maths.largest import of_own_class
from ..runtime.tracing import in_xla, on_demand
from .survival import LARGEST_VARIANCE, LOWEST, log_survival, smallest, tabulated_survival

_FAR_IN_SD, _FAR_LEFT, _FAR_RIGHT = 9.0, 30.0, 5.0  # how far integrands may reach beyond the means
_NUM_SCANNED = 33  # points to find how far they do
_DROP = 26.0  # of their logarithms, below which 1e-11 is left out
_LARGEST_G = 50.0
_SMALLEST_VARIANCE = 1e-10  # in approximations only
_NEARLY_ONE = 0.5

_FEW, _MANY = 64, 128  # points of the trapezoid rule
_FREQUENCY = 0.93  # at which spectra are estimated, in units of the Nyquist frequency
_ALIAS = 3e-5  # their largest amplitude, relative to the integral, whose error is about the square of it
_TRUNCATION = 1e-10
_SPARSER = 5.0  # distances of points on the left, in those on the right
_BEND, _SHORTEST_BEND = 0.05, 2.0  # over what distance they change: in that from left to right, and at least
_BEFORE, _SMOOTHER = 4.0, 1.0  # where: so far before a mean, less so by this times its standard deviation

_NUM_PANELS = 4  # to begin with
_TOLERANCE = 1e-5  # of the last coefficients, relative to the integral, whose error is much smaller; 1e-9 is measured


def _trapezoid_table(number: int) -> AnyNDArray:
    """Positions of points, from 0 to 1, and weights of sums: of values, and cosine and sine transforms, [4, K]."""
    k = np.arange(number)
    phase = _FREQUENCY * np.pi * k
    return np.stack([k / (number - 1), np.ones(number), np.cos(phase), np.sin(phase)])


_TRAPEZOID = np.concatenate([_trapezoid_table(_FEW), _trapezoid_table(_MANY)], axis=1)


class SoftmaxPower(NamedTuple):
    """log E[p^α] / α [R], or E[log p] where α = 0, and its first two derivatives in each mean [C, R]."""

    log_normalizer: tf.Tensor
    d1: tf.Tensor
    d2: tf.Tensor


class _Parts(NamedTuple):
    """Rows (or panels) [C, W, 1], and what else the integrands depend on."""

    own: tf.Tensor  # Whether k = y
    mean: tf.Tensor  # m, but m_y + α v_y for y itself
    variance: tf.Tensor
    offset: tf.Tensor  # α m_y + α² v_y/2, [W, 1]
    alpha: tf.Tensor  # [W, 1]


class _Integrals(NamedTuple):
    """Of H (1 - P), each H P h_k and each H P h_k Σ_{j≠k} h_j; [S, R], or [S, W] on panels."""

    sums: tf.Tensor  # Over the exponentials of the heights, [1 + 2C, R]
    resolved: tf.Tensor  # Values of what must be resolved, [4, R, K]


class _Scale(NamedTuple):
    """Where integrands are and how large, [R] each."""

    left: tf.Tensor
    right: tf.Tensor
    missed: tf.Tensor  # The largest log H (1 - P), roughly
    product: tf.Tensor  # The largest log H P Σ_k h_k, roughly
    transition: tf.Tensor  # Left of this point integrands are exponentials, or as smooth as normal densities


def softmax_power(
    label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor, accurate: bool | tf.Tensor = True
) -> SoftmaxPower:
    """
    Compute log Z / α, d1 and d2 to a relative error of 1e-9, up to v = 1e6; not differentiable by TensorFlow. Where f_y
    has a variance above 2e4 and all others are nearly certain, d1 and d2 are off by up to 1e-6.

    :param label: y, integers [R] from 0 to C - 1.
    :param mean: m, [C, R].
    :param variance: v, [C, R].
    :param alpha: α in [0, 1], [] or [R].
    :param accurate: whether all rows for which the trapezoid rule is not enough are integrated on panels, or only those
        for which there is no table.
    """
    own = tf.equal(tf.range(tf.shape(mean)[0])[:, None], label[None])  # [C, R]
    alpha, variance = tf.broadcast_to(alpha, tf.shape(label)), tf.nn.relu(variance)
    m, v = (of_own_class(value, own) for value in (mean, variance))
    shifted = tf.where(own, mean + alpha * variance, mean)
    offset = alpha * (m + 0.5 * alpha * v)
    rows = _Parts(own[..., None], shifted[..., None], variance[..., None], offset[..., None], alpha[..., None])
    scale = _scan(rows)
    beyond = tf.reduce_any(variance > LARGEST_VARIANCE, axis=0)
    if in_xla():
        sums = _of_all_rows(rows, scale, beyond | accurate)
        return _power(sums, own, scale, alpha)
    sums, rest = _by_trapezoid(rows, scale)
    rest = tf.boolean_mask(rest, tf.gather(beyond, rest) | accurate)

    def with_panels() -> tf.Tensor:
        refined = _by_panels(mean.shape[0])(_taken(rows, rest), _Scale(*(tf.gather(value, rest) for value in scale)))
        return tf.transpose(tf.tensor_scatter_nd_update(tf.transpose(sums), rest[:, None], tf.transpose(refined)))

    sums = tf.cond(tf.size(rest) > 0, with_panels, lambda: sums)
    return _power(sums, own, scale, alpha)


def _taken(rows: _Parts, place: tf.Tensor) -> _Parts:
    of_classes = (tf.gather(value, place, axis=1) for value in rows[:3])
    return _Parts(*of_classes, *(tf.gather(value, place) for value in rows[3:]))


def _log(value: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.maximum(value, smallest(value.dtype)))


def _log_integrands(parts: _Parts, t: tf.Tensor, log_S: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """log H and log P at points t, [R, K] each, of log S [C, R, K]."""
    own = of_own_class(log_S, parts.own)
    others = tf.reduce_sum(tf.where(parts.own, tf.zeros_like(log_S), log_S), axis=0)
    return parts.alpha * t + parts.offset + own, others


def _approximate_survival(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """
    log(-log S), right to about 1.

    By Laplace's method log S = -(w²/2 + w)/v - log(1 + w)/2 with w + log w = x + log v (Asmussen, Jensen and
    Rojas-Nandayapa 2016); w by Winitzki's approximation (2003) and a step of Iacono and Boyd's (2017). On the left
    1 - S is rather the largest value of N(f; 0, v) exp(x + f), or of N(f; 0, v), over f < -x, but for the constant.
    """
    v = tf.maximum(v, tf.constant(_SMALLEST_VARIANCE, v.dtype))
    target = x + tf.math.log(v)
    L = tf.nn.softplus(target)
    w = tf.maximum(L * (1.0 - tf.math.log1p(L) / (2.0 + L)), smallest(v.dtype))
    w *= (1.0 + target - tf.math.log(w)) / (1.0 + w)
    laplace = _log((0.5 * w + 1.0) * w / v + 0.5 * tf.math.log1p(w))
    return tf.maximum(laplace, tf.where(x < -v, x + 0.5 * v, -0.5 * tf.square(tf.nn.relu(-x)) / v))


def _scan(rows: _Parts) -> _Scale:
    """Find where integrands are: none has more than one hump, so that they are small outside of two points."""
    dtype = rows.mean.dtype
    own, shifted, variance = (value[..., 0] for value in rows[:3])
    mean = tf.where(own, shifted - rows.alpha[:, 0] * variance, shifted)
    reach = _FAR_IN_SD * tf.sqrt(variance)
    first = tf.reduce_min(-mean - reach, axis=0) - _FAR_LEFT
    last = of_own_class(reach - mean, own) + _FAR_RIGHT
    step = (last - first)[:, None] / (_NUM_SCANNED - 1)
    t = first[:, None] + step * tf.range(_NUM_SCANNED, dtype=dtype)  # [R, K]
    G = _approximate_survival(t + rows.mean, rows.variance)
    H, P = _log_integrands(rows, t, -tf.exp(tf.minimum(G, _LARGEST_G)))
    missed = H + _log(-tf.math.expm1(P))
    infinite = tf.constant(-np.inf, dtype)
    by_own, by_others = (H + P + tf.reduce_max(tf.where(mask, G, infinite), axis=0) for mask in (rows.own, ~rows.own))
    matters = tf.zeros_like(t, tf.bool)
    for value in (missed, by_own, by_others):
        matters |= value > tf.reduce_max(value, axis=1, keepdims=True) - _DROP
    left = tf.reduce_min(tf.where(matters, t - step, last[:, None]), axis=1)
    right = tf.reduce_max(tf.where(matters, t + step, first[:, None]), axis=1)
    transition = tf.reduce_min(_SMOOTHER * tf.sqrt(variance) - shifted, axis=0) - _BEFORE
    heights = tf.reduce_max(missed, axis=1), tf.reduce_max(tf.maximum(by_own, by_others), axis=1)
    return _Scale(left, right, *heights, tf.clip_by_value(transition, left, right))


def _integrals(
    parts: _Parts, scale: _Scale, t: tf.Tensor, weights: tf.Tensor, log_S: tf.Tensor, hazard: tf.Tensor
) -> _Integrals:
    """
    Sums over points t [R, K].

    :param log_S: [C, R, K], as the hazard.
    """
    H, P = _log_integrands(parts, t, log_S)
    missed = -weights * tf.exp(H - scale.missed[:, None]) * tf.math.expm1(P)
    terms = weights * tf.exp(H + P - scale.product[:, None]) * hazard  # [C, R, K]
    pairs = terms * _of_others(hazard)
    h = of_own_class(terms, parts.own)
    resolved = tf.stack([missed, h, tf.reduce_sum(terms, axis=0) - h, tf.reduce_sum(pairs, axis=0)])
    sums = (tf.reduce_sum(value, axis=-1) for value in (missed[None], terms, pairs))
    return _Integrals(tf.concat([*sums], axis=0), resolved)


def _by_trapezoid(rows: _Parts, scale: _Scale) -> tuple[tf.Tensor, tf.Tensor]:
    """Integrals [1 + 2C, R], and the rows that they are not accurate for."""
    dtype, C, R = scale.left.dtype, rows.mean.shape[0], tf.shape(scale.left)[0]
    table = tf.constant(_TRAPEZOID, dtype)

    def level(number: tf.Tensor, place: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
        begin, size = tf.where(number > 0, _FEW, 0), tf.where(number > 0, _MANY, _FEW)
        points = tf.ensure_shape(table[:, begin : begin + size], [4, None])
        parts, of_parts = _taken(rows, place), _Scale(*(tf.gather(value, place) for value in scale))
        integrals, good = _on_points(parts, of_parts, points)
        inaccurate = tf.where(~good)[:, 0]
        sums = tf.tensor_scatter_nd_update(sums, place[:, None], tf.transpose(integrals))
        return number + 1, tf.gather(place, inaccurate), sums

    start = tf.constant(0), tf.range(R), tf.zeros([R, 1 + 2 * C], dtype)
    _, rest, sums = tf.while_loop(
        lambda number, place, sums: (number < 2) & (tf.size(place) > 0),
        level,
        start,
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None, 1 + 2 * C])),
    )
    return tf.transpose(sums), rest


def _of_all_rows(rows: _Parts, scale: _Scale, accurate: tf.Tensor) -> tf.Tensor:
    """
    Integrals [1 + 2C, R], with shapes that do not depend on which rows need how many points.

    :param accurate: which rows are integrated on panels if the trapezoid rule is not enough, [R].
    """
    C, table = rows.mean.shape[0], tf.constant(_TRAPEZOID, scale.left.dtype)
    few, good = _on_points(rows, scale, table[:, :_FEW])

    def with_many() -> tuple[tf.Tensor, tf.Tensor]:
        many, are_good = _on_points(rows, scale, table[:, _FEW:])
        return tf.where(good, few, many), good | are_good

    sums, good = tf.cond(tf.reduce_all(good), lambda: (few, good), with_many)
    rest = ~good & accurate
    return tf.cond(tf.reduce_any(rest), lambda: tf.where(rest, _by_panels(C)(rows, scale, rest), sums), lambda: sums)


def _on_points(rows: _Parts, scale: _Scale, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Integrals [1 + 2C, R] by the trapezoid rule, and the rows that they are accurate for.

    :param points: positions and weights, [4, K].
    """
    C, size = rows.mean.shape[0], tf.shape(points)[1]
    t, weights = _points(scale, points[0])
    flat = tf.reshape(t + rows.mean, [-1, size])
    survival = tabulated_survival(flat, tf.minimum(tf.reshape(rows.variance, [-1]), LARGEST_VARIANCE))
    log_S, hazard = (tf.reshape(value, [C, -1, size]) for value in survival)
    integrals = _integrals(rows, scale, t, weights, log_S, hazard)
    return integrals.sums, _is_accurate(rows, integrals, log_S, points[1:])


def _points(scale: _Scale, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Points t from left to right and weights, [R, K] each.

    With κ = _SPARSER they are equally spaced in u, t = transition + (κ+1)/2 u - (κ-1)/2 √(u² + b²).
    """
    mean, half = 0.5 * (_SPARSER + 1.0), 0.5 * (_SPARSER - 1.0)
    square = tf.square(tf.maximum(_BEND * (scale.right - scale.left), tf.constant(_SHORTEST_BEND, position.dtype)))

    def inverse(t: tf.Tensor) -> tf.Tensor:
        return (mean * t + half * tf.sqrt(tf.square(t) + _SPARSER * square)) / _SPARSER

    first, last = (inverse(end - scale.transition)[:, None] for end in (scale.left, scale.right))
    u = first + (last - first) * position
    root = tf.sqrt(tf.square(u) + square[:, None])
    step = (last - first) / tf.cast(tf.size(position) - 1, u.dtype)
    return scale.transition[:, None] + mean * u - half * root, step * (mean - half * u / root)


def _is_accurate(parts: _Parts, integrals: _Integrals, log_S: tf.Tensor, waves: tf.Tensor) -> tf.Tensor:
    """
    Whether the trapezoid rule is, [R].

    :param waves: 1, cosines and sines, [3, K].
    """
    values = integrals.resolved
    total, cosine, sine = tf.unstack(tf.tensordot(values, waves, [[2], [1]]), axis=-1)  # [4, R]
    amplitude = tf.sqrt(tf.square(cosine) + tf.square(sine))
    ends = tf.maximum(values[..., 0], values[..., -1])
    beyond = log_S < LOWEST  # the table, of own is what H depends on
    of_own, of_any = tf.reduce_any(beyond & parts.own, axis=0), tf.reduce_any(beyond, axis=0)
    outside = tf.where(tf.stack([of_own, of_any, of_any, of_any]), values, tf.zeros_like(values))
    lost = tf.maximum(ends, tf.reduce_max(outside, axis=-1))
    good = (amplitude <= _ALIAS * total) & (lost <= _TRUNCATION * total)
    in_table = parts.variance[..., 0] <= LARGEST_VARIANCE
    return tf.reduce_all(good, axis=0) & tf.reduce_all(in_table, axis=0)


@functools.cache
def _by_panels(C: int) -> Any:
    """A function of rows of C classes: integrals [1 + 2C, R] on panels that are divided until they are resolved."""
    return on_demand(functools.partial(_panel_integrals, C))


def _panel_integrals(C: int, rows: _Parts, scale: _Scale, wanted: tf.Tensor | None = None) -> tf.Tensor:
    dtype, R = scale.left.dtype, tf.shape(scale.left)[0]
    nodes, weights, last = (
        tf.constant(value, dtype)
        for value in (LEGENDRE_NODES + 1.0, LEGENDRE_WEIGHTS, LAST_COEFFICIENTS / LEGENDRE_WEIGHTS[:, None])
    )

    def evaluate(panels: Panels) -> Evaluated:
        parts, of_parts = _taken(rows, panels.row), _Scale(*(tf.gather(value, panels.row) for value in scale))
        t = panels.left[:, None] + panels.half[:, None] * nodes  # [W, K]
        x = tf.reshape(t + parts.mean, [-1, len(LEGENDRE_NODES)])
        log_S, hazard = (
            tf.reshape(value, [C, -1, len(LEGENDRE_NODES)])
            for value in log_survival(x, tf.reshape(parts.variance, [-1]))
        )
        sums, resolved = _integrals(parts, of_parts, t, panels.half[:, None] * weights, log_S, hazard)
        moduli = tf.reduce_sum(resolved, axis=-1)
        tails = tf.reduce_max(tf.abs(tf.matmul(resolved, last)), axis=-1) / _TOLERANCE
        return Evaluated(*(tf.transpose(value) for value in (sums, moduli, tails)))

    half = (scale.right - scale.left) / (2 * _NUM_PANELS)
    starts = scale.left[:, None] + 2.0 * half[:, None] * tf.range(_NUM_PANELS, dtype=dtype)
    used = None if wanted is None else tf.repeat(wanted, _NUM_PANELS)
    first = Panels(tf.repeat(tf.range(R), _NUM_PANELS), tf.reshape(starts, [-1]), tf.repeat(half, _NUM_PANELS))
    sums, _ = integrate(evaluate, first, R, shape=(1 + 2 * C, 4), keep=False, used=used)
    return tf.transpose(sums)


def _of_others(value: tf.Tensor) -> tf.Tensor:
    """Σ_{j≠k} of values [C, ...], without cancellation."""
    C = value.shape[0]
    total = tf.constant(1.0 - np.eye(C), value.dtype) @ tf.reshape(value, [C, -1])
    return tf.reshape(total, tf.shape(value))


def _power(sums: tf.Tensor, own: tf.Tensor, scale: _Scale, alpha: tf.Tensor) -> SoftmaxPower:
    C = own.shape[0]
    log_gamma = tf.math.lgamma(1.0 + alpha)
    missed = tf.exp(scale.missed - log_gamma) * sums[0]
    singles, pairs = sums[1 : 1 + C], sums[1 + C :]  # [C, R]
    nearly_one = alpha * missed < _NEARLY_ONE
    safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
    near = tf.where(nearly_one, missed, tf.zeros_like(missed))
    small = tf.where(alpha == 0.0, -near, tf.math.log1p(-alpha * near) / safe)
    large = (scale.product - log_gamma + tf.math.log(tf.reduce_sum(singles, axis=0))) / safe
    log_normalizer = tf.where(nearly_one, small, large)
    factor = tf.exp(scale.product - log_gamma - alpha * log_normalizer)
    singles, pairs = factor * singles, factor * pairs
    others = _of_others(singles)
    return SoftmaxPower(log_normalizer, tf.where(own, others, -singles), alpha * singles * others - pairs)
