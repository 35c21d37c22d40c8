"""
Powers of a softmax of independent Gaussians, p = exp(f_y)/Σ_k exp(f_k): E[p^α] and its derivatives
in the means.

With E_k exponential variables and γ a gamma variable of shape α,

    p^α = Pr(log γ - f_y < log E_k - f_k for all k ≠ y),

so E[p^α] is an integral over t = log γ - f_y. The integrand is a product with one factor for each
class k ≠ y, S_k(t) = E[exp(-exp(t + f_k))] (:mod:`.survival`), and for y

    H(t) = E[exp(α u - exp(u))] = exp(α (t + m_y) + α² v_y/2) S_y(t + α v_y),  u = t + f_y.

Integration by parts avoids differences divided by α (P = ∏_{k≠y} S_k, h = -S'/S):

    (1 - E[p^α])/α = ∫ H (1 - P) dt / Γ(1+α),   E[p^α] = ∫ H P Σ_k h_k dt / Γ(1+α).

At α = 0 the first is E[-log p]. All terms are positive, also in the derivatives of log E[p^α] / α:
with <h> = ∫ H P h dt / (Γ(1+α) E[p^α]) the first and second derivatives in m_k are

    -<h_k>, or 1 - <h_y> for k = y;   α <h_k>(1 - <h_k>) - <h_k Σ_{j≠k} h_j>.

At α = 0, <h_k> is E[p_k] for all classes, also for y.

For most rows the trapezoid rule is accurate: integrands are bounded within π/2 of the real axis, so
a step of 0.4 (or more, left of the first decrease of an S_k) has an error of exp(-π²/0.4). The S_k
are tabulated unless a variance is large. Rows with a larger estimated error get more points, and
then adaptive quadrature.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..engine import log1p_ratio
from ..maths.adaptive_quadrature import Evaluated, Panels, attainable, gauss_legendre, integrate
from ..maths.largest import select_own
from ..runtime import Tensors, on_demand, rarely, refuse_xla
from ..tilted import Scalar
from ..tilted.trapezoid import trapezoid_table, with_rows
from .survival import LARGEST_G, LARGEST_VARIANCE, LOWEST, log_survival, quick_survival, smallest

# Points of the trapezoid rule: rows that are not resolved by a number use the next. Only coarse
# integrals begin with the first.
_NUMBERS = (28, 56, 112)
COARSE = 1e6  # smallest `negligible` for coarse integrals
_REACH = 9.0  # standard deviations of an f_k beyond which densities are negligible
_RULE = gauss_legendre(32)
_TRAPEZOID = np.concatenate([trapezoid_table(number)[:4] for number in _NUMBERS], axis=1)


# Largest relative amplitude near the Nyquist frequency in rows with small variances only, and with
# large ones, which a narrow class may hide behind. A thousand times these for coarse integrals.
_NARROW_TOLERANCE = 1e-5
_WIDE_TOLERANCE = 1e-7


class SoftmaxPower(NamedTuple):
    """log E[p^α] / α, or E[log p] if α = 0, and its first two derivatives in the means."""

    log_normalizer: tf.Tensor  # [R]
    d1: tf.Tensor  # [C, R]
    d2: tf.Tensor  # [C, R]


class _Rows(NamedTuple):
    """
    The integrands of rows (or panels): parameters, and the location and size that :func:`_scan`
    adds.
    """

    own: tf.Tensor  # Mask of k = y, [C, R, 1]
    mean: tf.Tensor  # m_k, or m_y + α v_y for k = y, [C, R, 1]
    variance: tf.Tensor  # [C, R, 1]
    offset: tf.Tensor  # α m_y + α² v_y/2, [R, 1]
    alpha: tf.Tensor  # [R, 1], like all below
    left: Any = None  # Left end of the integration
    right: Any = None
    missed: Any = None  # Approximate maximum of log H (1 - P)
    product: Any = None  # Approximate maximum of log H P Σ_k h_k
    # Left of this point integrands are exponentials, or as smooth as normal densities.
    transition: Any = None

    def take(self, row: tf.Tensor) -> "_Rows":
        """Select rows."""
        return _Rows(*(tf.gather(value, row, axis=-2) for value in self))


def softmax_power(
    label: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    alpha: tf.Tensor,
    negligible: Scalar = 0.0,
) -> SoftmaxPower:
    """
    Compute log Z / α, d1 and d2 with a relative error of 1e-9 for variances up to 1e6; not
    differentiable. If the remaining f_k are nearly certain, errors of d1 and d2 reach 1e-6 for
    variances of f_y above 30, and 1e-5 above 1e3. Not finite for distant means.

    :param label: y, integers [R] from 0 to C - 1; `mean` and `variance`: m and v, [C, R].
    :param alpha: α in [0, 1], [] or [R].
    :param negligible: if it is `COARSE` or more, errors of log Z / α, d1 √v and d2 v are below
        1e-2, mostly below 1e-4. Infinity: skip adaptive panels; rows that are not resolved keep
        errors of up to tens of percent.
    """
    alpha = tf.broadcast_to(alpha, tf.shape(label))
    return _power(*_integrated(label, mean, variance, alpha, negligible))


def class_probabilities(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    Compute E[p_k], [C, R], for m and v [C, R], with absolute errors of 1e-9 for variances up to
    1e6; not differentiable.
    """
    # The class whose S_k vanishes first: the scan ends there. That of a wide class would hide narrow
    # ones. The bound keeps other means from being far above.
    reach = _REACH * tf.sqrt(tf.clip_by_value(variance, 0.0, 1e6))
    label = tf.argmax(mean - reach, output_type=tf.int32)
    sums, rows = _integrated(label, mean, variance, tf.zeros_like(mean[0]), 0.0)
    return tf.exp(rows.product[:, 0]) * sums[1 : 1 + mean.shape[0]]


def _integrated(
    label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor, negligible: Scalar
) -> tuple[tf.Tensor, _Rows]:
    """Return sums [1 + 2C, R] as of :func:`_integrals`, and the rows."""
    refuse_xla("tilted distributions of a softmax, whose number of points depends on the data")
    own = tf.equal(tf.range(tf.shape(mean)[0])[:, None], label[None])  # [C, R]
    variance = tf.nn.relu(variance)
    m, v = (select_own(value, own) for value in (mean, variance))
    shifted = tf.where(own, mean + alpha * variance, mean)
    offset = alpha * (m + 0.5 * alpha * v)
    rows = _scan(_Rows(*(value[..., None] for value in (own, shifted, variance, offset, alpha))))
    sums, rest = _by_trapezoid(rows, tf.convert_to_tensor(negligible) >= COARSE)

    def with_panels() -> tf.Tensor:
        refined = _by_panels(mean.shape[0])(rows.take(rest))
        return with_rows(sums, rest, refined)

    sums = rarely((tf.size(rest) > 0) & (negligible < np.inf), with_panels, sums)
    # The scan misses integrands if a mean is too far above m_y, in standard deviations (or units)
    # of both: NaN.
    limit = 2e4 * tf.sqrt(tf.maximum(tf.minimum(variance, v), 1.0))
    sums = tf.where(
        tf.reduce_any(mean - m > limit, axis=0)[:, None], tf.constant(np.nan, sums.dtype), sums
    )
    return tf.transpose(sums), rows


def _log(value: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.maximum(value, smallest(value.dtype)))


def _log_integrands(rows: _Rows, t: tf.Tensor, log_S: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return log H and log P at points t, each [R, K], from log S [C, R, K]."""
    own = select_own(log_S, rows.own)
    log_P = tf.reduce_sum(tf.where(~rows.own, log_S, 0.0), axis=0)
    return rows.alpha * t + rows.offset + own, log_P


def _approximate_survival(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Return log(-log S) with an absolute error of about 1, by Laplace's method.

    log S = -(w²/2 + w)/v - log(1 + w)/2 with w + log w = x + log v (Asmussen, Jensen and
    Rojas-Nandayapa 2016); w by Winitzki (2003), to 1 %. On the left 1 - S is, up to a constant, the
    maximum of N(f; 0, v) exp(x + f), or of N(f; 0, v), over f < -x.
    """
    v = tf.maximum(v, 1e-10)  # avoids division by 0
    target = x + tf.math.log(v)
    L = tf.nn.softplus(target)
    w = tf.maximum(L * (1.0 - tf.math.log1p(L) / (2.0 + L)), smallest(v.dtype))
    laplace = _log((0.5 * w + 1.0) * w / v + 0.5 * tf.math.log1p(w))
    return tf.maximum(laplace, tf.where(x < -v, x + 0.5 * v, -0.5 * tf.square(tf.nn.relu(-x)) / v))


def _scan(rows: _Rows) -> _Rows:
    """Locate the integrands. Each is unimodal, so it is negligible outside of an interval."""
    dtype = rows.mean.dtype
    mean = tf.where(rows.own, rows.mean - rows.alpha * rows.variance, rows.mean)
    # With the margins 30 and 5 the integrands vanish outside.
    reach = _REACH * tf.sqrt(rows.variance)
    first = tf.reduce_min(-mean - reach, axis=0) - 30.0  # [R, 1]
    last = select_own(reach - mean, rows.own) + 5.0
    step = (last - first) / 32.0
    t = first + step * tf.range(33.0, dtype=dtype)  # [R, K]
    G = _approximate_survival(t + rows.mean, rows.variance)
    H, P = _log_integrands(rows, t, -tf.exp(tf.minimum(G, LARGEST_G)))
    missed = H + _log(-tf.math.expm1(P))
    h_own, h_rest = (
        H + P + tf.reduce_max(tf.where(mask, G, -np.inf), axis=0) for mask in (rows.own, ~rows.own)
    )
    is_visible = tf.zeros_like(t, tf.bool)
    for value in (missed, h_own, h_rest):
        is_visible |= value > tf.reduce_max(value, axis=1, keepdims=True) - 26.0  # neglects 1e-11
    left = tf.reduce_min(tf.where(is_visible, t - step, last), axis=1, keepdims=True)
    right = tf.reduce_max(tf.where(is_visible, t + step, first), axis=1, keepdims=True)
    # Wider factors decrease farther right.
    transition = tf.reduce_min(tf.sqrt(rows.variance) - rows.mean, axis=0) - 4.0
    height, product = (
        tf.reduce_max(value, axis=1, keepdims=True) for value in (missed, tf.maximum(h_own, h_rest))
    )
    return _Rows(*rows[:5], left, right, height, product, tf.clip_by_value(transition, left, right))


def _integrals(
    rows: _Rows, t: tf.Tensor, weights: tf.Tensor, survival: Callable[..., Tensors]
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    Sum H (1 - P), each H P h_k and each H P h_k Σ_{j≠k} h_j over points t [R, K], divided by their
    sizes; return the sums [1 + 2C, R], the values that must be resolved [4, R, K] and log S [C, R,
    K]. `survival`: log S and the hazard.
    """
    x = t + rows.mean  # [C, R, K]
    values = survival(
        tf.reshape(x, [-1, x.shape[-1] or tf.shape(x)[-1]]), tf.reshape(rows.variance, [-1])
    )
    log_S, hazard = (tf.ensure_shape(tf.reshape(value, tf.shape(x)), x.shape) for value in values)
    H, P = _log_integrands(rows, t, log_S)
    missed = -weights * tf.exp(H - rows.missed) * tf.math.expm1(P)
    terms = weights * tf.exp(H + P - rows.product) * hazard  # [C, R, K]
    pairs = terms * _sum_rest(hazard)
    h = select_own(terms, rows.own)
    resolved = tf.stack([missed, h, tf.reduce_sum(terms, axis=0) - h, tf.reduce_sum(pairs, axis=0)])
    sums = (tf.reduce_sum(value, axis=-1) for value in (missed[None], terms, pairs))
    return tf.concat([*sums], axis=0), resolved, log_S


def _by_trapezoid(rows: _Rows, is_coarse: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return sums [R, 1 + 2C], and the indices of inaccurate rows."""
    C = rows.mean.shape[0]
    R = tf.shape(rows.mean)[1]
    table = tf.constant(_TRAPEZOID, rows.mean.dtype)
    sizes = tf.constant(_NUMBERS)

    def level(number: tf.Tensor, row: tf.Tensor, sums: tf.Tensor) -> Tensors:
        begin = tf.cumsum(sizes, exclusive=True)[number]
        size = sizes[number]
        points, *waves = tf.unstack(table[:, begin : begin + size])
        taken = rows.take(row)
        integrals, resolved, log_S = _integrals(
            taken, *_points(taken, 0.5 * (points + 1.0)), quick_survival
        )
        good = _is_accurate(taken, resolved, log_S, tf.stack(waves), is_coarse)
        sums = with_rows(sums, row, tf.transpose(integrals))
        return number + 1, tf.boolean_mask(row, ~good), sums

    _, rest, sums = tf.while_loop(
        lambda number, row, sums: (number < len(_NUMBERS)) & (tf.size(row) > 0),
        level,
        (tf.where(is_coarse, 0, 1), tf.range(R), tf.zeros([R, 1 + 2 * C], table.dtype)),
        shape_invariants=tuple(map(tf.TensorShape, ([], [None], [None, 1 + 2 * C]))),
    )
    return sums, rest


def _points(rows: _Rows, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return points t from left to right and their weights, [R, K] each.

    They are equispaced in u with t = transition + (κ+1)/2 u - (κ-1)/2 √(u² + b²): κ times as far
    apart on the left of the transition. A distance b below 2 would move a singularity near the real
    axis.
    """
    kappa = 5.0
    mean = 3.0  # (κ+1)/2
    half = 2.0  # (κ-1)/2
    square = tf.square(tf.maximum(0.05 * (rows.right - rows.left), 2.0))
    ends = (end - rows.transition for end in (rows.left, rows.right))
    first, last = ((mean * t + half * tf.sqrt(tf.square(t) + kappa * square)) / kappa for t in ends)
    u = first + (last - first) * position
    root = tf.sqrt(tf.square(u) + square)
    step = (last - first) / tf.cast(tf.size(position) - 1, u.dtype)
    return rows.transition + mean * u - half * root, step * (mean - half * u / root)


def _is_accurate(
    rows: _Rows, values: tf.Tensor, log_S: tf.Tensor, waves: tf.Tensor, is_coarse: tf.Tensor
) -> tf.Tensor:
    """
    Return a mask of accurate rows [R], from terms of sums [4, R, K], log S [C, R, K], and 1,
    cosines and sines [3, K].
    """
    is_wide = rows.variance > LARGEST_VARIANCE
    beyond = (log_S < LOWEST) & ~is_wide  # outside of the table
    total, cosine, sine = tf.unstack(tf.einsum("frk,wk->wfr", values, waves))  # [4, R]
    amplitude = tf.sqrt(tf.square(cosine) + tf.square(sine))
    ends = tf.maximum(values[..., 0], values[..., -1])
    own_beyond = tf.reduce_any(beyond & rows.own, axis=0)
    any_beyond = tf.reduce_any(beyond, axis=0)
    # First for H (1 - P): if another class is beyond, 1 - P = 1.
    mask = tf.stack([own_beyond, any_beyond, any_beyond, any_beyond])
    lost = tf.maximum(ends, tf.reduce_max(tf.where(mask, values, 0.0), axis=-1))
    # The relative error of the rule is about the squared amplitude near the Nyquist frequency, and
    # more for a class that is much narrower than the others.
    tolerances = (attainable(each, total.dtype) for each in (_WIDE_TOLERANCE, _NARROW_TOLERANCE))
    largest = tf.where(
        tf.reduce_any(is_wide, axis=[0, 2]),
        *(tf.constant(each, total.dtype) for each in tolerances),
    )
    largest = tf.where(is_coarse, 1e3 * largest, largest)
    good = (amplitude <= largest * total) & (lost <= 1e-10 * total)
    return tf.reduce_all(good, axis=0)


@functools.cache
def _by_panels(C: int) -> Any:
    """Return a function that integrates rows with C classes on adaptive panels, [R, 1 + 2C]."""
    return on_demand(functools.partial(_panel_integrals, C))


def _panel_integrals(C: int, rows: _Rows) -> tf.Tensor:
    dtype = rows.left.dtype
    R = tf.shape(rows.left)[0]
    rule = _RULE.nodes, _RULE.weights, _RULE.last_coefficients / _RULE.weights[:, None]
    nodes, weights, last = (tf.constant(value, dtype) for value in rule)
    # Relative to the integral, whose error is about the square.
    tolerance = attainable(1e-5, dtype)

    def evaluate(panels: Panels) -> Evaluated:
        taken = rows.take(panels.row)
        t = panels.left[:, None] + panels.half[:, None] * nodes  # [W, K]
        sums, resolved, _ = _integrals(taken, t, panels.half[:, None] * weights, log_survival)
        moduli = tf.reduce_sum(resolved, axis=-1)
        tails = tf.reduce_max(tf.abs(tf.matmul(resolved, last)), axis=-1) / tolerance
        return Evaluated(*(tf.transpose(value) for value in (sums, moduli, tails)))

    number = 4  # first panels of a row
    half = (rows.right - rows.left) / (2 * number)  # [R, 1]
    starts = rows.left + 2.0 * half * tf.range(number, dtype=dtype)
    row = tf.tile(tf.range(R)[:, None], [1, number])
    parts = row, starts, half + tf.zeros_like(starts)
    first = Panels(*(tf.reshape(part, [-1]) for part in parts))
    return integrate(evaluate, first, R, shape=(1 + 2 * C, 4))[0]


def _sum_rest(value: tf.Tensor) -> tf.Tensor:
    """Sum values [C, ...] over the remaining classes, without cancellation."""
    others = tf.constant(1.0 - np.eye(value.shape[0]), value.dtype)
    return tf.einsum("ab,b...->a...", others, value)


def _power(sums: tf.Tensor, rows: _Rows) -> SoftmaxPower:
    own = rows.own[..., 0]  # [C, R]
    alpha = rows.alpha[:, 0]  # [R]
    C = own.shape[0]
    log_gamma = tf.math.lgamma(1.0 + alpha)
    log_missed = rows.missed[:, 0] - log_gamma
    log_product = rows.product[:, 0] - log_gamma
    missed = tf.exp(log_missed) * sums[0]
    singles = sums[1 : 1 + C]  # [C, R]
    pairs = sums[1 + C :]  # [C, R]
    # If so, log1p is more accurate, otherwise the integral of the product.
    nearly_one = alpha * missed < 0.5
    small = log1p_ratio(alpha, tf.where(nearly_one, -missed, 0.0))
    large = log_product + tf.math.log(tf.reduce_sum(singles, axis=0))
    # Unlike divide_no_nan, this keeps a NaN.
    safe = tf.where(alpha != 0.0, alpha, 1.0)
    log_normalizer = tf.where(nearly_one, small, large / safe)
    factor = tf.exp(log_product - alpha * log_normalizer)
    singles = factor * singles
    pairs = factor * pairs
    rest = _sum_rest(singles)
    return SoftmaxPower(
        log_normalizer, tf.where(own, rest, -singles), alpha * singles * rest - pairs
    )
