"""Refuse likelihoods with a kink, whose second derivative by automatic differentiation is wrong there."""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .densities import LogDensity
from .rule import Observations

_ROWS, _POINTS = 32, 2001
_STEEPEST = 1e-3  # change of the slope between two points beyond that of its derivative, of the largest slope
_JUMP = 1e-4  # change of the slope over the last interval, of the largest slope
_HALVINGS = 40
_GROWTH = 2.0  # of the change of the slope in the last half of the halvings; more is a pole

_Slopes: TypeAlias = tuple[AnyNDArray, AnyNDArray]
"""Slopes of the log density, and their derivatives."""


def check_smooth(density: LogDensity, observations: Observations, name: str) -> None:
    """
    Check log p(y | f) of some rows where TensorFlow differentiates it in f for quadrature.

    Quadrature integrates the second derivative. At a kink, as that of |y - f|, the slope jumps, and the derivative that
    TensorFlow gives lacks the jump. A kink lies in an interval in which the slope changes by more than its derivative
    says, however often the interval is halved. (In single precision there are too few halvings: nothing is checked.)

    :param name: that of the likelihood.
    :raises ValueError: if there is a kink.
    """
    if density.derivatives is not None or default_float() != np.float64:
        return
    rows = np.unique(np.linspace(0, len(observations.X) - 1, _ROWS).astype(int))
    x, y = (tf.gather(values, rows) for values in observations)
    largest = 10.0 * (1.0 + np.abs(y).max())
    # Slightly off the places where kinks are likely, 0 and the observations.
    low = np.tile(np.linspace(-largest, largest, _POINTS)[:, None] + np.pi * 1e-4, len(rows))  # [K, R]

    def slopes(F: AnyNDArray) -> _Slopes:
        """Slope and its derivative, NaN where y is impossible."""
        value, slope, curvature = (part.numpy() for part in density(tf.constant(F, default_float()), x, y))
        return np.where(np.isfinite(value), slope, np.nan), curvature

    def excess(width: Any, low: _Slopes, high: _Slopes) -> AnyNDArray:
        """By how much the slope changes more than its derivative says; 0 where that is no number."""
        change = np.abs(high[0] - low[0] - width * (high[1] + low[1]) / 2.0)
        return np.where(np.isfinite(change), change, 0.0)

    with np.errstate(invalid="ignore", over="ignore"):
        slope, curvature = slopes(low)
        steepest = np.max(np.abs(slope), axis=0, where=np.isfinite(slope), initial=0.0)  # [R]
        changes = excess(np.diff(low, axis=0), (slope[:-1], curvature[:-1]), (slope[1:], curvature[1:]))
        place = np.argmax(changes, axis=0)  # [R]
        columns = np.arange(len(rows))
        if not np.any(changes[place, columns] > _STEEPEST * steepest):
            return
        left, right = low[place, columns][None], low[place + 1, columns][None]  # [1, R]
        at_left, at_right = slopes(left), slopes(right)
        jumps = [np.zeros(len(rows))]
        for _ in range(_HALVINGS):
            middle = (left + right) / 2.0
            at_middle = slopes(middle)
            is_left = excess(middle - left, at_left, at_middle) >= excess(right - middle, at_middle, at_right)
            left, right = np.where(is_left, left, middle), np.where(is_left, middle, right)
            at_left, at_right = _chosen(is_left, at_left, at_middle), _chosen(is_left, at_middle, at_right)
            jump = np.abs(at_left[0] - at_right[0])[0]
            jumps.append(np.where(np.isfinite(jump), jump, 0.0))
    # At a pole of log p, as that of y log f² at 0, the change of the slope grows with each halving: p is smooth there.
    found = np.flatnonzero((jumps[-1] > _JUMP * steepest) & (jumps[-1] < _GROWTH * jumps[_HALVINGS // 2]))
    if found.size:
        row = found[0]
        raise ValueError(
            f"likelihood must be twice differentiable in f, but the slope of {name}'s log density "
            f"jumps by {jumps[-1][row]:.3g} at f = {left[0, row]:.6g} in row {rows[row]}. Try: a smooth one, with "
            "tf.sqrt(u**2 + 1e-4) in place of tf.abs(u), or your own rule (gpflow_pep.tilted.tilted_rule)."
        )


def _chosen(mask: AnyNDArray, first: _Slopes, second: _Slopes) -> _Slopes:
    return np.where(mask, first[0], second[0]), np.where(mask, first[1], second[1])
