"""
The rule of any scalar likelihood: its tilted distributions by quadrature, projected with the KL
divergence.

A cavity may be a thousand times wider than the likelihood or a hundred times narrower, so no fixed
rule is accurate for all rows. All rows start on a few points (:mod:`.trapezoid`). Inaccurate rows
get more points, on windows that follow their tilted distributions, and finally adaptive panels
around the mode.

Notation: π(f) = N(f; m, v) p(y|f)^α / Z, l = log p(y|f), l' and l'' its derivatives in f.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from typing_extensions import override

from ..engine import log1p_ratio
from ..maths.adaptive_quadrature import Evaluated, Panels, attainable, gauss_legendre, integrate
from ..maths.normal import LOG_ROOT_2PI
from ..runtime import Sources, Tensors, derivatives, on_demand, rarely, refuse_xla, watching
from .densities import LogDensity, log_density
from .rule import KL, Cavity, Observations, Scalar, Tilted, TiltedRule, tilted_rule
from .smoothness import check_smooth
from .trapezoid import (
    HALF,
    Approximation,
    TiltedRows,
    are_narrow,
    next_window,
    on_shared_points,
    take,
    trapezoid,
    trapezoid_table,
    true_rows,
    with_rows,
)

# Points of the first, second and later windows of a row; wide cavities start with the second.
_NUMBERS = (
    60,
    96,
    160,
)
# With more rows, separate Gauss-Hermite nodes for very narrow cavities save more than they cost.
_MANY_ROWS = 600
_TABLE = np.concatenate([trapezoid_table(number) for number in _NUMBERS], axis=1)
# First panels about the mode, in cavity standard deviations. For a log-concave likelihood log π has
# at least the curvature of the cavity, so the mass beyond 10 is 1e-22: small enough for log Z =
# -1e-12 (p nearly 1).
_INNER = 4.5
_EDGES = np.array([-10.0, -10.0, -10.0, -4.5, 0.0, 4.5, 10.0, 10.0, 10.0])
# Share of the distance to the cavity mean by which each edge moves out.
_BEYOND = np.array([1.0, 0.5] + 7 * [0.0])
_FAR = 3.0  # up to this distance from the cavity mean, the panels cover all of the cavity but 1e-12
# Log Z below which more than 1e-8 of it may be outside of the first window, where p is at most
# about 1.
_SMALL = -20.0
_UNIT = np.linspace(0.0, 1.0, 40)[:, None]
RULE = gauss_legendre(23)  # the rule of a panel


class QuadratureRule(TiltedRule):
    """
    Integrate the tilted distributions of a scalar likelihood that is twice differentiable in f.

    The relative error of log Z, d1 and d2 is below 1e-8 for cavity means up to a few tens,
    variances from 1e-4 to 1e3. Near a change of sign (a value below 1/100 of the integral of its
    modulus) the error is below 1e-8 of that integral. Values below 1e-15 (nearly certain labels)
    are less accurate. Farther than 10 standard deviations from the cavity mean, a narrow mode
    (unless of Student's t) or one of two modes on different sides may be missed.
    """

    def __init__(self, likelihood: ScalarLikelihood):
        self._density = log_density(likelihood)
        self._name = type(likelihood).__name__
        self._on_panels = on_demand(partial(on_panels, self._density))
        windows, modes = (
            on_demand(partial(function, self._density)) for function in (on_windows, far_modes)
        )
        self._locate = partial(locate, self._density, windows, modes)

    @override
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        rows = TiltedRows.of(cavity, observations, alpha)
        tilted, is_accurate, center = self._locate(rows, negligible)
        inaccurate = true_rows(~is_accurate)

        def with_panels() -> Tensors:
            better = self._on_panels(take(rows, inaccurate), tf.gather(center, inaccurate))
            pairs = zip(tilted, better, strict=True)
            return tuple(with_rows(old, inaccurate, new) for old, new in pairs)

        values = rarely(
            (tf.size(inaccurate) > 0) & (negligible < np.inf), with_panels, tuple(tilted)
        )
        return Tilted(*values)

    @override
    def check(self, observations: Observations, num_latent_gps: int) -> None:
        check_smooth(self._density, observations, self._name)

    @override
    def log_partition_vjp(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        bar: tf.Tensor,
        sources: Sources,
    ) -> Tensors:
        """Compute d log_partition = E_π[d log p] on the quadrature points of log_partition."""
        m = cavity.mean
        rows = TiltedRows.of(cavity, observations, alpha)
        bar = tf.broadcast_to(bar, tf.shape(m))
        table = tf.constant(trapezoid_table(_NUMBERS[0]), m.dtype)
        integrated = trapezoid(
            self._density, rows, tf.zeros_like(m), HALF + tf.zeros_like(m), table, 0.0
        )
        F = m + tf.sqrt(cavity.variance) * integrated.x
        pi = tf.nn.softmax(integrated.log_pi, axis=0) * integrated.weight
        is_accurate = integrated.is_accurate & (
            rows.alpha * integrated.tilted.log_partition > _SMALL
        )
        weight = tf.where(is_accurate, bar * pi / tf.reduce_sum(pi, axis=0), 0.0)
        F = tf.where(weight == 0.0, m, F)  # if log p is -inf, its derivatives may be NaN
        accurate = _weighted_vjp(self._density, F, weight, observations, sources)
        inaccurate = true_rows(~is_accurate)

        def with_panels() -> Tensors:
            taken = take(rows, inaccurate)
            centered = _centered(self._density, taken, self._locate(taken, 0.0)[-1])
            sums, (row, left, half, pi) = _integrate(self._density, centered, taken, keep=True)
            weight = (
                tf.gather(tf.gather(bar, inaccurate) / sums[:, 0], row)
                * half
                * tf.transpose(pi * RULE.weights)
            )
            F = tf.gather(centered.center, row) + tf.gather(centered.sd, row) * panel_nodes(
                left, half
            )  # [K, W]
            at = tf.gather(inaccurate, row)
            rest = _weighted_vjp(self._density, F, weight, observations, sources, at)
            return tuple(map(tf.add, accurate, rest))

        return tuple(rarely(tf.size(inaccurate) > 0, with_panels, accurate))


def _weighted_vjp(
    density: LogDensity,
    F: tf.Tensor,
    weight: tf.Tensor,
    observations: Observations,
    sources: Sources,
    at: tf.Tensor | None = None,
) -> Tensors:
    """Compute the gradient of the sum of weight [K, R] times log p, of the rows `at` [R] or all."""
    with watching(sources) as tape:
        rows = observations if at is None else take(observations, at)
        log_prob = density.log_prob(F, *rows)
        total = tf.reduce_sum(tf.where(weight != 0.0, weight * log_prob, 0.0))
    return derivatives(tape, total, sources)


@tilted_rule.register(ScalarLikelihood, KL)
def _by_quadrature(likelihood: ScalarLikelihood, projection: KL) -> TiltedRule:
    return QuadratureRule(likelihood)


# --- points and windows ---------------------------------------------------------------------------
def locate(
    density: LogDensity,
    with_windows: Any,
    with_far_modes: Any,
    rows: TiltedRows,
    negligible: Scalar,
) -> tuple[Tilted, tf.Tensor, tf.Tensor]:
    """
    Compute tilted distributions on shared points, then on individual windows for the rows that need
    them.

    :param with_windows: :func:`on_windows` with the density bound, usually traced on demand.
    :param with_far_modes: :func:`far_modes`, likewise.
    :param negligible: see :class:`~gpflow_pep.tilted.TiltedRule`; infinity acts like 0: no row is
        expensive here.
    :return: tilted distributions; a mask of rows in which the relative errors of log Z, d1 and d2
        are below 1e-8, [R]; the tilted means, or the modes in inaccurate rows, [R].
    """
    refuse_xla("tilted distributions by quadrature, whose number of points depends on the data")
    least = tf.cast(negligible, rows.alpha.dtype)
    least = tf.where(tf.math.is_finite(least), least, 0.0)
    narrow = are_narrow(density, rows, hermite=False)
    very_narrow = are_narrow(density, rows, hermite=True)
    hermite = (tf.size(rows.alpha) >= _MANY_ROWS) | ~tf.reduce_any(narrow & ~very_narrow)
    results = _results(rows, *on_shared_points(density, rows, hermite, least))
    rest = results[:, -2] == 0.0
    first = narrow & hermite & rest
    results = tf.cond(
        tf.reduce_any(rest), lambda: with_windows(rows, first, results, least), lambda: results
    )
    if not density.is_log_concave:
        small = rows.alpha * results[:, 0] < _SMALL
        results = tf.cond(
            tf.reduce_any(small), lambda: with_far_modes(rows, small, results), lambda: results
        )
    *tilted, flag, center = tf.unstack(results, axis=1)
    return Tilted(*tilted), flag > 0.0, center


def _results(rows: TiltedRows, tilted: Tilted, is_accurate: tf.Tensor) -> tf.Tensor:
    """Return the tilted distributions, 1 or 0 for accurate or not, and the tilted means, [R, 6]."""
    mean = rows.cavity.mean + rows.alpha * rows.cavity.variance * tilted.d1
    return tf.stack([*tilted, tf.cast(is_accurate, mean.dtype), mean], axis=1)


def on_windows(
    density: LogDensity, rows: TiltedRows, narrow: tf.Tensor, results: tf.Tensor, least: tf.Tensor
) -> tf.Tensor:
    """
    Compute tilted distributions on windows about the cavity mean, then around π, with increasing
    numbers of points; rows of the mask `narrow` [R] start on shared equispaced points, accurate
    rows of `results` [R, 6] stay unchanged.
    """
    dtype = least.dtype
    row = true_rows(narrow)
    taken = take(rows, row)
    values = _results(taken, *on_shared_points(density, taken, False, least))
    results = with_rows(results, row, values)
    table = tf.constant(_TABLE, dtype)
    sizes = tf.constant(_NUMBERS)
    radius = density.radius(rows.observations.X)
    # Only 1 % of cavities wider than 5 radii are resolved by 60 points.
    is_wide = (rows.sd > 5.0 * radius) & (radius > 0.0)
    rest = results[:, -2] == 0.0
    narrower = true_rows(rest & ~is_wide)
    wide = true_rows(rest & is_wide)

    def level(
        number: tf.Tensor, row: tf.Tensor, middle: tf.Tensor, half: tf.Tensor, results: tf.Tensor
    ) -> Tensors:
        taken = take(rows, row)
        kind = tf.minimum(number, 2)
        begin = tf.cumsum(sizes, exclusive=True)[kind]
        size = sizes[kind]
        points = tf.ensure_shape(table[:, begin : begin + size], [len(_TABLE), None])
        integrated = trapezoid(density, taken, middle, half, points, least)
        values = _results(taken, integrated.tilted, integrated.is_accurate)
        mode = taken.cavity.mean + taken.sd * integrated.peak
        center = tf.where(integrated.is_accurate, values[:, -1], mode)
        values = tf.concat([values[:, :-1], center[:, None]], axis=1)
        results = with_rows(results, row, values)

        row, middle, half = _remaining_windows(number, integrated, row, middle, half)
        begin = wide[: tf.where(tf.equal(number, 0), tf.size(wide), 0)]
        zero = tf.zeros(tf.shape(begin), dtype)
        pairs = (row, begin), (middle, zero), (half, zero + HALF)
        return number + 1, *(tf.concat(pair, axis=0) for pair in pairs), results

    zero = tf.zeros(tf.shape(narrower), dtype)
    *_, results = tf.while_loop(
        # At most 24 windows: later ones follow noise.
        lambda number, row, *_: (number < 24) & ((tf.size(row) > 0) | tf.equal(number, 0)),
        level,
        (tf.constant(0), narrower, zero, zero + HALF, results),
        shape_invariants=(
            tf.TensorShape([]),
            *[tf.TensorShape([None])] * 3,
            tf.TensorShape([None, 6]),
        ),
    )
    return results


def _remaining_windows(
    number: tf.Tensor, integrated: Approximation, row: tf.Tensor, middle: tf.Tensor, half: tf.Tensor
) -> Tensors:
    """
    Return the rows that are not accurate yet and their next windows, without rows whose window no
    longer changes.
    """
    inaccurate = true_rows(~integrated.is_accurate)
    values = (
        integrated.log_pi,
        integrated.x,
        integrated.peak,
        integrated.second_form,
        middle,
        half,
        row,
    )
    log_pi, x, peak, second_form, middle, half, row = (
        tf.gather(value, inaccurate, axis=-1) for value in values
    )
    next_middle, next_half = next_window(log_pi, x, peak, second_form, half)
    # The second level uses more points on the same window, unless the next window is much wider
    # or narrower. After it, rows whose window barely changes are dropped, because more points
    # would not help.
    change = next_half / half
    changes = (change < 0.5) | (change > 2.0)
    same = (number < 1) & ~changes
    remaining = true_rows((number < 2) | changes)
    middle = tf.where(same, middle, next_middle)
    half = tf.where(same, half, next_half)
    return take((row, middle, half), remaining)


def far_modes(
    density: LogDensity, rows: TiltedRows, small: tf.Tensor, results: tf.Tensor
) -> tf.Tensor:
    """
    Center rows of the mask `small` [R] on larger modes of π outside of the first window, if there
    are any, and mark their `results` [R, 6] inaccurate. Only likelihoods that are not log-concave
    have any.
    """
    row = true_rows(small)
    taken = take(rows, row)
    found = tf.gather(results, row)
    m = taken.cavity.mean
    sd = taken.sd
    log_Z = taken.alpha * found[:, 0]
    end = tf.sqrt(-2.0 * (log_Z + _SMALL))  # beyond it, N is much smaller than Z
    x = HALF + (end - HALF) * tf.constant(_UNIT, sd.dtype)
    x = tf.concat([-x, x], axis=0)  # [K, W]
    if density.center is not None:  # y of Student's t
        center = (density.center(taken.observations) - m) / sd
        x = tf.concat([x, center[None]], axis=0)
    log_pi = taken.alpha * density.log_prob(m + sd * x, *taken.observations) - 0.5 * tf.square(x)
    is_larger = (log_pi > log_Z + _SMALL) & (tf.abs(m + sd * x - found[:, -1]) > HALF * sd)
    best = tf.argmax(tf.where(is_larger, log_pi, -np.inf), axis=0)
    center = m + sd * tf.gather(tf.transpose(x), best, batch_dims=1)
    values = tf.concat([found[:, :-2], tf.zeros_like(center)[:, None], center[:, None]], axis=1)
    is_far = tf.reduce_any(is_larger, axis=0)[:, None]
    return with_rows(results, row, tf.where(is_far, values, found))


# --- adaptive panels ------------------------------------------------------------------------------
class Centered(NamedTuple):
    """Rows in cavity units: f = center + sd x; each [R]."""

    center: tf.Tensor
    sd: tf.Tensor
    shift: tf.Tensor  # (center - m) / sd
    height: tf.Tensor  # α l(center) - shift²/2, so the unnormalized π is about 1 at the center
    slope: tf.Tensor  # l'(center)


def on_panels(density: LogDensity, rows: TiltedRows, center: tf.Tensor) -> Tilted:
    """Compute tilted distributions from panels about centers [R]."""
    centered = _centered(density, rows, center)
    return _tilted(centered, _integrate(density, centered, rows)[0], rows.alpha)


def _centered(density: LogDensity, rows: TiltedRows, center: tf.Tensor) -> Centered:
    at = density(tf.expand_dims(center, 0), *rows.observations)
    sd = rows.sd
    shift = (center - rows.cavity.mean) / sd
    return Centered(
        center, sd, shift, rows.alpha * at.log_prob[0] - 0.5 * tf.square(shift), at.slope[0]
    )


def _integrate(
    density: LogDensity, centered: Centered, rows: TiltedRows, keep: bool = False
) -> tuple[tf.Tensor, Any]:
    """
    Compute the integrals [R, 7] of P, P x, P x², P h, P h², P l'' and N (p^α - 1)/α, or N l if α =
    0, with P the unnormalized π, h = l' - l'(center) and N the normalized cavity; with `keep` also
    return the panels.
    """
    dtype = centered.sd.dtype
    R = tf.shape(centered.sd)[0]
    # Tolerances of the last coefficients times the panel width, relative to the integral of the
    # modulus. It is smaller in outer panels: a narrow peak of the likelihood (Student's t) between
    # two nodes shows in small coefficients only.
    inside = attainable(2e-7, dtype)
    outside = tf.constant(attainable(1e-10, dtype), dtype)

    def evaluate(panels: Panels) -> Evaluated:
        row, left, half = panels
        at, taken = take((centered, rows), row)
        P, *integrands = _integrands(density, panel_nodes(left, half), at, taken)
        values, moduli, tails = (
            tf.transpose(half * part) for part in _integrals(P, integrands, left, half)
        )
        tolerance = tf.where(tf.abs(left + half) > _INNER, outside, inside)[:, None]
        return Evaluated(values, moduli, tails / tolerance, tf.transpose(P))

    return integrate(evaluate, _first_panels(centered.shift), R, shape=(7, 4), keep=keep)


def _first_panels(shift: tf.Tensor) -> Panels:
    """
    Return panels up to 10 from the center and up to 10 beyond a distant cavity mean, where π may
    have a mode.
    """
    far = tf.where(tf.abs(shift) > _FAR, shift, 0.0)[:, None]
    edges = _EDGES - tf.nn.relu(far) * _BEYOND + tf.nn.relu(-far) * _BEYOND[::-1]  # [R, 9]
    half = 0.5 * (edges[:, 1:] - edges[:, :-1])
    at = tf.where(half > 0.0)
    return Panels(tf.cast(at[:, 0], tf.int32), tf.gather_nd(edges, at), tf.gather_nd(half, at))


def panel_nodes(left: tf.Tensor, half: tf.Tensor) -> tf.Tensor:
    """Return the nodes x of panels, [K, W]."""
    return left + half * tf.constant(RULE.nodes, half.dtype)[:, None]


def _integrands(density: LogDensity, x: tf.Tensor, at: Centered, rows: TiltedRows) -> Tensors:
    """Return P and the last four integrands at nodes x [K, W], each [K, W]."""
    log_prob, l1, l2 = density(at.center + at.sd * x, *rows.observations)
    alpha = rows.alpha
    exponent = -0.5 * tf.square(x + at.shift)
    P = tf.exp(alpha * log_prob + (exponent - at.height))
    inside = P != 0.0  # if it underflows, l' and l'' may overflow
    h = tf.where(inside, l1 - at.slope, 0.0)
    curvature = tf.where(inside, l2, 0.0)
    change = tf.where(
        alpha == 0.0, log_prob, tf.math.divide_no_nan(tf.math.expm1(alpha * log_prob), alpha)
    )
    return P, P * h, P * tf.square(h), P * curvature, change * tf.exp(exponent - LOG_ROOT_2PI)


def _integrals(
    P: tf.Tensor, others: Sequence[tf.Tensor], left: tf.Tensor, half: tf.Tensor
) -> Tensors:
    """
    Return integrals / half [7, W] and, but for P x, P x², P h², moduli and largest last
    coefficients, [4, W].
    """
    t = RULE.nodes
    last = RULE.last_coefficients.T
    moments = np.concatenate(
        [RULE.weights * np.stack([np.ones_like(t), t, np.square(t)]), last]
    )  # [6, K]
    P, Pt, Ptt, *tail = tf.unstack(tf.constant(moments, half.dtype) @ P)
    integrals = [
        P,
        left * P + half * Pt,
        tf.square(left) * P + 2.0 * left * half * Pt + tf.square(half) * Ptt,
    ]
    moduli = [P]
    tails = [tail]
    weights = tf.constant(RULE.weights[None], half.dtype)
    for number, integrand in enumerate(others):
        integral, *tail = tf.unstack(
            tf.constant(np.vstack([RULE.weights, last]), half.dtype) @ integrand
        )
        integrals.append(integral)
        if number != 1:  # P h² is resolved if P h is
            moduli.append((weights @ tf.abs(integrand))[0])
            tails.append(tail)
    return tf.stack(integrals), tf.stack(moduli), tf.reduce_max(tf.abs(tf.stack(tails)), axis=1)


def _tilted(centered: Centered, sums: tf.Tensor, alpha: tf.Tensor) -> Tilted:
    """Compute the tilted distributions from the integrals [R, 7]."""
    mass, *weighted, change = tf.unstack(sums, axis=-1)
    # The mean is from the center, in units of sd.
    mean, square, h, h_square, curvature = (value / mass for value in weighted)
    ratio = square - tf.square(mean)
    spread = tf.nn.relu(h_square - tf.square(h))
    # For a π much narrower than the cavity d1 = (E_π f - m)/(α v) and d2 = (Var_π f / v - 1)/(α v)
    # do not cancel; otherwise d1 = E_π l' and d2 = E_π l'' + α Var_π l'.
    narrow = (ratio < 0.5) & (alpha > 0.0)
    gain, drop = (
        tf.math.divide_no_nan(value, alpha) for value in (centered.shift + mean, ratio - 1.0)
    )
    d1 = tf.where(narrow, gain / centered.sd, centered.slope + h)
    d2 = tf.where(narrow, drop / tf.square(centered.sd), curvature + alpha * spread)
    log_Z = centered.height + tf.math.log(mass) - LOG_ROOT_2PI
    # log1p of E[p^α - 1] is accurate for p near 1 or α near 0, if the panels cover the cavity: the
    # mode is near m.
    nearly_one = (alpha * tf.abs(change) < 0.5) & (tf.abs(centered.shift) < 3.0)
    change = tf.where(nearly_one, change, 0.0)
    # Unlike divide_no_nan, this keeps a NaN.
    safe = tf.where(alpha != 0.0, alpha, 1.0)
    log_partition = tf.where(nearly_one, log1p_ratio(alpha, change), log_Z / safe)
    return Tilted(log_partition, d1, d2, ratio)
