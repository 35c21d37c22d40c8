"""Newton's method where sweeps stop approaching a fixed point: steps of the loop of :mod:`.convergence`.

It starts at the best sites and sweeps at sites nearby (probes), which gives derivatives along the directions that
matter (generalized conjugate residuals). Then it tries the step that follows from them, halved until it makes the
update smaller.
"""

import tensorflow as tf

from ..runtime.distribution import Workers
from .anderson import Step, choose
from .solution import NEWTON_STEP, PROBING, SWEEPING, ConvergenceOptions, Iterate, Loop, largest_fraction, rounding

_SOLVED = 0.1  # what probes may leave of an update, as a fraction
_NEARBY = (1e-5, 1e-3)  # limits of the distance of a probe from the iterate, which is that of the update
_SMALLEST_STEP = 0.01  # of Newton's steps
_LEAST_DECREASE = 0.01  # of the norm of the update, as a fraction, by a whole Newton step


def returns_to_best(loop: Loop) -> tf.Tensor:
    """Return whether the candidate is the best sites, where Newton's method begins."""
    return tf.equal(loop.kind, NEWTON_STEP) & tf.equal(loop.step_size, 0.0)


def is_nearer(workers: Workers, is_bound: tf.Tensor, loop: Loop, iterate: Iterate) -> tf.Tensor:
    """Return whether a Newton step has made the update smaller, or a bound larger."""
    before, now = (workers.norm(there.normalized(there.update)) for there in (loop.iterate, iterate))
    gains = is_bound & (iterate.log_evidence > loop.iterate.log_evidence + rounding(loop.iterate))
    return (now < (1.0 - _LEAST_DECREASE * loop.step_size) * before) | gains | returns_to_best(loop)


def _nearby(workers: Workers, iterate: Iterate, direction: tf.Tensor) -> tf.Tensor:
    """Return sites near the iterate, in this direction."""
    size = tf.clip_by_value(iterate.change, *(tf.constant(limit, direction.dtype) for limit in _NEARBY))
    largest = workers.largest(tf.reduce_max(tf.abs(iterate.normalized(direction))))
    return iterate.sites + tf.math.divide_no_nan(size, largest) * direction


def follow(workers: Workers, loop: Loop, step: Step) -> Loop:
    """Go on from the end of a Newton step: probe in the direction of the update."""
    return loop._replace(candidate=_nearby(workers, loop.iterate, step.left), kind=tf.constant(PROBING))


def halve(options: ConvergenceOptions, loop: Loop) -> Loop:
    """Try half of a Newton step; go back to sweeps where that is too small."""
    size = 0.5 * loop.step_size
    fails = size < _SMALLEST_STEP
    return loop._replace(
        candidate=choose(fails, loop.iterate.sites, loop.iterate.sites + size * loop.newton),
        kind=tf.where(fails, SWEEPING, NEWTON_STEP),
        fraction=tf.where(fails, largest_fraction(options, loop.attempt), loop.fraction),
        comparable=loop.comparable & ~fails,
        step_size=size,
        stalled=tf.where(fails, 0, loop.stalled),
        patience=tf.where(fails, 2 * loop.patience, loop.patience),
    )


def probe_on(workers: Workers, loop: Loop, accepted: tf.Tensor, step: Step) -> Loop:
    """Probe in the direction of what is left of the update, or try Newton's step if little is."""
    iterate = loop.iterate
    left, whole = (workers.norm(iterate.normalized(change)) for change in (step.left, iterate.update))
    enough = ~accepted | (loop.secants.count >= loop.secants.depth) | (left < _SOLVED * whole)
    return loop._replace(
        candidate=choose(enough, iterate.sites + step.newton, _nearby(workers, iterate, step.left)),
        kind=tf.where(enough, NEWTON_STEP, PROBING),
        newton=step.newton,
        step_size=tf.ones_like(loop.step_size),
    )
