"""
Newton's method for unstable fixed points, from which sweeps diverge (contradictory labels, for
example).

It starts at the best sites and sweeps at nearby sites (probes), which gives derivatives along the
directions that matter (generalized conjugate residuals). Then it tries the resulting step, halved
until the update is smaller.
"""

import tensorflow as tf

from ..runtime import Workers
from .anderson import Anderson, Step
from .sweep import Iterate

LEAST_DEPTH = 5  # stored secants: with fewer, Newton's step is no better than Anderson's
# The least relative decrease of the update's norm that is worth a Newton step: a full step must
# achieve it. It is also the smallest fraction of a step to try, because to first order a fraction
# decreases the norm by that fraction.
LEAST_DECREASE = 0.01
_SOLVED = 0.1  # probing ends at this remainder, as a fraction of the update
# Limits of the distance of a probe: above rounding, within the range of linearity.
_NEARBY = (1e-5, 1e-3)


def is_acceptable(
    workers: Workers, is_bound: tf.Tensor, size: tf.Tensor, last: Iterate, iterate: Iterate
) -> tf.Tensor:
    """
    Return whether a step reduced the update or increased a bound; the best sites (size 0) are
    accepted.
    """
    before, now = (
        workers.norm(each.swept.normalized(each.swept.update)) for each in (last, iterate)
    )
    gains = is_bound & (iterate.log_evidence > last.log_evidence + last.rounding())
    return (now < (1.0 - LEAST_DECREASE * size) * before) | gains | tf.equal(size, 0.0)


def ends_probing(workers: Workers, iterate: Iterate, anderson: Anderson, step: Step) -> tf.Tensor:
    """Return whether the secants predict enough of the update, or their ring buffer is full."""
    remainder, whole = (
        workers.norm(iterate.swept.normalized(each))
        for each in (step.remainder, iterate.swept.update)
    )
    return (anderson.secants.count >= anderson.secants.depth) | (remainder < _SOLVED * whole)


def probe(workers: Workers, iterate: Iterate, direction: tf.Tensor) -> tf.Tensor:
    """Return sites near the iterate in the given direction."""
    size = tf.clip_by_value(iterate.change, *_NEARBY)
    largest = workers.largest(tf.reduce_max(tf.abs(iterate.swept.normalized(direction))))
    return iterate.swept.sites + tf.math.divide_no_nan(size, largest) * direction
