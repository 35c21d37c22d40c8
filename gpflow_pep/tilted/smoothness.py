"""Refuse likelihoods with a kink, whose second derivative by automatic differentiation is wrong there."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .densities import LogDensity
from .rule import Observations

_ROWS, _POINTS = 32, 2001  # rows of the data that are checked, and points f of each
_HALVINGS = 40  # of an interval; then it is as short as rounding allows


def check_smooth(density: LogDensity, observations: Observations, name: str) -> None:
    """
    Check log p(y | f) of some rows if TensorFlow differentiates it in f for quadrature.

    Quadrature integrates the second derivative. At a kink, as of |y - f|, the slope jumps, and the derivative that
    TensorFlow gives lacks the jump. A kink lies in an interval in which the slope changes by more than its derivative
    says, however often the interval is halved. (In single precision there are too few halvings: nothing is checked.)

    :param name: the name of the likelihood.
    :raises ValueError: if there is a kink.
    """
    if density.derivatives is not None or default_float() != np.float64:
        return
    rows = np.unique(np.linspace(0, len(observations.X) - 1, _ROWS).astype(int))
    x, y = (tf.gather(values, rows) for values in observations)
    largest = 10.0 * (1.0 + np.abs(y).max())
    # Slightly off the likely places of kinks, 0 and the observations.
    low = np.tile(np.linspace(-largest, largest, _POINTS)[:, None] + np.pi * 1e-4, len(rows))  # [K, R]

    def slopes(F: AnyNDArray) -> AnyNDArray:
        """Return the slope and its derivative, [2, ...]; NaN if y is impossible."""
        value, slope, curvature = (part.numpy() for part in density(tf.constant(F, default_float()), x, y))
        return np.stack([np.where(np.isfinite(value), slope, np.nan), curvature])

    def excess(width: Any, low: AnyNDArray, high: AnyNDArray) -> AnyNDArray:
        """Return by how much the slope changes more than its derivative says; 0 if that is not finite."""
        change = np.abs(high[0] - low[0] - width * (high[1] + low[1]) / 2.0)
        return np.where(np.isfinite(change), change, 0.0)

    with np.errstate(invalid="ignore", over="ignore"):
        at = slopes(low)
        steepest = np.max(np.abs(at[0]), axis=0, where=np.isfinite(at[0]), initial=0.0)  # [R]
        changes = excess(np.diff(low, axis=0), at[:, :-1], at[:, 1:])
        place = np.argmax(changes, axis=0)  # [R]
        columns = np.arange(len(rows))
        if not np.any(changes[place, columns] > 1e-3 * steepest):
            return
        left, right = low[place, columns][None], low[place + 1, columns][None]  # [1, R]
        at_left, at_right = slopes(left), slopes(right)
        jumps = [np.zeros(len(rows))]
        for _ in range(_HALVINGS):
            middle = (left + right) / 2.0
            at_middle = slopes(middle)
            is_left = excess(middle - left, at_left, at_middle) >= excess(right - middle, at_middle, at_right)
            left, right = np.where(is_left, left, middle), np.where(is_left, middle, right)
            at_left, at_right = np.where(is_left, at_left, at_middle), np.where(is_left, at_middle, at_right)
            jump = np.abs(at_left[0] - at_right[0])[0]
            jumps.append(np.where(np.isfinite(jump), jump, 0.0))
    # At a pole of log p, as of y log f² at 0, the change of the slope grows with each halving: p is smooth there.
    found = np.flatnonzero((jumps[-1] > 1e-4 * steepest) & (jumps[-1] < 2.0 * jumps[_HALVINGS // 2]))
    if found.size:
        row = found[0]
        raise ValueError(
            f"likelihood must be twice differentiable in f, but the slope of {name}'s log density "
            f"jumps by {jumps[-1][row]:.3g} at f = {left[0, row]:.6g} in row {rows[row]}. Try: a smooth one, with "
            "tf.sqrt(u**2 + 1e-4) in place of tf.abs(u), or your own rule (gpflow_pep.tilted.tilted_rule)."
        )
