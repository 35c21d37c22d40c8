"""Quadrature on points x = (f - m)/√v that all narrow cavities share.

Points that are the same for all rows have the same N(f; m, v) and moments of it: only p(y|f)^α is computed at each, and
all sums are two products with one matrix. There are two kinds:

- Gauss-Hermite nodes, for cavities much narrower than the radius within which a density is analytic. Of n nodes the
  error is what the Hermite coefficients of orders 2n and more are, times 2^-n; coefficients fall off like a geometric
  sequence or faster, and those of the orders n - 1 and n - 2 are sums over the nodes.
- The trapezoid rule (:mod:`.trapezoid`), where equispaced points are close together compared with the radius.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import roots_hermitenorm

from ..graphs import in_xla
from .densities import LogDensity
from .forms import Moments, best_form, weights
from .rule import Cavity, Observations, Size, Tilted
from .trapezoid import ACCURATE, ALIAS, LARGEST_STEP, SMALLEST_POWER

HALF = 8.5  # of the window, and of every first window, in standard deviations of the cavity
_NUMBERS = (36, 48)  # of equispaced points: where the step is a small part of the radius, and elsewhere
_SMALL_STEP = 0.17  # in units of the radius
_NODES = 16  # of Gauss-Hermite quadrature
_SMALL_WIDTH = 0.2  # standard deviation up to which they serve, in units of the radius
_HERMITE_ALIAS = 1e-2  # the largest relative size of their last two coefficients


class SharedPoints(NamedTuple):
    """Points, and when sums over them are accurate."""

    table: tf.Tensor  # x and the weights of 15 sums, [16, K]: N(f; m, v) √v times 1, x and x², times those of `weights`
    alias: tf.Tensor  # The largest relative amplitude of a spectrum, or of the last coefficients


def _gauss_hermite(number: int) -> AnyNDArray:
    x, mass = roots_hermitenorm(number)
    hermite = [np.ones(number), x]  # orthonormal
    for order in range(2, number):
        hermite.append((x * hermite[-1] - np.sqrt(order - 1.0) * hermite[-2]) / np.sqrt(order))
    nothing = np.zeros(number)  # beyond the nodes
    return _table(x, mass, [hermite[0], hermite[-1], hermite[-2], nothing, nothing])


def _equispaced(number: int) -> AnyNDArray:
    unit, *sums = weights(number)
    x = HALF * unit
    return _table(x, _step(number) * np.exp(-0.5 * np.square(x)), sums)


def _step(number: int) -> float:
    return 2.0 * HALF / (number - 1)


def _table(x: AnyNDArray, mass: AnyNDArray, sums: list[AnyNDArray]) -> AnyNDArray:
    return np.stack([x, *(mass * x**power * each for power in range(3) for each in sums)])


_TABLES = np.concatenate([_gauss_hermite(_NODES), *map(_equispaced, _NUMBERS)], axis=1)


class OnSharedPoints(NamedTuple):
    """Tilted distributions of narrow cavities."""

    tilted: Tilted
    is_accurate: tf.Tensor  # Whether the relative errors of log Z, d1 and d2 are below 1e-8, [R]


def is_narrow(density: LogDensity, cavity: Cavity, observations: Observations) -> tf.Tensor:
    """Whether equispaced points may be accurate, [R]."""
    return _step(_NUMBERS[-1]) * tf.sqrt(cavity.variance) <= LARGEST_STEP * density.radius(observations.X)


def is_very_narrow(density: LogDensity, cavity: Cavity, observations: Observations) -> tf.Tensor:
    """Whether Gauss-Hermite nodes may be accurate, [R]."""
    return tf.sqrt(cavity.variance) <= _SMALL_WIDTH * density.radius(observations.X)


def points_of(
    density: LogDensity, cavity: Cavity, observations: Observations, which: tf.Tensor, *, very_narrow: tf.Tensor
) -> SharedPoints:
    """
    Return the points that serve some of these cavities, which are narrow; none where there are no such cavities.

    :param which: which of them, [R].
    :param very_narrow: whether to return those that serve very narrow ones only, [].
    """
    sd = tf.sqrt(cavity.variance)
    if in_xla():  # where the number of points cannot depend on values
        return SharedPoints(tf.constant(_equispaced(_NUMBERS[-1]), sd.dtype), tf.constant(ALIAS, sd.dtype))
    suffice = tf.reduce_all((_step(_NUMBERS[0]) * sd <= _SMALL_STEP * density.radius(observations.X)) | ~which)
    kind = tf.where(tf.reduce_any(which), tf.where(very_narrow, 0, tf.where(suffice, 1, 2)), 3)
    sizes = tf.constant([_NODES, *_NUMBERS, 0])
    first, size = tf.cumsum(sizes, exclusive=True)[kind], sizes[kind]
    table = tf.constant(_TABLES, sd.dtype)[:, first : first + size]
    alias = tf.where(very_narrow, tf.constant(_HERMITE_ALIAS, sd.dtype), tf.constant(ALIAS, sd.dtype))
    return SharedPoints(tf.ensure_shape(table, [len(_TABLES), None]), alias)


def on_shared_points(
    density: LogDensity,
    cavity: Cavity,
    observations: Observations,
    alpha: tf.Tensor,
    points: SharedPoints,
    negligible: Size = 0.0,
) -> OnSharedPoints:
    """
    Compute the tilted distributions of cavities.

    :param alpha: [R].
    :param points: those that serve these cavities.
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    m, v = cavity
    sd, power = tf.sqrt(v), tf.maximum(alpha, SMALLEST_POWER)
    x, sums_of = tf.split(points.table, [1, len(_TABLES) - 1])
    z = power * density.log_prob(m + sd * tf.transpose(x), *observations)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    zero = tf.zeros_like(m)
    reach = tf.fill(tf.shape(m), tf.constant(HALF, m.dtype))
    of_pi, of_q = (
        Moments(tf.reshape(sums_of @ values, [3, 5, -1]), zero, reach) for values in (tf.exp(z), T / (1.0 - T))
    )
    everywhere = tf.fill(tf.shape(m), True)
    best = best_form(of_pi, of_q, zero, cavity, power, everywhere, tf.cast(negligible, m.dtype))
    limits = np.finfo(m.dtype.as_numpy_dtype)
    is_visible = of_pi.sums[0, 0] > limits.tiny / limits.eps**2  # what underflows is then no part of it
    return OnSharedPoints(best.tilted, is_visible & (best.alias <= points.alias) & (best.truncation <= ACCURATE))
