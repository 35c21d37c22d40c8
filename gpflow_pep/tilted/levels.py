"""The trapezoid rule, with more points for rows that need them, and on windows that follow the tilted distributions."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .densities import LogDensity
from .forms import weights
from .rule import Cavity, Observations, Size, Tilted
from .shared_points import HALF, is_narrow, is_very_narrow, on_shared_points, points_of
from .trapezoid import Approximation, Window, next_window, trapezoid

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
    :param on_windows: :func:`compute_on_windows` of the density, :func:`~gpflow_pep.graphs.on_demand`.
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
