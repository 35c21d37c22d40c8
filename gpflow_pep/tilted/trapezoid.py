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

from .densities import LogDensity
from .forms import Moments, best_form
from .rule import Cavity, Observations, Size, Tilted

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
