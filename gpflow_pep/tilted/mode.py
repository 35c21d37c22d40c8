"""The mode of a tilted distribution, about which its integrals are taken.

Notation: π(f) = N(f; m, v) p(y|f)^α / Z, l = log p(y|f).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .densities import Density, LogDensity
from .rule import Cavity, Observations

_MAX_NEWTON = 60
_SHORTEST_STEP = 1e-12  # of a Newton step; where exp(f) begins to bend, m may be v y from the mode
# Where l is like -exp(f) Newton's steps are of length 1, however far it is: while they gain so many nats, they grow.
_FAR_BELOW, _LONGEST_STEP = 20.0, 64.0
_NEAR_MODE = 0.3  # of the tilted distribution's standard deviation


class Centred(NamedTuple):
    """Rows in units of their own cavity: f = centre + sd x; [R] each."""

    centre: tf.Tensor
    sd: tf.Tensor
    shift: tf.Tensor
    """(centre - m) / sd"""
    height: tf.Tensor
    """α l(centre) - shift²/2, so that π is about 1 there before it is normalised."""
    slope: tf.Tensor
    """l'(centre)"""


def centre(density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> Centred:
    """
    Near the mode of π, by Newton steps from m that are shortened until log π grows; where l is not concave, from a
    curvature that is. Any centre gives the same integrals; the mode needs the fewest panels.
    """
    m, v = cavity.mean, cavity.variance
    sd = tf.sqrt(v)

    def evaluate(f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Density]:
        """log π + constant, Newton's step and l, l', l'' at f."""
        at = Density(*(value[0] for value in density(f[None], observations.X, observations.Y)))
        log_pi = alpha * at.log_prob - 0.5 * tf.square((f - m) / sd)
        uphill = v * alpha * at.slope - (f - m)
        step = uphill / (1.0 + v * alpha * tf.nn.relu(-at.curvature))
        return tf.where(tf.math.is_finite(log_pi), log_pi, -np.inf), step, at

    def near(step: tf.Tensor, curvature: tf.Tensor) -> tf.Tensor:
        """Whether the mode is near, in the tilted distribution's standard deviation."""
        return tf.abs(step) * tf.sqrt(1.0 / v + alpha * tf.nn.relu(-curvature)) < _NEAR_MODE

    def climb(
        number: tf.Tensor, f: tf.Tensor, log_pi: tf.Tensor, step: tf.Tensor, length: tf.Tensor, *at: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        candidate = f + length * step
        new_log_pi, new_step, new_at = evaluate(candidate)
        better = new_log_pi > log_pi
        shorter = tf.where(length > _SHORTEST_STEP, 0.25 * length, tf.zeros_like(length))
        far = new_log_pi - log_pi > _FAR_BELOW
        longest = tf.where(far, _LONGEST_STEP * tf.ones_like(length), tf.ones_like(length))
        length = tf.where(better, tf.minimum(4.0 * length, longest), shorter)
        moved = (
            tf.where(better, new, old)
            for new, old in zip((candidate, new_log_pi, new_step, *new_at), (f, log_pi, step, *at), strict=True)
        )
        f, log_pi, step, *density_there = moved
        length = tf.where(near(step, density_there[2]), tf.zeros_like(length), length)
        return number + 1, f, log_pi, step, length, *density_there

    log_pi, step, at = evaluate(m)
    length = tf.where(near(step, at.curvature), tf.zeros_like(m), tf.ones_like(m))
    _, f, log_pi, _, _, *at = tf.while_loop(
        lambda number, f, log_pi, step, length, *at: (number < _MAX_NEWTON) & tf.reduce_any(length > 0.0),
        climb,
        (tf.constant(0), m, log_pi, step, length, *at),
    )
    return Centred(f, sd, (f - m) / sd, log_pi, at[1])
