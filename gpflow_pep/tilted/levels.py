"""The trapezoid rule on windows that follow the tilted distributions: few points for all rows, more for some."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .densities import LogDensity
from .rule import Cavity, Observations, Size, Tilted
from .trapezoid import LARGEST_STEP, Approximation, Window, next_window, trapezoid, weights

_FEWEST, _FEW, _MANY = 36, 60, 160  # points: of cavities that are narrow, of others, and of rows that need more
_HALF = 8.5  # of the first window, in standard deviations of the cavity
_MAX_LEVELS = 24
_WINDOW_RATIO = 0.5  # ratio of windows that differ
_CENTER = 5  # column of the results
_TABLE = np.concatenate([weights(number) for number in (_FEWEST, _FEW, _MANY)], axis=1)


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
    window = Window(tf.zeros_like(m), tf.fill(tf.shape(m), tf.constant(_HALF, m.dtype)))
    integrated = trapezoid(density, cavity, observations, alpha, window, tf.constant(weights(_FEW), m.dtype))
    return m + tf.sqrt(v) * integrated.points.x, integrated


def locate(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0
) -> Located:
    """
    Compute tilted distributions on points about the cavity's mean, then, for rows that need it, where π is.

    :param alpha: [R].
    :param negligible: see :meth:`~gpflow_pep.tilted.TiltedRule.moments`; infinity is like 0, where no row is expensive.
    """
    m, v = cavity
    least = tf.cast(negligible, m.dtype)
    least = tf.where(tf.math.is_finite(least), least, tf.zeros_like(least))
    dtype, R = m.dtype, tf.shape(m)[0]
    table = tf.constant(_TABLE, dtype)
    of_rows = tf.stack([m, v, alpha], axis=1)
    sizes = tf.constant([_FEWEST, _FEW, _MANY])
    few_are_fine = 2.0 * _HALF / (_FEWEST - 1) * tf.sqrt(v) <= LARGEST_STEP * density.radius(observations.X)
    narrow, wide = tf.where(few_are_fine)[:, 0], tf.where(~few_are_fine)[:, 0]

    def level(
        number: tf.Tensor, row: tf.Tensor, middle: tf.Tensor, half: tf.Tensor, results: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        X, Y, rows = (tf.gather(value, row) for value in (*observations, of_rows))
        kind = tf.minimum(number, 2)
        begin, size = tf.cumsum(sizes, exclusive=True)[kind], sizes[kind]
        points = tf.ensure_shape(table[:, begin : begin + size], [len(_TABLE), None])
        mean, variance, power = tf.unstack(rows, axis=1)
        window = Window(middle, half)
        integrated = trapezoid(density, Cavity(mean, variance), Observations(X, Y), power, window, points, least)
        flag = tf.cast(integrated.is_accurate, dtype)
        values = tf.stack([*integrated.tilted, flag, mean + power * variance * integrated.tilted.d1], axis=1)
        results = tf.tensor_scatter_nd_update(results, row[:, None], values)

        inaccurate = tf.where(~integrated.is_accurate)[:, 0]
        log_pi, x = (tf.gather(value, inaccurate, axis=1) for value in (integrated.log_pi, integrated.points.x))
        row, mean, variance, peak, second_form, middle, half = (
            tf.gather(value, inaccurate)
            for value in (row, mean, variance, integrated.peak, integrated.second_form, middle, half)
        )
        following = next_window(log_pi, x, peak, second_form, Window(middle, half))
        place = tf.stack([row, tf.fill(tf.shape(row), tf.constant(_CENTER, row.dtype))], axis=1)
        results = tf.tensor_scatter_nd_update(results, place, mean + tf.sqrt(variance) * peak)
        change = following.half / half
        changes = (change < _WINDOW_RATIO) | (change > 1.0 / _WINDOW_RATIO)
        # From the first few points on more are tried on the same window, or on another one if that is different. Then
        # rows are dropped whose window does not change any more: more points would not help.
        stays = (number < 1) & ~changes
        middle, half = (tf.where(stays, old, new) for old, new in zip((middle, half), following, strict=True))
        again = tf.where((number < 2) | changes)[:, 0]
        row, middle, half = (tf.gather(value, again) for value in (row, middle, half))
        joins = wide[: tf.where(tf.equal(number, 0), tf.size(wide), 0)]
        return number + 1, *begun(joins, row, middle, half), results

    def begun(joins: tf.Tensor, row: tf.Tensor, middle: tf.Tensor, half: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """These rows, and others with their first window."""
        zero = tf.zeros(tf.shape(joins), dtype)
        parts = (row, joins), (middle, zero), (half, zero + _HALF)
        return tuple(tf.concat(pair, axis=0) for pair in parts)

    none = tf.zeros([0], dtype)
    starts_narrow = tf.size(narrow) > 0
    first = begun(tf.cond(starts_narrow, lambda: narrow, lambda: wide), narrow[:0], none, none)
    *_, results = tf.while_loop(
        lambda number, row, *_: (number < _MAX_LEVELS) & (tf.size(row) > 0),
        level,
        (tf.where(starts_narrow, 0, 1), *first, tf.zeros([R, 6], dtype)),
        shape_invariants=(tf.TensorShape([]), *[tf.TensorShape([None])] * 3, tf.TensorShape([None, 6])),
    )
    *tilted, flag, center = tf.unstack(results, axis=1)
    return Located(Tilted(*tilted), flag > 0.5, center)
