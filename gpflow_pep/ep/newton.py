"""Newton's method for fixed points that sweeps do not approach: an unstable one, if labels contradict each other, say.

It starts at the best sites and sweeps at sites nearby (probes), which gives derivatives along the directions that
matter (generalized conjugate residuals). Then it tries the step that follows from them, halved until it makes the
update smaller.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..runtime.distribution import Workers
from .anderson import Anderson, Step
from .sweep import Iterate

PATIENCE = 30
"""Sweeps that do not halve the change before Newton's method begins; twice as many after it failed."""
_LEAST_DEPTH = 5  # secants that must be remembered: with fewer, Newton's step is no better than Anderson's
_SOLVED = 0.1  # the remainder at which probes end, as a fraction of the update
_NEARBY = (1e-5, 1e-3)  # limits of the distance of a probe: above rounding, and in the range of linearity
_SMALLEST_STEP = 0.01  # fraction of Newton's step below which sweeps go on
_LEAST_DECREASE = 0.01  # of the norm of the update, as a fraction, by a whole Newton step


class Newton(NamedTuple):
    """State of Newton's method, and of the decision to use it."""

    step: tf.Tensor  # Newton's step from the iterate, [N, 2, C]
    size: tf.Tensor  # fraction of the Newton step being tried; 0 before the first, []
    stalled: tf.Tensor  # sweeps since the change was last halved, []
    patience: tf.Tensor  # stalled sweeps allowed before Newton steps start, []
    change: tf.Tensor  # the change when it was last halved, []

    @classmethod
    def start(cls, sites: tf.Tensor) -> "Newton":
        """Start with sweeps."""
        zero, inf = tf.zeros([], sites.dtype), tf.constant(np.inf, sites.dtype)
        return cls(tf.zeros_like(sites), zero, tf.constant(0), tf.constant(PATIENCE), inf)

    def after(self, iterate: Iterate) -> "Newton":
        """Count an accepted sweep."""
        halved = iterate.change < 0.5 * self.change
        return self._replace(
            size=tf.zeros_like(self.size),
            stalled=tf.where(halved, 0, self.stalled + 1),
            change=tf.where(halved, iterate.change, self.change),
        )

    def begins(self, anderson: Anderson) -> tf.Tensor:
        """Return whether sweeps have stalled, and enough secants can be remembered."""
        return (self.stalled >= self.patience) & (anderson.secants.depth >= _LEAST_DEPTH)

    def is_acceptable(self, workers: Workers, is_bound: tf.Tensor, last: Iterate, iterate: Iterate) -> tf.Tensor:
        """Return whether the step has made the update smaller, or a bound larger; the best sites are accepted."""
        before, now = (workers.norm(there.normalized(there.update)) for there in (last, iterate))
        gains = is_bound & (iterate.log_evidence > last.log_evidence + last.rounding())
        return (now < (1.0 - _LEAST_DECREASE * self.size) * before) | gains | tf.equal(self.size, 0.0)

    def halved(self) -> tuple["Newton", tf.Tensor]:
        """Try half of the step; return also if that is too small, so that sweeps go on."""
        size = 0.5 * self.size
        fails = size < _SMALLEST_STEP
        stalled, patience = tf.where(fails, 0, self.stalled), tf.where(fails, 2 * self.patience, self.patience)
        return self._replace(size=size, stalled=stalled, patience=patience), fails

    def probed(self, step: Step) -> "Newton":
        """Take the whole step that the probes predict so far."""
        return self._replace(step=step.newton, size=tf.ones_like(self.size))


def ends_probing(workers: Workers, iterate: Iterate, anderson: Anderson, step: Step) -> tf.Tensor:
    """Return whether the probes explain enough of the update, or no more can be remembered."""
    remainder, whole = (workers.norm(iterate.normalized(change)) for change in (step.remainder, iterate.update))
    return (anderson.secants.count >= anderson.secants.depth) | (remainder < _SOLVED * whole)


def probe(workers: Workers, iterate: Iterate, direction: tf.Tensor) -> tf.Tensor:
    """Return sites near the iterate, in this direction."""
    size = tf.clip_by_value(iterate.change, *(tf.constant(limit, direction.dtype) for limit in _NEARBY))
    largest = workers.largest(tf.reduce_max(tf.abs(iterate.normalized(direction))))
    return iterate.sites + tf.math.divide_no_nan(size, largest) * direction
