"""
Reject likelihoods with a kink, at which automatic differentiation gives a wrong second derivative.
"""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .densities import LogDensity
from .rule import Observations


def check_smooth(density: LogDensity, observations: Observations, name: str) -> None:
    """
    Check log p(y | f) on a subset of rows if quadrature uses its automatic derivatives.

    Quadrature integrates the second derivative. At a kink, such as in |y - f|, the slope jumps, and
    automatic differentiation misses the jump. In an interval with a kink the change of the slope
    exceeds the integral of its derivative, however small the interval. Single precision cannot
    resolve such intervals: nothing is checked.

    :param name: the name of the likelihood.
    :raises ValueError: if there is a kink.
    """
    if density.derivatives is not None or default_float() != np.float64:
        return
    rows = np.unique(np.linspace(0, len(observations.X) - 1, 32).astype(int))  # 32 rows
    x, y = (tf.gather(values, rows) for values in observations)
    largest = 10.0 * (1.0 + np.abs(y).max())
    # 2001 points, shifted slightly off the likely kinks: 0 and the observations.
    low = np.tile(np.linspace(-largest, largest, 2001)[:, None] + np.pi * 1e-4, len(rows))  # [K, R]

    def slopes(F: AnyNDArray) -> AnyNDArray:
        """Return the slope and its derivative, [2, ...]; NaN if p = 0."""
        value, slope, curvature = (
            part.numpy() for part in density(tf.constant(F, default_float()), x, y)
        )
        return np.stack([np.where(np.isfinite(value), slope, np.nan), curvature])

    def excess(width: object, low: AnyNDArray, high: AnyNDArray) -> AnyNDArray:
        """Return the change of the slope beyond the integral of its derivative; 0 if not finite."""
        change = np.abs(high[0] - low[0] - width * (high[1] + low[1]) / 2.0)
        return np.where(np.isfinite(change), change, 0.0)

    with np.errstate(invalid="ignore", over="ignore"):
        at = slopes(low)
        steepest = np.max(np.abs(at[0]), axis=0, where=np.isfinite(at[0]), initial=0.0)  # [R]
        changes = excess(np.diff(low, axis=0), at[:, :-1], at[:, 1:])
        index = np.argmax(changes, axis=0)  # [R]
        columns = np.arange(len(rows))
        if not np.any(changes[index, columns] > 1e-3 * steepest):
            return
        ends = low[[index, index + 1], columns]  # [2, R]
        at_ends = slopes(ends)  # [2, 2, R]
        jumps = [np.zeros(len(rows))]
        num_halvings = 40  # then the interval is as short as rounding allows
        for _ in range(num_halvings):
            middle = ends.mean(axis=0)
            at_middle = slopes(middle[None])[:, 0]
            left = excess(middle - ends[0], at_ends[:, 0], at_middle)
            right = excess(ends[1] - middle, at_middle, at_ends[:, 1])
            moving = (left >= right).astype(int)  # the end that is farther from the kink
            ends[moving, columns] = middle
            at_ends[:, moving, columns] = at_middle
            jump = np.abs(at_ends[0, 0] - at_ends[0, 1])
            jumps.append(np.where(np.isfinite(jump), jump, 0.0))
    # At a pole of log p (y log f² at 0) the change of the slope grows with each halving, but p is
    # smooth.
    found = np.flatnonzero(
        (jumps[-1] > 1e-4 * steepest) & (jumps[-1] < 2.0 * jumps[num_halvings // 2])
    )
    if found.size:
        row = found[0]
        raise ValueError(
            f"likelihood must be twice differentiable in f, but the slope of {name}'s log density "
            f"jumps by {jumps[-1][row]:.3g} at f = {ends[0, row]:.6g} in row {rows[row]}. Try: a "
            "smooth density (tf.sqrt(u**2 + 1e-4) instead of tf.abs(u)), or register a rule "
            "(gpflow_pep.tilted.tilted_rule)."
        )
