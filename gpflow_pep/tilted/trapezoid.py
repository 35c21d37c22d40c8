"""Tilted distributions by the trapezoid rule and Gauss-Hermite nodes, with error estimates.

The trapezoid rule converges exponentially on a window outside of which a smooth integrand vanishes:
with step h the error is the Fourier transform of the integrand at 2π/h (Trefethen and Weideman
2014). If the integrand is analytic and bounded within a distance r from the real axis, its
transform is of order exp(-r ω), and a step of r/3 has a relative error of exp(-6π) = 1e-8 or less.
The values at the points determine the transform up to the Nyquist frequency π/h.

A cavity may be a hundred times wider than the likelihood. The points are therefore equispaced in t,
x = c + a sinh(t): dense near the point c at which the likelihood is narrow, and sparser in
proportion to the distance from c. If a is a fraction of r, singularities of log p at a distance r
from c, or farther from the axis the farther out they are, stay about π/4 from the real axis of t.
With a large a the points are nearly equispaced in x.

Narrow cavities share their points x, so all sums are two products with one matrix. The points are
equispaced, or Gauss- Hermite nodes for cavities much narrower than r. The error of n nodes is about
2^-n times the Hermite coefficients of orders 2n and above. Coefficients decay geometrically or
faster; those with orders n - 1 and n - 2 are sums over nodes.

Notation: x = (f - m)/√v, N = N(f; m, v), π(f) = N p(y|f)^α / Z, q = (p^α - 1)/α, or log p if α = 0.
The first form takes log Z from the integral of π, d1 = E_π[x]/(α √v) and d2 = (Var_π[x] - 1)/(α v).
These cancel if Z is nearly 1 or α nearly 0; then the second form is used:

    Z = 1 + α E_N[q],   d1 = E_N[q x] / (Z √v),   d2 = E_N[q (x² - 1)]/(Z v) - α d1².
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import eval_hermitenorm, factorial, roots_hermitenorm

from ..maths.linalg import epsilon
from ..maths.normal import LOG_ROOT_2PI
from ..runtime import Tensors, shared
from .densities import LogDensity
from .rule import Cavity, Observations, Scalar, Tilted

# Half width of first windows in cavity standard deviations: the cavity has a mass of 2e-17 outside.
HALF = 8.5
_SMALLEST_POWER = 1e-30  # replaces α = 0: the difference is below rounding
# Step at the center in units of the radius: the error is exp(-2π/0.26) = 3e-11 of the amplitude.
_LARGEST_STEP = 0.26
# Relative amplitude near the Nyquist frequency; at 1e-3 GPflow's Bernoulli has an error of 1.1e-8.
_ALIAS = 6e-4
_largest = functools.partial(functools.reduce, tf.maximum)
# Numbers of shared points; so few resolve narrow cavities only.
_NUM_EQUISPACED = 40
_NUM_NODES = 16


class TiltedRows(NamedTuple):
    """Cavities [R], powers [R] and observations of R rows."""

    cavity: Cavity
    alpha: tf.Tensor
    observations: Observations

    @classmethod
    def of(cls, cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> "TiltedRows":
        """Take a power of all rows, [], or one of each row, [R]."""
        return cls(cavity, tf.broadcast_to(alpha, tf.shape(cavity.mean)), observations)

    @property
    def sd(self) -> tf.Tensor:
        """Standard deviations of the cavities, [R]."""
        return tf.sqrt(self.cavity.variance)


def take(values: Any, row: tf.Tensor) -> Any:
    """Select rows of all tensors [R, ...] of a structure, such as :class:`TiltedRows`."""
    return tf.nest.map_structure(lambda value: tf.gather(value, row), values)


def true_rows(mask: tf.Tensor) -> tf.Tensor:
    """Return the rows at which a mask [R] is true, [n]."""
    return tf.squeeze(tf.where(mask), 1)


def with_rows(values: tf.Tensor, row: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Return values [R, ...] in which the rows `row` [n] are new."""
    return tf.tensor_scatter_nd_update(values, tf.expand_dims(row, 1), new)


class Approximation(NamedTuple):
    """Tilted distributions on the points of a window, with error estimates."""

    tilted: Tilted
    is_accurate: tf.Tensor  # The relative errors of log Z, d1 and d2 are below 1e-8, [R]
    second_form: tf.Tensor  # Mask of rows with the second form, [R]
    x: tf.Tensor  # Points, [K, R]
    weight: tf.Tensor  # Their weights, [K, R]
    log_pi: tf.Tensor  # log π + constant at the points, [K, R]
    peak: tf.Tensor  # The point x with the largest π, [R]


def trapezoid_table(number: int) -> AnyNDArray:
    """
    Return K = `number` equispaced points from -1 to 1 and the weights of five sums over them, [6,
    K]: the integral; cosine and sine transforms just below the Nyquist frequency (at which all
    sines vanish); the values at both ends.
    """
    k = np.arange(number)
    phase = 0.93 * np.pi * k
    ends = (k == 0).astype(float), (k == number - 1).astype(float)
    return np.stack(
        [2.0 * k / (number - 1) - 1.0, np.ones(number), np.cos(phase), np.sin(phase), *ends]
    )


def _shared_table(x: AnyNDArray, mass: AnyNDArray, sums: Iterable[AnyNDArray]) -> AnyNDArray:
    """
    Return x and the weights of 15 sums, [16, K]: N(f; m, v) √v times 1, x or x², times each of the
    five `sums`.
    """
    return np.stack([x, *(mass * x**power * each for power in range(3) for each in sums)])


def _hermite_table() -> AnyNDArray:
    x, mass = roots_hermitenorm(_NUM_NODES)
    orders = _NUM_NODES - 1, _NUM_NODES - 2
    last, second_last = (eval_hermitenorm(order, x) / np.sqrt(factorial(order)) for order in orders)
    ends = np.zeros_like(x)  # no truncation
    return _shared_table(x, mass, [np.ones_like(x), last, second_last, ends, ends])


def _equispaced_table() -> AnyNDArray:
    unit, *sums = trapezoid_table(_NUM_EQUISPACED)
    x = HALF * unit
    return _shared_table(x, (x[1] - x[0]) * np.exp(-0.5 * np.square(x)), sums)


_SHARED = np.concatenate([_hermite_table(), _equispaced_table()], axis=1)


def are_narrow(density: LogDensity, rows: TiltedRows, hermite: bool | tf.Tensor) -> tf.Tensor:
    """
    Return a mask of the cavities that are narrow enough for Gauss-Hermite nodes or shared
    equispaced points, [R].
    """
    # In units of the radius: 0.2 for nodes; equispaced points must be at most _LARGEST_STEP apart.
    widths = 0.2, _LARGEST_STEP * (_NUM_EQUISPACED - 1) / (2.0 * HALF)
    width = tf.where(hermite, *(tf.constant(value, rows.alpha.dtype) for value in widths))
    return rows.sd <= width * density.radius(rows.observations.X)


def on_shared_points(
    density: LogDensity, rows: TiltedRows, hermite: bool | tf.Tensor, negligible: tf.Tensor
) -> tuple[Tilted, tf.Tensor]:
    """
    Compute tilted distributions on Gauss-Hermite nodes or equispaced points, and a mask of accurate
    rows, [R].
    """
    m = rows.cavity.mean
    sd = rows.sd
    is_narrow = are_narrow(density, rows, hermite)
    first = tf.where(hermite, 0, _NUM_NODES)
    number = tf.where(hermite, _NUM_NODES, _NUM_EQUISPACED)
    number = tf.where(tf.reduce_any(is_narrow), number, 0)  # all rows: selecting some costs more
    table = tf.ensure_shape(tf.constant(_SHARED, m.dtype)[:, first : first + number], [16, None])
    x, sum_weights = tf.split(table, [1, 15])
    power = tf.maximum(rows.alpha, _SMALLEST_POWER)
    z = power * density.log_prob(m + sd * tf.transpose(x), *rows.observations)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    zero = tf.zeros_like(m)
    sums = (tf.reshape(sum_weights @ f, [3, 5, -1]) for f in (tf.exp(z), T / (1.0 - T)))
    pi_moments, q_moments = (_Moments(each, zero, zero + HALF) for each in sums)
    covers = tf.fill(tf.shape(m), True)
    # Hermite nodes: the orders of the last coefficients are half the first neglected order, so 1e-2
    # suffices.
    alias = tf.fill(tf.shape(m), tf.where(hermite, tf.constant(1e-2, m.dtype), _ALIAS))
    tilted, is_accurate, _ = _best_form(
        pi_moments, q_moments, zero, rows.cavity, power, covers, negligible, alias
    )
    limits = np.finfo(m.dtype.as_numpy_dtype)
    # Above this, underflow at some points is harmless.
    is_visible = pi_moments.sums[0, 0] > limits.tiny / limits.eps**2
    return tilted, is_narrow & is_accurate & is_visible


def trapezoid(
    density: LogDensity,
    rows: TiltedRows,
    middle: tf.Tensor,
    half: tf.Tensor,
    table: tf.Tensor,
    negligible: Scalar,
) -> Approximation:
    """
    Compute tilted distributions on points x of a `trapezoid_table` in the windows middle ± half,
    each [R]; log Z / α, d1 √v and d2 v below `negligible` need only be accurate relative to it.
    """
    m = rows.cavity.mean
    sd = rows.sd
    sum_weights = table[1:]
    power = tf.maximum(rows.alpha, _SMALLEST_POWER)
    x, weight, is_fine, covers = placed(density, rows, middle, half, table[:1])

    def moments(integrand: tf.Tensor, origin: tf.Tensor) -> _Moments:
        offset = x - origin
        first_order = offset * integrand
        sums = tf.stack(
            [sum_weights @ values for values in (integrand, first_order, offset * first_order)]
        )
        return _Moments(sums, origin, half + tf.abs(origin - middle))

    z = power * density.log_prob(m + sd * x, *rows.observations)
    exponent = -0.5 * tf.square(x)
    log_pi = z + exponent
    height = tf.reduce_max(log_pi, axis=0)
    peak = tf.reduce_min(tf.where(log_pi >= height, x, np.inf), axis=0)
    # A density that is NaN at a point gives NaN; a window about an infinite peak would give
    # probability 0.
    peak = tf.where(tf.reduce_any(tf.math.is_nan(log_pi), axis=0), np.nan * height, peak)
    # Moments about the peak: accurate for narrow π.
    pi_moments = moments(tf.exp(log_pi - height) * weight, peak)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    q_moments = moments(tf.exp(exponent) * weight * (T / (1.0 - T)), tf.zeros_like(peak))

    # If the radius is unknown or steps are large, the transform beyond the Nyquist frequency is not
    # bounded: require 2e-9 below it.
    alias = tf.where(is_fine, tf.constant(_ALIAS, sd.dtype), 2e-9)
    least = tf.cast(negligible, sd.dtype)
    tilted, is_accurate, is_second = _best_form(
        pi_moments, q_moments, height, rows.cavity, power, covers, least, alias
    )
    return Approximation(tilted, is_accurate, is_second, x, weight, log_pi, peak)


def placed(
    density: LogDensity,
    rows: TiltedRows,
    middle: tf.Tensor,
    half: tf.Tensor,
    unit: tf.Tensor,
    spread: tf.Tensor | float = 0.1,
) -> Tensors:
    """
    Return points x in the windows middle ± half, from `unit` [1, K], and their weights, [K, R]; and
    masks [R] of windows with small steps, and of windows that cover and resolve the cavity.

    x = c + a sinh(t), with a between 1e-6 and 4 times half the window (at 4 the distances vary by
    3 %), and at least about `spread` times the distance of c from the cavity mean.
    """
    m = rows.cavity.mean
    sd = rows.sd
    radius = density.radius(rows.observations.X)
    center = middle
    scale = 4.0 * half
    if density.center is not None:
        center = tf.clip_by_value(
            (density.center(rows.observations) - m) / sd, middle - half, middle + half
        )
        # A fraction of the radius, but more if c is far from m, near which the points must resolve
        # the cavity.
        near = tf.square(0.7 * radius / sd) + tf.square(spread * center)
        scale = tf.clip_by_value(tf.sqrt(near), 1e-6 * half, scale)
    first, last = (tf.asinh((edge - center) / scale) for edge in (middle - half, middle + half))
    t = 0.5 * (first + last) + 0.5 * (last - first) * tf.transpose(unit)  # [K, R]
    step = (last - first) / tf.cast(tf.shape(unit)[1] - 1, half.dtype)  # [R]
    up = tf.exp(t)
    down = 1.0 / up
    x = center + 0.5 * scale * (up - down)
    weight = (0.5 * scale * step) * (up + down)
    # The step of t is at most a fifth of π/4; at 0.18 GPflow's Bernoulli has an error of 1.5e-8.
    is_fine = (sd * scale * step <= _LARGEST_STEP * radius) & (step <= 0.16)
    # The second form needs the cavity up to ± 7.5 (mass outside: 6e-14) on points at most 1 apart.
    covers = (middle - half < -7.5) & (middle + half > 7.5)
    covers &= step * tf.sqrt(tf.square(scale) + tf.square(center)) < 1.0
    return x, weight, is_fine, covers


def next_window(
    log_pi: tf.Tensor, x: tf.Tensor, peak: tf.Tensor, second_form: tf.Tensor, half: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return middle and half width of the interval with non-negligible π, [R]; `half`: of the current
    window.
    """
    is_visible = log_pi >= tf.reduce_max(log_pi, axis=0) - 30.0  # neglects 1e-13
    none = tf.zeros_like(is_visible[:1])
    # One more point on either side.
    near = is_visible | tf.concat([is_visible[1:], none], 0) | tf.concat([none, is_visible[:-1]], 0)
    ends = []
    for sign, end, visible in ((-1.0, x[0], is_visible[0]), (1.0, x[-1], is_visible[-1])):
        reach = tf.reduce_max(tf.where(near, sign * x, -np.inf), axis=0)
        # Extend the window at an end at which π is not negligible; far, if π is largest there.
        beyond = tf.where(tf.equal(peak, end), 15.0 * half, 0.5 * half)
        reach += tf.where(visible, beyond, 0.0)
        ends.append(
            sign * tf.where(second_form, tf.maximum(reach, 9.0), reach)
        )  # above 7.5, see trapezoid
    left, right = ends
    return 0.5 * (left + right), 0.5 * (right - left)


# --- the two forms --------------------------------------------------------------------------------
class _Moments(NamedTuple):
    """Sums of an integrand times 1, x - origin and (x - origin)²."""

    sums: tf.Tensor  # The five sums of a table, [3, 5, R]
    origin: tf.Tensor  # [R]
    reach: tf.Tensor  # The largest distance of a point from the origin, [R]


@shared
def _best_form(
    pi_moments: _Moments,
    q_moments: _Moments,
    height: tf.Tensor,
    cavity: Cavity,
    power: tf.Tensor,
    covers: tf.Tensor,
    negligible: tf.Tensor,
    alias: tf.Tensor,
) -> tuple[Tilted, tf.Tensor, tf.Tensor]:
    """
    Return the tilted distributions, a mask of accurate rows and a mask of rows with the second
    form, where accurate.

    `pi_moments`: of p^α exp(-x²/2 - height); `q_moments`: of α q exp(-x²/2)/2, about 0; `power`: α
    > 0; `covers`: if the points cover and resolve N, as the second form requires; `alias`: the
    largest relative amplitude of spectra.
    """
    mean = cavity.mean
    sd = tf.sqrt(cavity.variance)
    ratio, first = _from_pi(pi_moments, height - LOG_ROOT_2PI, power, mean, sd, negligible)
    is_small, second = _from_q(q_moments, power, mean, sd, tf.sqrt(ratio), negligible)
    is_second = covers & is_small
    log_partition, d1, d2, amplitude, rest = (
        tf.where(is_second, *pair) for pair in zip(second, first, strict=True)
    )
    # α |E[q]| is small, so 1 + α v d2 does not cancel. (The second form bounds no error of the
    # variance of π.)
    ratio = tf.where(is_second, 1.0 + power * cavity.variance * d2, ratio)
    is_resolved = rest <= 1e-9  # truncation and rounding: a tenth of the required accuracy
    return Tilted(log_partition, d1, d2, ratio), (amplitude <= alias) & is_resolved, is_second


def _parts(sums: tf.Tensor, unit: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor]:
    """
    Return three sums, the amplitudes of their spectra and the larger modulus at the ends: bounds of
    errors, [R].
    """
    value, cosine, sine, first, last = tf.unstack(sums / unit, axis=1)  # [3, R] each
    amplitude = tf.sqrt(tf.square(cosine) + tf.square(sine))
    return tf.unstack(value), tf.unstack(amplitude), tf.maximum(tf.abs(first[0]), tf.abs(last[0]))


def _from_pi(
    moments: _Moments,
    offset: tf.Tensor,
    power: tf.Tensor,
    m: tf.Tensor,
    sd: tf.Tensor,
    negligible: tf.Tensor,
) -> tuple[tf.Tensor, Tensors]:
    """
    Return Var_π[x]; log Z / α, d1, d2 and bounds of their relative errors: by the step, and by
    other causes.
    """
    sums, origin, reach = moments
    mass = sums[0, 0]
    (_, distance, mean_square), (a0, a1, a2), end = _parts(sums, mass)
    mean = origin + distance
    ratio = mean_square - tf.square(distance)
    log_Z = offset + tf.math.log(mass)

    least = negligible * power  # in units of log Z
    size = tf.maximum(tf.abs(log_Z), least)
    gap = tf.maximum(tf.abs(1.0 - ratio), least)  # the scale of d2
    scale = tf.maximum(tf.abs(mean) + gap * tf.sqrt(ratio), least)  # the scale of d1
    d2_scale = tf.minimum(gap, ratio)
    shift = tf.abs(distance)
    alias = _largest(
        [
            a0 / size,
            (a1 + shift * a0) / scale,
            (a2 + 2.0 * shift * a1 + mean_square * a0) / d2_scale,
        ]
    )
    reach += shift
    truncation = end * _largest([1.0 / size, reach / scale, tf.square(reach) / d2_scale])
    rounding = epsilon(sd.dtype) * (1.0 + mean_square + tf.abs(m * mean) / sd) / gap
    values = log_Z / power, mean / (power * sd), (ratio - 1.0) / (power * tf.square(sd))
    return ratio, (*values, alias, truncation + rounding)


def _from_q(
    moments: _Moments,
    power: tf.Tensor,
    m: tf.Tensor,
    sd: tf.Tensor,
    width: tf.Tensor,
    negligible: tf.Tensor,
) -> tuple[tf.Tensor, Tensors]:
    """
    Return whether α |E_N[q]| is small, and as :func:`_from_pi` from E_N[q x^k]; `width`: sd of π in
    cavity units.
    """
    sums, _, reach = moments
    (q0, q1, q2), (a0, a1, a2), end = _parts(sums, (0.5 * np.exp(LOG_ROOT_2PI)) * power)
    Z = 1.0 + power * q0
    slope = q1 / Z
    curvature = (q2 - q0) / Z - power * tf.square(slope)

    size = tf.maximum(tf.abs(q0), negligible)
    gap = tf.maximum(tf.abs(curvature), negligible)
    scale = tf.maximum(tf.abs(slope) + gap * width, negligible)
    slope_amplitude = (a1 + power * tf.abs(slope) * a0) / Z
    curvature_amplitude = (a2 + a0 + 2.0 * power * tf.abs(slope) * a1) / Z
    alias = _largest([a0 / size, slope_amplitude / scale, curvature_amplitude / gap])
    truncation = end / Z * _largest([1.0 / size, reach / scale, tf.square(reach) / gap])
    modulus = (tf.abs(q0) + tf.abs(q2)) / Z
    rounding = epsilon(sd.dtype) * (modulus + tf.abs(m * slope) / sd) / gap
    values = tf.math.log1p(power * q0) / power, slope / sd, curvature / tf.square(sd)
    return power * tf.abs(q0) < 0.5, (*values, alias, truncation + rounding)
