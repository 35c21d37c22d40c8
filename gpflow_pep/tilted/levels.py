"""The trapezoid rule, with more points for rows that need them, and on windows that follow the tilted distributions."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import roots_hermitenorm

from ..runtime.tracing import in_xla
from .densities import LogDensity
from .rule import Cavity, Observations, Size, Tilted
from .trapezoid import (
    ACCURATE,
    ALIAS,
    LARGEST_STEP,
    SMALLEST_POWER,
    Approximation,
    Moments,
    Window,
    best_form,
    next_window,
    trapezoid,
    weights,
)

# Quadrature on points x = (f - m)/√v that all narrow cavities share.
#
# Points that are the same for all rows have the same N(f; m, v) and moments of it: only p(y|f)^α is computed at each,
# and all sums are two products with one matrix. There are two kinds:
#
# - Gauss-Hermite nodes, for cavities much narrower than the radius within which a density is analytic. Of n nodes the
#   error is what the Hermite coefficients of orders 2n and more are, times 2^-n; coefficients fall off like a geometric
#   sequence or faster, and those of the orders n - 1 and n - 2 are sums over the nodes.
# - The trapezoid rule (:mod:`.trapezoid`), where equispaced points are close together compared with the radius.

HALF = 8.5  # of the window, and of every first window, in standard deviations of the cavity
_NUMBERS = (36, 48)  # of equispaced points: where the step is a small part of the radius, and elsewhere
_SMALL_STEP = 0.17  # in units of the radius
_NODES = 16  # of Gauss-Hermite quadrature
_SMALL_WIDTH = 0.2  # standard deviation up to which they serve, in units of the radius
_HERMITE_ALIAS = 1e-2  # the largest relative size of their last two coefficients


class SharedPoints(NamedTuple):
    """Points, and when sums over them are accurate."""

    table: tf.Tensor  # x and the weights of 15 sums, [16, K]: N(f; m, v) √v times 1, x and x², times those of `weights`
    alias: tf.Tensor  # The largest relative amplitude of a spectrum, or of the last coefficients


def _gauss_hermite(number: int) -> AnyNDArray:
    x, mass = roots_hermitenorm(number)
    hermite = [np.ones(number), x]  # orthonormal
    for order in range(2, number):
        hermite.append((x * hermite[-1] - np.sqrt(order - 1.0) * hermite[-2]) / np.sqrt(order))
    nothing = np.zeros(number)  # beyond the nodes
    return _table(x, mass, [hermite[0], hermite[-1], hermite[-2], nothing, nothing])


def _equispaced(number: int) -> AnyNDArray:
    unit, *sums = weights(number)
    x = HALF * unit
    return _table(x, _step(number) * np.exp(-0.5 * np.square(x)), sums)


def _step(number: int) -> float:
    return 2.0 * HALF / (number - 1)


def _table(x: AnyNDArray, mass: AnyNDArray, sums: list[AnyNDArray]) -> AnyNDArray:
    return np.stack([x, *(mass * x**power * each for power in range(3) for each in sums)])


_TABLES = np.concatenate([_gauss_hermite(_NODES), *map(_equispaced, _NUMBERS)], axis=1)


class OnSharedPoints(NamedTuple):
    """Tilted distributions of narrow cavities."""

    tilted: Tilted
    is_accurate: tf.Tensor  # Whether the relative errors of log Z, d1 and d2 are below 1e-8, [R]


def is_narrow(density: LogDensity, cavity: Cavity, observations: Observations) -> tf.Tensor:
    """Whether equispaced points may be accurate, [R]."""
    return _step(_NUMBERS[-1]) * tf.sqrt(cavity.variance) <= LARGEST_STEP * density.radius(observations.X)


def is_very_narrow(density: LogDensity, cavity: Cavity, observations: Observations) -> tf.Tensor:
    """Whether Gauss-Hermite nodes may be accurate, [R]."""
    return tf.sqrt(cavity.variance) <= _SMALL_WIDTH * density.radius(observations.X)


def points_of(
    density: LogDensity, cavity: Cavity, observations: Observations, which: tf.Tensor, *, very_narrow: tf.Tensor
) -> SharedPoints:
    """
    Return the points that serve some of these cavities, which are narrow; none where there are no such cavities.

    :param which: which of them, [R].
    :param very_narrow: whether to return those that serve very narrow ones only, [].
    """
    sd = tf.sqrt(cavity.variance)
    if in_xla():  # where the number of points cannot depend on values
        return SharedPoints(tf.constant(_equispaced(_NUMBERS[-1]), sd.dtype), tf.constant(ALIAS, sd.dtype))
    suffice = tf.reduce_all((_step(_NUMBERS[0]) * sd <= _SMALL_STEP * density.radius(observations.X)) | ~which)
    kind = tf.where(tf.reduce_any(which), tf.where(very_narrow, 0, tf.where(suffice, 1, 2)), 3)
    sizes = tf.constant([_NODES, *_NUMBERS, 0])
    first, size = tf.cumsum(sizes, exclusive=True)[kind], sizes[kind]
    table = tf.constant(_TABLES, sd.dtype)[:, first : first + size]
    alias = tf.where(very_narrow, tf.constant(_HERMITE_ALIAS, sd.dtype), tf.constant(ALIAS, sd.dtype))
    return SharedPoints(tf.ensure_shape(table, [len(_TABLES), None]), alias)


def on_shared_points(
    density: LogDensity,
    cavity: Cavity,
    observations: Observations,
    alpha: tf.Tensor,
    points: SharedPoints,
    negligible: Size = 0.0,
) -> OnSharedPoints:
    """
    Compute the tilted distributions of cavities.

    :param alpha: [R].
    :param points: those that serve these cavities.
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    m, v = cavity
    sd, power = tf.sqrt(v), tf.maximum(alpha, SMALLEST_POWER)
    x, sums_of = tf.split(points.table, [1, len(_TABLES) - 1])
    z = power * density.log_prob(m + sd * tf.transpose(x), *observations)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    zero = tf.zeros_like(m)
    reach = tf.fill(tf.shape(m), tf.constant(HALF, m.dtype))
    of_pi, of_q = (
        Moments(tf.reshape(sums_of @ values, [3, 5, -1]), zero, reach) for values in (tf.exp(z), T / (1.0 - T))
    )
    everywhere = tf.fill(tf.shape(m), True)
    best = best_form(of_pi, of_q, zero, cavity, power, everywhere, tf.cast(negligible, m.dtype))
    limits = np.finfo(m.dtype.as_numpy_dtype)
    is_visible = of_pi.sums[0, 0] > limits.tiny / limits.eps**2  # what underflows is then no part of it
    return OnSharedPoints(best.tilted, is_visible & (best.alias <= points.alias) & (best.truncation <= ACCURATE))


_FEW, _MORE, _MANY = 60, 96, 160  # points: of most first windows, of those of wide cavities, and of further windows
_WIDE = 5.0  # of the radius of a density: standard deviation of a wide cavity
_MAX_LEVELS = 24
_DIVIDED = 600  # rows from which on very narrow cavities have points of their own
_WINDOW_RATIO = 0.5  # ratio of windows that differ
_FLAG, _CENTER = 4, 5  # columns of the results
_TABLE = np.concatenate([weights(number) for number in (_FEW, _MORE, _MANY)], axis=1)


class Located(NamedTuple):
    """Tilted distributions, accurate in most rows; [R] each."""

    tilted: Tilted
    is_accurate: tf.Tensor  # Whether the relative errors of log Z, d1 and d2 are below 1e-8
    center: tf.Tensor  # The tilted mean, or the mode of rows that are not accurate


def first_points(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor
) -> tuple[tf.Tensor, Approximation]:
    """Return the points f that all rows are begun with, [K, R], and the tilted distributions from these alone."""
    m, v = cavity
    window = Window(tf.zeros_like(m), tf.fill(tf.shape(m), tf.constant(HALF, m.dtype)))
    integrated = trapezoid(density, cavity, observations, alpha, window, tf.constant(weights(_FEW), m.dtype))
    return m + tf.sqrt(v) * integrated.points.x, integrated


def locate(
    density: LogDensity,
    cavity: Cavity,
    observations: Observations,
    alpha: tf.Tensor,
    negligible: Size = 0.0,
    *,
    on_windows: Callable[..., tf.Tensor],
) -> Located:
    """
    Compute tilted distributions on points that cavities share, then, for rows that need it, on windows of their own.

    :param alpha: [R].
    :param negligible: see :meth:`~gpflow_pep.tilted.TiltedRule.moments`; infinity is like 0, where no row is expensive.
    :param on_windows: :func:`compute_on_windows` of the density, :func:`~gpflow_pep.runtime.tracing.on_demand`.
    """
    least, rows = _finite(negligible, alpha.dtype), Given(*cavity, alpha, *observations)
    narrow, very_narrow = (is_so(density, cavity, observations) for is_so in (is_narrow, is_very_narrow))
    divided = (tf.size(alpha) >= _DIVIDED) | ~tf.reduce_any(narrow & ~very_narrow)
    first = narrow & (very_narrow | ~divided)
    # Of all rows: to pick some costs more than the few points of the others.
    points = points_of(density, cavity, observations, first, very_narrow=divided)
    tilted, is_accurate = on_shared_points(density, cavity, observations, alpha, points, least)
    found = Located(tilted, is_accurate & first, _mean(tilted, cavity, alpha))

    def with_windows() -> tuple[tf.Tensor, ...]:
        results = on_windows(rows, narrow & divided, _results(*found[:2], cavity, alpha), least)
        *tilted, flag, center = tf.unstack(results, axis=1)
        return *tilted, flag > 0.5, center

    all_found = tf.reduce_all(found.is_accurate)
    *of_all, is_accurate, center = tf.cond(all_found, lambda: (*found.tilted, *found[1:]), with_windows)
    return Located(Tilted(*of_all), is_accurate, center)


class Given(NamedTuple):
    """Cavities, powers and observations of R rows."""

    mean: tf.Tensor  # [R]
    variance: tf.Tensor  # [R]
    alpha: tf.Tensor  # [R]
    X: tf.Tensor  # [R, D]
    Y: tf.Tensor  # [R, P]

    def taken(self, row: tf.Tensor) -> tuple[Cavity, Observations, tf.Tensor]:
        """Return some of the rows."""
        mean, variance, alpha, X, Y = (tf.gather(value, row) for value in self)
        return Cavity(mean, variance), Observations(X, Y), alpha


def compute_on_windows(
    density: LogDensity, rows: Given, narrow: tf.Tensor, results: tf.Tensor, least: tf.Tensor
) -> tf.Tensor:
    """
    Compute tilted distributions on windows about the cavity's mean, then where π is, with more and more points.

    :param narrow: rows that are begun with equispaced points that they share, [R].
    :param results: [R, 6]; those of accurate rows are returned as they are.
    """
    dtype = least.dtype
    row = tf.squeeze(tf.where(narrow & (results[:, _FLAG] == 0.0)), 1)
    cavity, observations, alpha = at = rows.taken(row)
    points = points_of(density, cavity, observations, tf.fill(tf.shape(row), True), very_narrow=tf.constant(False))
    values = _results(*on_shared_points(density, *at, points, least), cavity, alpha)
    results = tf.tensor_scatter_nd_update(results, tf.expand_dims(row, 1), values)
    rest = results[:, _FLAG] == 0.0
    table, sizes = tf.constant(_TABLE, dtype), tf.constant([_FEW, _MORE, _MANY])
    is_wide = _is_wide(density, rows.variance, rows.X)
    others, wide = tf.squeeze(tf.where(rest & ~is_wide), 1), tf.squeeze(tf.where(rest & is_wide), 1)

    def level(
        number: tf.Tensor, row: tf.Tensor, middle: tf.Tensor, half: tf.Tensor, results: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        at = rows.taken(row)
        kind = tf.minimum(number, 2)
        begin, size = tf.cumsum(sizes, exclusive=True)[kind], sizes[kind]
        points = tf.ensure_shape(table[:, begin : begin + size], [len(_TABLE), None])
        integrated = trapezoid(density, *at, Window(middle, half), points, least)
        values = _results(integrated.tilted, integrated.is_accurate, *at[::2])
        results = tf.tensor_scatter_nd_update(results, tf.expand_dims(row, 1), values)

        inaccurate = tf.squeeze(tf.where(~integrated.is_accurate), 1)
        log_pi, x = (tf.gather(value, inaccurate, axis=1) for value in (integrated.log_pi, integrated.points.x))
        row, mean, variance, peak, second_form, middle, half = (
            tf.gather(value, inaccurate)
            for value in (row, *at[0], integrated.peak, integrated.second_form, middle, half)
        )
        following, goes_on = _next(number, log_pi, x, peak, second_form, Window(middle, half))
        place = tf.stack([row, tf.fill(tf.shape(row), tf.constant(_CENTER, row.dtype))], axis=1)
        results = tf.tensor_scatter_nd_update(results, place, mean + tf.sqrt(variance) * peak)
        again = tf.squeeze(tf.where(goes_on), 1)
        row, middle, half = (tf.gather(value, again) for value in (row, *following))
        joins = wide[: tf.where(tf.equal(number, 0), tf.size(wide), 0)]
        return number + 1, *begun(joins, row, middle, half), results

    def begun(joins: tf.Tensor, row: tf.Tensor, middle: tf.Tensor, half: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """These rows, and others with their first window."""
        zero = tf.zeros(tf.shape(joins), dtype)
        parts = (row, joins), (middle, zero), (half, zero + HALF)
        return tuple(tf.concat(pair, axis=0) for pair in parts)

    none = tf.zeros([0], dtype)
    start = tf.where(tf.size(others) > 0, 0, 1)
    first = begun(tf.concat([others, wide[: start * tf.size(wide)]], axis=0), others[:0], none, none)
    *_, results = tf.while_loop(
        lambda number, row, *_: (number < _MAX_LEVELS) & (tf.size(row) > 0),
        level,
        (start, *first, results),
        shape_invariants=(tf.TensorShape([]), *[tf.TensorShape([None])] * 3, tf.TensorShape([None, 6])),
    )
    return results


def _finite(negligible: Size, dtype: tf.DType) -> tf.Tensor:
    least = tf.cast(negligible, dtype)
    return tf.where(tf.math.is_finite(least), least, tf.zeros_like(least))


def _is_wide(density: LogDensity, v: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Which rows the first few points do not serve, [R]."""
    radius = density.radius(X)
    return (tf.sqrt(v) > _WIDE * radius) & (radius > 0.0)


def _results(tilted: Tilted, is_accurate: tf.Tensor, cavity: Cavity, alpha: tf.Tensor) -> tf.Tensor:
    """Return the tilted distributions, whether they are accurate, and their means, [R, 6]."""
    return tf.stack([*tilted, tf.cast(is_accurate, alpha.dtype), _mean(tilted, cavity, alpha)], axis=1)


def _mean(tilted: Tilted, cavity: Cavity, alpha: tf.Tensor) -> tf.Tensor:
    return cavity.mean + alpha * cavity.variance * tilted.d1


def _next(
    number: tf.Tensor | int,
    log_pi: tf.Tensor,
    x: tf.Tensor,
    peak: tf.Tensor,
    second_form: tf.Tensor,
    window: Window,
) -> tuple[Window, tf.Tensor]:
    """
    The next window of rows that are not accurate, and which of them are tried again.

    From the first few points on more are tried on the same window, or on another one if that is different. Then rows
    are dropped whose window does not change any more: more points would not help.

    :param number: the number of times that points have been tried before, from 0.
    """
    following = next_window(log_pi, x, peak, second_form, window)
    change = following.half / window.half
    changes = (change < _WINDOW_RATIO) | (change > 1.0 / _WINDOW_RATIO)
    stays = (number < 1) & ~changes
    middle, half = (tf.where(stays, old, new) for old, new in zip(window, following, strict=True))
    return Window(middle, half), (number < 2) | changes


class _State(NamedTuple):
    """All rows between two levels of :func:`locate_all`."""

    window: Window
    goes_on: tf.Tensor  # Which rows are not accurate yet, and are tried again, [R]
    results: tf.Tensor  # [R, 6]


def locate_all(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0
) -> tuple[Located, Window]:
    """
    :func:`locate` in functions that XLA compiles, whose shapes cannot depend on values: at every level the points of
    all rows are evaluated. Also return the last window of each row.
    """
    m, v = cavity
    least, zero = _finite(negligible, m.dtype), tf.zeros_like(m)

    def level(number: tf.Tensor | int, size: int, rows: tf.Tensor, state: _State) -> _State:
        """Try this many points for these rows."""
        points = tf.constant(weights(size), m.dtype)
        integrated = trapezoid(density, cavity, observations, alpha, state.window, points, least)
        good, tilted = integrated.is_accurate, integrated.tilted
        center = tf.where(good, m + alpha * v * tilted.d1, m + tf.sqrt(v) * integrated.peak)
        values = tf.stack([*tilted, tf.cast(good, m.dtype), center], axis=1)
        shown = integrated.log_pi, integrated.points.x, integrated.peak, integrated.second_form
        following, again = _next(number, *shown, state.window)
        fails = rows & ~good
        pairs = zip(state.window, following, strict=True)
        window = Window(*(tf.where(fails & again, new, old) for old, new in pairs))
        results = tf.where(rows[:, None], values, state.results)
        return _State(window, tf.where(rows, fails & again, state.goes_on), results)

    points = points_of(density, cavity, observations, tf.fill(tf.shape(m), True), very_narrow=tf.constant(False))
    shared = on_shared_points(density, cavity, observations, alpha, points, least)
    rest = ~(is_narrow(density, cavity, observations) & shared.is_accurate)
    state = _State(Window(zero, zero + HALF), rest, _results(*shared, cavity, alpha))
    state = level(1, _MORE, rest, state)
    any_rows = tf.TensorShape([None])
    _, state = tf.while_loop(
        lambda number, state: (number < _MAX_LEVELS) & tf.reduce_any(state.goes_on),
        lambda number, state: (number + 1, level(number, _MANY, state.goes_on, state)),
        (tf.constant(2), state),
        shape_invariants=(tf.TensorShape([]), _State(Window(any_rows, any_rows), any_rows, tf.TensorShape([None, 6]))),
    )
    *tilted, flag, center = tf.unstack(state.results, axis=1)
    return Located(Tilted(*tilted), flag > 0.5, center), state.window


def many_points(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor, window: Window
) -> tuple[tf.Tensor, Approximation]:
    """Return many points f of these windows, [K, R], and the tilted distributions from these."""
    points = tf.constant(weights(_MANY), window.half.dtype)
    integrated = trapezoid(density, cavity, observations, alpha, window, points)
    return cavity.mean + tf.sqrt(cavity.variance) * integrated.points.x, integrated
