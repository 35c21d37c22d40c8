"""Tilted distributions from sums over points, with estimates of the errors: trapezoid rule and Gauss-Hermite nodes.

On equispaced points over a window beyond which a smooth integrand vanishes the trapezoid rule converges exponentially:
with step h its error is the Fourier transform of the integrand at 2π/h (Trefethen and Weideman 2014). An integrand that
is analytic and bounded within a distance r from the real axis has a Fourier transform of order exp(-r ω), and points a
third of r apart err by exp(-6π) = 1e-8 of it or less; the transform of N(f; m, v) alone falls off as exp(-v ω²/2). The
points themselves show the transform up to their Nyquist frequency π/h.

A cavity may be a hundred times as wide as the likelihood. So the points are equispaced in t, with x = c + a sinh(t):
dense near the place c at which the likelihood is narrow, and from there on in proportion to the distance. Singularities
of log p a distance r from c on either side, or farther away the farther out they are, stay about π/4 from the real axis
of t if a is a part of r. With a large a points are nearly equispaced in x.

Narrow cavities share their points x, so that all sums are two products with one matrix: equispaced points, or Gauss-
Hermite nodes for cavities much narrower than r. The error of n nodes is about the Hermite coefficients of orders 2n and
more, times 2^-n; coefficients fall off like a geometric sequence or faster, and the coefficients of the orders n - 1
and n - 2 are sums over the nodes.

Notation: x = (f - m)/√v, N = N(f; m, v), π(f) = N p(y|f)^α / Z, q = (p^α - 1)/α, or log p if α = 0. In the first form
log Z comes from the integral of π, d1 = E_π[x]/(α √v) and d2 = (Var_π[x] - 1)/(α v). These cancel if Z is nearly 1 or
α nearly 0; then the second form serves:

    Z = 1 + α E_N[q],   d1 = E_N[q x] / (Z √v),   d2 = E_N[q (x² - 1)]/(Z v) - α d1².
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import roots_hermitenorm

from ..runtime.tracing import shared
from .densities import LogDensity
from .rule import Cavity, Observations, Scalar, Tilted

LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)
HALF = 8.5  # half width of first windows in standard deviations of the cavity, of which 2e-17 is outside
SMALLEST_POWER = 1e-30  # replaces α = 0, from which it differs by less than rounding
_ACCURATE = 1e-9  # largest relative error by truncation and rounding: a tenth of what is promised
# Largest step at the center in units of the radius: the error is exp(-2π/0.26) = 3e-11 of the amplitude. Largest step
# of t: a fifth of π/4; at 0.18 GPflow's Bernoulli is wrong by 1.5e-8.
_LARGEST_STEP, _STEP_OF_T = 0.26, 0.16
# Largest relative amplitude near the Nyquist frequency if these steps bound the error (with 1e-3 GPflow's Bernoulli is
# wrong by 1.1e-8), and if the radius is unknown.
_ALIAS, _ALIAS_UNBOUNDED = 6e-4, 2e-9
# Shared points: equispaced points; Gauss-Hermite nodes, the largest standard deviation in units of the radius for which
# they serve, and the largest relative size of the last two coefficients, whose order is half the first neglected one.
_NUM_EQUISPACED, _NUM_NODES, _VERY_NARROW, _HERMITE_ALIAS = 40, 16, 0.2, 1e-2
_NARROW = _LARGEST_STEP * (_NUM_EQUISPACED - 1) / (2.0 * HALF)


class Rows(NamedTuple):
    """Cavities [R], powers [R] and observations of R rows."""

    cavity: Cavity
    alpha: tf.Tensor
    observations: Observations

    def take(self, row: tf.Tensor) -> "Rows":
        """Select rows."""
        rows: Rows = tf.nest.map_structure(lambda value: tf.gather(value, row), self)
        return rows


class Approximation(NamedTuple):
    """Tilted distributions on the points of a window, with an estimate of their errors."""

    tilted: Tilted
    is_accurate: tf.Tensor  # The relative errors of log Z, d1 and d2 are below 1e-8, [R]
    second_form: tf.Tensor  # [R]
    x: tf.Tensor  # Points, [K, R]
    weight: tf.Tensor  # Their weights, [K, R]
    log_pi: tf.Tensor  # log π + constant at the points, [K, R]
    peak: tf.Tensor  # The point x with the largest π, [R]


def trapezoid_table(number: int) -> AnyNDArray:
    """
    Return -1, ..., 1 and the weights of sums over K = `number` equispaced points, [6, K].

    The sums are: the integral; its cosine and sine transforms just below the Nyquist frequency, at which a sum has no
    phase; the values at both ends.
    """
    k = np.arange(number)
    phase = 0.93 * np.pi * k
    ends = (k == 0).astype(float), (k == number - 1).astype(float)
    return np.stack([2.0 * k / (number - 1) - 1.0, np.ones(number), np.cos(phase), np.sin(phase), *ends])


def _shared_table(x: AnyNDArray, mass: AnyNDArray, sums: Iterable[AnyNDArray]) -> AnyNDArray:
    """Return x and the weights of 15 sums, [16, K]: N(f; m, v) √v times 1, x and x², each times the five `sums`."""
    return np.stack([x, *(mass * x**power * each for power in range(3) for each in sums)])


def _hermite_table() -> AnyNDArray:
    x, mass = roots_hermitenorm(_NUM_NODES)
    hermite = [np.ones_like(x), x]  # orthonormal
    for order in range(2, _NUM_NODES):
        hermite.append((x * hermite[-1] - np.sqrt(order - 1.0) * hermite[-2]) / np.sqrt(order))
    beyond = np.zeros_like(x)  # the nodes have no ends
    return _shared_table(x, mass, [hermite[0], hermite[-1], hermite[-2], beyond, beyond])


def _equispaced_table() -> AnyNDArray:
    unit, *sums = trapezoid_table(_NUM_EQUISPACED)
    x = HALF * unit
    return _shared_table(x, (x[1] - x[0]) * np.exp(-0.5 * np.square(x)), sums)


_SHARED = np.concatenate([_hermite_table(), _equispaced_table()], axis=1)


def are_narrow(density: LogDensity, rows: Rows, hermite: bool | tf.Tensor) -> tf.Tensor:
    """Return which cavities are narrow enough for Gauss-Hermite nodes, or for shared equispaced points, [R]."""
    width = tf.where(hermite, tf.constant(_VERY_NARROW, rows.alpha.dtype), tf.constant(_NARROW, rows.alpha.dtype))
    return tf.sqrt(rows.cavity.variance) <= width * density.radius(rows.observations.X)


def on_shared_points(
    density: LogDensity, rows: Rows, hermite: bool | tf.Tensor, negligible: tf.Tensor
) -> tuple[Tilted, tf.Tensor]:
    """
    Compute tilted distributions on shared points, and whether they are accurate [R]: of narrow cavities only.

    :param hermite: whether to use Gauss-Hermite nodes, or equispaced points.
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    m, sd, is_narrow = rows.cavity.mean, tf.sqrt(rows.cavity.variance), are_narrow(density, rows, hermite)
    first, number = tf.where(hermite, 0, _NUM_NODES), tf.where(hermite, _NUM_NODES, _NUM_EQUISPACED)
    number = tf.where(tf.reduce_any(is_narrow), number, 0)  # for all rows: to select some costs more
    table = tf.ensure_shape(tf.constant(_SHARED, m.dtype)[:, first : first + number], [16, None])
    x, sums_of = tf.split(table, [1, 15])
    power = tf.maximum(rows.alpha, SMALLEST_POWER)
    z = power * density.log_prob(m + sd * tf.transpose(x), *rows.observations)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    zero, alias = (
        tf.zeros_like(m),
        tf.where(hermite, tf.constant(_HERMITE_ALIAS, m.dtype), tf.constant(_ALIAS, m.dtype)),
    )
    of_pi, of_q = (_Moments(tf.reshape(sums_of @ f, [3, 5, -1]), zero, zero + HALF) for f in (tf.exp(z), T / (1.0 - T)))
    covers = tf.fill(tf.shape(m), True)
    alias = tf.fill(tf.shape(m), alias)
    tilted, is_accurate, _ = _best_form(of_pi, of_q, zero, rows.cavity, power, covers, negligible, alias)
    limits = np.finfo(m.dtype.as_numpy_dtype)
    is_visible = of_pi.sums[0, 0] > limits.tiny / limits.eps**2  # above, underflow at some points does no harm
    return tilted, is_narrow & is_accurate & is_visible


def trapezoid(
    density: LogDensity, rows: Rows, middle: tf.Tensor, half: tf.Tensor, table: tf.Tensor, negligible: Scalar = 0.0
) -> Approximation:
    """
    Compute tilted distributions on the points of windows middle ± half of x, [R] each.

    :param table: from :func:`trapezoid_table`.
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    m, sd, radius = rows.cavity.mean, tf.sqrt(rows.cavity.variance), density.radius(rows.observations.X)
    sums_of = table[1:]
    power = tf.maximum(rows.alpha, SMALLEST_POWER)
    # Points x = c + a sinh(t), with a between 1e-6 and 4 times half the window: there distances differ by 3 %.
    center, scale = middle, 4.0 * half
    if density.center is not None:
        center = tf.clip_by_value((density.center(rows.observations) - m) / sd, middle - half, middle + half)
        # A part of the radius, but more if c is far from m, around which the cavity must be resolved.
        near = tf.square(0.7 * radius / sd) + tf.square(0.1 * center)
        scale = tf.clip_by_value(tf.sqrt(near), 1e-6 * half, scale)
    first, last = (tf.asinh((edge - center) / scale) for edge in (middle - half, middle + half))
    t = 0.5 * (first + last) + 0.5 * (last - first) * tf.transpose(table[:1])  # [K, R]
    step = (last - first) / tf.cast(tf.shape(table)[1] - 1, half.dtype)  # [R]
    up = tf.exp(t)
    down, unit = 1.0 / up, 0.5 * scale
    x, weight = center + unit * (up - down), (unit * step) * (up + down)

    def moments(integrand: tf.Tensor, place: tf.Tensor) -> _Moments:
        offset = x - place
        once = offset * integrand
        sums = tf.stack([sums_of @ values for values in (integrand, once, offset * once)])
        return _Moments(sums, place, half + tf.abs(place - middle))

    z = power * density.log_prob(m + sd * x, *rows.observations)
    exponent = -0.5 * tf.square(x)
    log_pi = z + exponent
    height = tf.reduce_max(log_pi, axis=0)
    peak = tf.reduce_min(tf.where(log_pi >= height, x, tf.constant(np.inf, x.dtype)), axis=0)
    of_pi = moments(tf.exp(log_pi - height) * weight, peak)  # about the peak, or a narrow π would lose digits
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    of_q = moments(tf.exp(exponent) * weight * (T / (1.0 - T)), tf.zeros_like(peak))

    # The second form needs the cavity up to 7.5, beyond which there is 6e-14, on points at most 1 apart.
    covers = (middle - half < -7.5) & (middle + half > 7.5)
    covers &= step * tf.sqrt(tf.square(scale) + tf.square(center)) < 1.0
    is_fine = (sd * scale * step <= _LARGEST_STEP * radius) & (step <= _STEP_OF_T)
    alias = tf.where(is_fine, tf.constant(_ALIAS, sd.dtype), tf.constant(_ALIAS_UNBOUNDED, sd.dtype))
    least = tf.cast(negligible, sd.dtype)
    tilted, is_accurate, is_second = _best_form(of_pi, of_q, height, rows.cavity, power, covers, least, alias)
    return Approximation(tilted, is_accurate, is_second, x, weight, log_pi, peak)


def next_window(
    log_pi: tf.Tensor, x: tf.Tensor, peak: tf.Tensor, second_form: tf.Tensor, half: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return middle and half of the interval in which an approximation's π is visible, or of the cavity if the second form
    is used, [R] each.

    :param half: of the window of this approximation.
    """
    is_visible = log_pi >= tf.reduce_max(log_pi, axis=0) - 30.0  # nats: 1e-13 is left out
    none = tf.zeros_like(is_visible[:1])
    # And one point more on either side.
    near = is_visible | tf.concat([is_visible[1:], none], 0) | tf.concat([none, is_visible[:-1]], 0)
    infinite = tf.fill(tf.shape(x), tf.constant(np.inf, x.dtype))
    ends = []
    for sign, end, visible in ((-1.0, x[0], is_visible[0]), (1.0, x[-1], is_visible[-1])):
        reach = tf.reduce_max(tf.where(near, sign * x, -infinite), axis=0)
        # Beyond an end at which π is visible; it may be far away if π is largest there.
        beyond = tf.where(tf.equal(peak, end), 15.0 * half, 0.5 * half)
        reach += tf.where(visible, beyond, tf.zeros_like(half))
        ends.append(sign * tf.where(second_form, tf.maximum(reach, 9.0), reach))  # more than 7.5 is needed
    left, right = ends
    return 0.5 * (left + right), 0.5 * (right - left)


# --- the two forms --------------------------------------------------------------------------------------------------


class _Moments(NamedTuple):
    """Sums of an integrand times 1, x - place and (x - place)²."""

    sums: tf.Tensor  # The five sums of a table, [3, 5, R]
    place: tf.Tensor  # [R]
    reach: tf.Tensor  # The largest distance of points from the place, [R]


_largest = functools.partial(functools.reduce, tf.maximum)


@shared
def _best_form(
    of_pi: _Moments,
    of_q: _Moments,
    height: tf.Tensor,
    cavity: Cavity,
    power: tf.Tensor,
    covers: tf.Tensor,
    negligible: tf.Tensor,
    alias: tf.Tensor,
) -> tuple[Tilted, tf.Tensor, tf.Tensor]:
    """
    Choose the second form for rows in which it is accurate, and the first form for the rest.

    :param of_pi: of p^α exp(-x²/2 - height).
    :param of_q: of α q exp(-x²/2)/2, about 0.
    :param power: α, above 0.
    :param covers: whether the points cover N and resolve it, which the second form needs.
    :param alias: the largest accepted relative amplitude of spectra.
    :return: the tilted distributions, whether they are accurate, and whether they have the second form.
    """
    mean, sd = cavity.mean, tf.sqrt(cavity.variance)
    ratio, first = _from_pi(of_pi, height - LOG_ROOT_2PI, power, mean, sd, negligible)
    is_small, second = _from_q(of_q, power, mean, sd, tf.sqrt(ratio), negligible)
    is_second = covers & is_small
    log_partition, d1, d2, amplitude, rest = (tf.where(is_second, *pair) for pair in zip(second, first, strict=True))
    # α |E[q]| is small, so that this does not cancel; the spectrum of the second form says nothing about π's variance.
    ratio = tf.where(is_second, 1.0 + power * cavity.variance * d2, ratio)
    return Tilted(log_partition, d1, d2, ratio), (amplitude <= alias) & (rest <= _ACCURATE), is_second


def _parts(sums: tf.Tensor, unit: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor]:
    """
    Return three sums, the amplitudes of their spectra, which bound their errors, and the larger modulus at an end, as
    a bound of the part beyond it; [R] each.
    """
    value, cosine, sine, first, last = tf.unstack(sums / unit, axis=1)  # [3, R] each
    amplitude = tf.sqrt(tf.square(cosine) + tf.square(sine))
    return tf.unstack(value), tf.unstack(amplitude), tf.maximum(tf.abs(first[0]), tf.abs(last[0]))


def _from_pi(
    moments: _Moments, offset: tf.Tensor, power: tf.Tensor, m: tf.Tensor, sd: tf.Tensor, negligible: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Return Var_π[x]; log Z / α, d1, d2 and bounds of their relative errors by the step, and by all else."""
    sums, place, reach = moments
    mass = sums[0, 0]
    (_, distance, of_square), (a0, a1, a2), end = _parts(sums, mass)
    mean, ratio = place + distance, of_square - tf.square(distance)
    log_Z = offset + tf.math.log(mass)

    least = negligible * power  # in these units
    size = tf.maximum(tf.abs(log_Z), least)
    gap = tf.maximum(tf.abs(1.0 - ratio), least)  # the scale of d2
    scale = tf.maximum(tf.abs(mean) + gap * tf.sqrt(ratio), least)  # the scale of d1
    of_both = tf.minimum(gap, ratio)
    off = tf.abs(distance)
    alias = _largest([a0 / size, (a1 + off * a0) / scale, (a2 + 2.0 * off * a1 + of_square * a0) / of_both])
    reach += off
    truncation = end * _largest([1.0 / size, reach / scale, tf.square(reach) / of_both])
    rounding = np.finfo(sd.dtype.as_numpy_dtype).eps * (1.0 + of_square + tf.abs(m * mean) / sd) / gap
    values = log_Z / power, mean / (power * sd), (ratio - 1.0) / (power * tf.square(sd))
    return ratio, (*values, alias, truncation + rounding)


def _from_q(
    moments: _Moments, power: tf.Tensor, m: tf.Tensor, sd: tf.Tensor, width: tf.Tensor, negligible: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """
    Return whether α |E_N[q]| is small; the same as :func:`_from_pi`, from E_N[q], E_N[q x] and E_N[q x²].

    :param width: standard deviation of π, in units of the cavity's.
    """
    sums, _, reach = moments
    (q0, q1, q2), (a0, a1, a2), end = _parts(sums, (0.5 * np.exp(LOG_ROOT_2PI)) * power)
    Z = 1.0 + power * q0
    slope = q1 / Z
    curvature = (q2 - q0) / Z - power * tf.square(slope)

    size = tf.maximum(tf.abs(q0), negligible)
    gap = tf.maximum(tf.abs(curvature), negligible)
    scale = tf.maximum(tf.abs(slope) + gap * width, negligible)
    of_slope = (a1 + power * tf.abs(slope) * a0) / Z
    of_curvature = (a2 + a0 + 2.0 * power * tf.abs(slope) * a1) / Z
    alias = _largest([a0 / size, of_slope / scale, of_curvature / gap])
    truncation = end / Z * _largest([1.0 / size, reach / scale, tf.square(reach) / gap])
    modulus = (tf.abs(q0) + tf.abs(q2)) / Z
    rounding = np.finfo(sd.dtype.as_numpy_dtype).eps * (modulus + tf.abs(m * slope) / sd) / gap
    values = tf.math.log1p(power * q0) / power, slope / sd, curvature / tf.square(sd)
    return power * tf.abs(q0) < 0.5, (*values, alias, truncation + rounding)
