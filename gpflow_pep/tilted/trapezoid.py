"""Tilted distributions by the trapezoid rule, with an estimate of its error.

On equispaced points over a window beyond which a smooth integrand vanishes the trapezoid rule converges exponentially:
with step h its error is the Fourier transform of the integrand at 2π/h (Trefethen and Weideman 2014). An integrand that
is analytic and bounded within a distance r from the real axis has a Fourier transform of order exp(-r ω), and points a
third of r apart err by exp(-6π) = 1e-8 of it or less; that of N(f; m, v) alone falls off as exp(-v ω²/2). What the
points themselves show is the transform up to their Nyquist frequency π/h.

A cavity may be a hundred times as wide as the likelihood. So the points are equispaced in t, with x = c + a sinh(t):
dense near the place c where the likelihood is narrow, and from there on in proportion to the distance. Singularities of
log p a distance r from c on either side, or farther away the farther out they are, stay about π/4 from the real axis of
t where a is a part of r. With a large a points are all but equispaced in x.

Notation is that of :mod:`.forms`.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..runtime.tracing import shared
from .densities import LogDensity
from .rule import Cavity, Observations, Size, Tilted

# log Z, d1 and d2 from sums over points, in two forms, with bounds of their errors.
#
# Notation: x = (f - m)/√v, π(f) = N(f; m, v) p(y|f)^α / Z, q = (p^α - 1)/α, or log p where α = 0. In general log Z
# comes from the integral of π, d1 = E_π[x]/(α √v) and d2 = (Var_π[x] - 1)/(α v). These cancel where Z is nearly 1 or α
# nearly 0; there, with N = N(f; m, v),
#
#     Z = 1 + α E_N[q],   d1 = E_N[q x] / (Z √v),   d2 = E_N[q (x² - 1)]/(Z v) - α d1².

_FREQUENCY = 0.93  # at which spectra are estimated, in units of the Nyquist frequency
_NEARLY_ONE = 0.5  # largest α |E_N[q]| for which the second form is used
LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)


def weights(number: int) -> AnyNDArray:
    """
    Return -1, ..., 1 and the weights of sums over a `number` of equispaced points, [6, K].

    The sums are: the integral; its cosine and sine transforms at one frequency; the values at both ends.
    """
    k = np.arange(number)
    phase = _FREQUENCY * np.pi * k
    ends = (k == 0).astype(float), (k == number - 1).astype(float)
    return np.stack([2.0 * k / (number - 1) - 1.0, np.ones(number), np.cos(phase), np.sin(phase), *ends])


class Moments(NamedTuple):
    """Sums of an integrand times 1, x - place and (x - place)², as :func:`weights` have them."""

    sums: tf.Tensor  # [3, 5, R]
    place: tf.Tensor  # [R]
    reach: tf.Tensor  # The largest distance of points from there, [R]


class BestForm(NamedTuple):
    """Tilted distributions, and bounds of their relative errors; [R] each."""

    tilted: Tilted
    alias: tf.Tensor  # By the step: relative amplitude of the spectrum
    truncation: tf.Tensor  # By truncation and rounding
    is_second: tf.Tensor  # Whether the second form is used


@shared
def best_form(
    of_pi: Moments,
    of_q: Moments,
    height: tf.Tensor,
    cavity: Cavity,
    power: tf.Tensor,
    covers: tf.Tensor,
    negligible: tf.Tensor,
) -> BestForm:
    """
    Choose the second form where it is accurate, and the first one elsewhere.

    :param of_pi: of p^α exp(-x²/2 - height).
    :param of_q: of α q exp(-x²/2)/2, about 0.
    :param power: α, above 0.
    :param covers: whether the points cover N and resolve it, which the second form needs.
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    mean, sd = cavity.mean, tf.sqrt(cavity.variance)
    ratio, first = _from_pi(of_pi, height - LOG_ROOT_2PI, power, mean, sd, negligible)
    second, is_small = _from_q(of_q, power, mean, sd, tf.sqrt(ratio), negligible)
    is_second = covers & is_small
    log_partition, d1, d2, alias, truncation = (tf.where(is_second, *pair) for pair in zip(second, first, strict=True))
    # α |E[q]| is small, so that this does not cancel; the spectrum of the second form says nothing about π's variance.
    ratio = tf.where(is_second, 1.0 + power * cavity.variance * d2, ratio)
    return BestForm(Tilted(log_partition, d1, d2, ratio), alias, truncation, is_second)


class _Form(NamedTuple):
    """Values from one of the two forms, and bounds of their relative errors; [R] each."""

    log_partition: tf.Tensor
    d1: tf.Tensor
    d2: tf.Tensor
    alias: tf.Tensor  # By the step
    truncation: tf.Tensor  # By truncation and rounding


class _Parts(NamedTuple):
    """What :func:`weights` sum up; [R] each."""

    values: list[tf.Tensor]  # Times 1, x - place and (x - place)²
    amplitudes: list[tf.Tensor]  # Bounds of the errors of these: their spectra
    end: tf.Tensor  # The larger modulus at an end, which says what is left out beyond it


def _parts(sums: tf.Tensor, unit: tf.Tensor) -> _Parts:
    value, cosine, sine, first, last = tf.unstack(sums / unit, axis=1)  # [3, R] each
    amplitude = tf.sqrt(tf.square(cosine) + tf.square(sine))
    return _Parts(tf.unstack(value), tf.unstack(amplitude), tf.maximum(tf.abs(first[0]), tf.abs(last[0])))


def _from_pi(
    moments: Moments, offset: tf.Tensor, power: tf.Tensor, m: tf.Tensor, sd: tf.Tensor, negligible: tf.Tensor
) -> tuple[tf.Tensor, _Form]:
    """Return Var_π[x], and what follows from it and from E_π[x]."""
    sums, place, reach = moments
    mass = sums[0, 0]
    (_, distance, of_square), (a0, a1, a2), end = _parts(sums, mass)
    mean, ratio = place + distance, of_square - tf.square(distance)
    log_Z = offset + tf.math.log(mass)

    least = negligible * power  # in these units
    size = tf.maximum(tf.abs(log_Z), least)
    gap = tf.maximum(tf.abs(1.0 - ratio), least)  # the scale of d2
    scale = tf.maximum(tf.abs(mean) + gap * tf.sqrt(ratio), least)  # that of d1
    of_both = tf.minimum(gap, ratio)
    off = tf.abs(distance)
    alias = _largest(a0 / size, (a1 + off * a0) / scale, (a2 + 2.0 * off * a1 + of_square * a0) / of_both)
    reach += off
    truncation = end * _largest(1.0 / size, reach / scale, tf.square(reach) / of_both)
    rounding = np.finfo(sd.dtype.as_numpy_dtype).eps * (1.0 + of_square + tf.abs(m * mean) / sd) / gap
    values = log_Z / power, mean / (power * sd), (ratio - 1.0) / (power * tf.square(sd))
    return ratio, _Form(*values, alias, truncation + rounding)


def _from_q(
    moments: Moments, power: tf.Tensor, m: tf.Tensor, sd: tf.Tensor, width: tf.Tensor, negligible: tf.Tensor
) -> tuple[_Form, tf.Tensor]:
    """
    Return what follows from E_N[q], E_N[q x] and E_N[q x²], and whether α |E_N[q]| is small.

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
    alias = _largest(a0 / size, of_slope / scale, of_curvature / gap)
    truncation = end / Z * _largest(1.0 / size, reach / scale, tf.square(reach) / gap)
    modulus = (tf.abs(q0) + tf.abs(q2)) / Z
    rounding = np.finfo(sd.dtype.as_numpy_dtype).eps * (modulus + tf.abs(m * slope) / sd) / gap
    values = tf.math.log1p(power * q0) / power, slope / sd, curvature / tf.square(sd)
    return _Form(*values, alias, truncation + rounding), power * tf.abs(q0) < _NEARLY_ONE


def _largest(one: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    for other in others:
        one = tf.maximum(one, other)
    return one


LARGEST_STEP = 0.26  # near the center, in units of the radius of a density, for which the radius bounds the error
_STEP_OF_T = 0.16  # largest step of t: a fifth of π/4
ALIAS, _ALIAS_UNBOUNDED = 6e-4, 2e-9  # largest relative amplitude of a spectrum where it does, and where it does not
_PART_OF_RADIUS = 0.7  # a, in units of the radius: near the center
_PART_OF_DISTANCE = 0.1  # a, in units of the distance of the center from the cavity's mean
_SMALLEST_SCALE = 1e-6  # a in units of half the window: a radius may be 0
_NEARLY_EQUISPACED = 4.0  # a in units of half the window: distances of points differ by 3 %, or 12 %
ACCURATE = 1e-9  # largest relative error by truncation and rounding
_VISIBLE = 30.0  # nats below its largest value at which π is left out of a window
_COVERED, _REACH = 7.5, 9.0  # of N, in standard deviations: what this form needs at least, and what windows give it
_RESOLVED = 1.0  # the largest distance of points, in standard deviations of N, at which this form is trusted
_EXTENSION, _FAR_EXTENSION = 0.5, 15.0  # of windows beyond which π is visible, or largest, in half their width
SMALLEST_POWER = 1e-30  # stands for α = 0


class Window(NamedTuple):
    """The interval middle ± half of x, [R] each."""

    middle: tf.Tensor
    half: tf.Tensor


class Points(NamedTuple):
    """Where the integrand is evaluated."""

    x: tf.Tensor  # [K, R]
    weight: tf.Tensor  # The step of t times dx/dt, [K, R]
    step: tf.Tensor  # The step of t, [R]
    center: tf.Tensor  # c, in the window, [R]
    scale: tf.Tensor  # a: near the center points are a times the step apart, [R]


class Approximation(NamedTuple):
    """Tilted distributions, with what is known of their errors."""

    tilted: Tilted
    is_accurate: tf.Tensor  # Whether the relative errors of log Z, d1 and d2 are below 1e-8, [R]
    second_form: tf.Tensor  # Whether the second form is used, [R]
    points: Points
    log_pi: tf.Tensor  # log π + constant at the points, [K, R]
    peak: tf.Tensor  # The point x where π is largest, [R]


def stretched(
    density: LogDensity, cavity: Cavity, observations: Observations, window: Window, table: tf.Tensor
) -> Points:
    """
    Return points x = c + a sinh(t) of a window, equispaced in t.

    :param table: what :func:`weights` returns.
    """
    sd, (middle, half) = tf.sqrt(cavity.variance), window
    even = _NEARLY_EQUISPACED * half
    if density.center is None:
        center, scale = middle, even
    else:
        center = tf.clip_by_value((density.center(observations) - cavity.mean) / sd, middle - half, middle + half)
        radius = _PART_OF_RADIUS * density.radius(observations.X) / sd
        scale = tf.sqrt(tf.square(radius) + tf.square(_PART_OF_DISTANCE * center))
        scale = tf.clip_by_value(scale, _SMALLEST_SCALE * half, even)
    first, last = (tf.asinh((edge - center) / scale) for edge in (middle - half, middle + half))
    t = 0.5 * (first + last) + 0.5 * (last - first) * tf.transpose(table[:1])
    step = (last - first) / tf.cast(tf.shape(table)[1] - 1, half.dtype)
    up = tf.exp(t)
    down, unit = 1.0 / up, 0.5 * scale
    return Points(center + unit * (up - down), (unit * step) * (up + down), step, center, scale)


def trapezoid(
    density: LogDensity,
    cavity: Cavity,
    observations: Observations,
    alpha: tf.Tensor,
    window: Window,
    table: tf.Tensor,
    negligible: Size = 0.0,
) -> Approximation:
    """
    Compute tilted distributions on the points of a window.

    :param alpha: [R].
    :param table: what :func:`weights` returns.
    :param negligible: errors of log Z / α, d1 √v and d2 v that are smaller are relative to this.
    """
    m, v = cavity
    sd = tf.sqrt(v)
    middle, half = window
    power = tf.maximum(alpha, SMALLEST_POWER)
    points, sums_of = stretched(density, cavity, observations, window, table), table[1:]
    x = points.x

    def sums(integrand: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Of the integrand, times `place` and times its square, [3, 5, R]."""
        once = place * integrand
        return tf.stack([sums_of @ values for values in (integrand, once, place * once)])

    z = power * density.log_prob(m + sd * x, *observations)
    exponent = -0.5 * tf.square(x)
    log_pi = z + exponent
    height = tf.reduce_max(log_pi, axis=0)
    # Moments about its peak, or a variance would lose its digits where π is narrow.
    peak = tf.reduce_min(tf.where(log_pi >= height, x, tf.constant(np.inf, x.dtype)), axis=0)
    pi = sums(tf.exp(log_pi - height) * points.weight, x - peak)
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    q = sums(tf.exp(exponent) * points.weight * (T / (1.0 - T)), x)

    covers = (middle - half < -_COVERED) & (middle + half > _COVERED)
    covers &= points.step * tf.sqrt(tf.square(points.scale) + tf.square(points.center)) < _RESOLVED
    of_pi = Moments(pi, peak, half + tf.abs(peak - middle))
    of_q = Moments(q, tf.zeros_like(peak), half + tf.abs(middle))
    best = best_form(of_pi, of_q, height, cavity, power, covers, tf.cast(negligible, sd.dtype))

    is_fine = sd * points.scale * points.step <= LARGEST_STEP * density.radius(observations.X)
    is_fine &= points.step <= _STEP_OF_T
    tolerance = tf.where(is_fine, tf.constant(ALIAS, sd.dtype), tf.constant(_ALIAS_UNBOUNDED, sd.dtype))
    is_accurate = (best.alias <= tolerance) & (best.truncation <= ACCURATE)
    return Approximation(best.tilted, is_accurate, best.is_second, points, log_pi, peak)


def next_window(log_pi: tf.Tensor, x: tf.Tensor, peak: tf.Tensor, second_form: tf.Tensor, window: Window) -> Window:
    """
    Return the interval where π is, or N if the second form is used.

    :param log_pi: at the points `x` [K, R] of the present window.
    :param peak: where it is largest, [R].
    """
    half = window.half
    is_visible = log_pi >= tf.reduce_max(log_pi, axis=0) - _VISIBLE
    none = tf.zeros_like(is_visible[:1])
    # And one point more on either side.
    near = is_visible | tf.concat([is_visible[1:], none], 0) | tf.concat([none, is_visible[:-1]], 0)
    infinite = tf.fill(tf.shape(x), tf.constant(np.inf, x.dtype))
    left = tf.reduce_min(tf.where(near, x, infinite), axis=0)
    right = tf.reduce_max(tf.where(near, x, -infinite), axis=0)
    margins = []  # beyond the window's ends, where π is visible there
    for end, visible in ((x[0], is_visible[0]), (x[-1], is_visible[-1])):
        beyond = tf.where(tf.equal(peak, end), _FAR_EXTENSION * half, _EXTENSION * half)
        margins.append(tf.where(visible, beyond, tf.zeros_like(half)))
    left, right = left - margins[0], right + margins[1]
    left = tf.where(second_form, tf.minimum(left, -_REACH), left)
    right = tf.where(second_form, tf.maximum(right, _REACH), right)
    return Window(0.5 * (left + right), 0.5 * (right - left))
