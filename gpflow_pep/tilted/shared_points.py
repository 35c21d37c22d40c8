"""The trapezoid rule on points that all narrow cavities share.

Where the step is a small part of the radius within which a density is analytic, equispaced points x = (f - m)/√v over
the cavity are accurate (:mod:`.trapezoid`). They are the same for all rows, and so are N(f; m, v) and its moments: only
p(y|f)^α is computed at each, and all sums are two products with one matrix.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..graphs import in_xla
from .densities import LogDensity
from .forms import Moments, best_form, weights
from .rule import Cavity, Observations, Size, Tilted
from .trapezoid import ACCURATE, ALIAS, LARGEST_STEP, SMALLEST_POWER

HALF = 8.5  # of the window, and of every first window, in standard deviations of the cavity
_NUMBERS = (36, 48)  # of points: where the step is a small part of the radius, and elsewhere
_SMALL_STEP = 0.17  # in units of the radius


def _step(number: int) -> float:
    return 2.0 * HALF / (number - 1)


def _points(number: int) -> AnyNDArray:
    """Return x and the weights of 15 sums over the points, [16, K]: of N(f; m, v) √v times 1, x and x²."""
    unit, *sums = weights(number)
    x = HALF * unit
    normal = _step(number) * np.exp(-0.5 * np.square(x))
    return np.stack([x, *(normal * x**power * each for power in range(3) for each in sums)])


class OnSharedPoints(NamedTuple):
    """Tilted distributions of narrow cavities."""

    tilted: Tilted
    is_accurate: tf.Tensor  # Whether the relative errors of log Z, d1 and d2 are below 1e-8, [R]


def is_narrow(density: LogDensity, cavity: Cavity, observations: Observations) -> tf.Tensor:
    """Whether shared points may be accurate, [R]."""
    return _step(_NUMBERS[-1]) * tf.sqrt(cavity.variance) <= LARGEST_STEP * density.radius(observations.X)


def on_shared_points(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0
) -> OnSharedPoints:
    """
    Compute the tilted distributions of cavities that are all narrow (:func:`is_narrow`).

    :param alpha: [R].
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    m, v = cavity
    sd, power = tf.sqrt(v), tf.maximum(alpha, SMALLEST_POWER)
    table = _table(sd, density.radius(observations.X))
    x, sums_of = table[0], table[1:]
    z = power * density.log_prob(m + sd * x[:, None], *observations)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    zero = tf.zeros_like(m)
    reach = tf.fill(tf.shape(m), tf.constant(HALF, m.dtype))
    of_pi, of_q = (
        Moments(tf.reshape(sums_of @ values, [3, 5, -1]), zero, reach) for values in (tf.exp(z), T / (1.0 - T))
    )
    everywhere = tf.fill(tf.shape(m), True)
    best = best_form(of_pi, of_q, zero, cavity, power, everywhere, tf.cast(negligible, m.dtype))
    return OnSharedPoints(best.tilted, (best.alias <= ALIAS) & (best.truncation <= ACCURATE))


def _table(sd: tf.Tensor, radius: tf.Tensor | float) -> tf.Tensor:
    """Return the points and weights that serve all of these cavities."""
    few, more = (tf.constant(_points(number), sd.dtype) for number in _NUMBERS)
    if in_xla():  # where the number of points cannot depend on values
        return more
    suffice = tf.reduce_all(_step(_NUMBERS[0]) * sd <= _SMALL_STEP * radius)
    first, size = (tf.where(suffice, *pair) for pair in ((0, _NUMBERS[0]), _NUMBERS))
    return tf.ensure_shape(tf.concat([few, more], axis=1)[:, first : first + size], [few.shape[0], None])
