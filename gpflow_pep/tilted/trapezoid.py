"""Tilted distributions by the trapezoid rule, with an estimate of its error.

On equispaced points over a window beyond which a smooth integrand vanishes the trapezoid rule converges exponentially:
with step h its error is the Fourier transform of the integrand at 2π/h (Trefethen and Weideman 2014). An integrand that
is analytic and bounded within a distance r from the real axis has a Fourier transform of order exp(-r ω), and points a
third of r apart err by exp(-6π) = 1e-8 of it or less; that of N(f; m, v) alone falls off as exp(-v ω²/2). What the
points themselves show is the transform up to their Nyquist frequency π/h.

Notation: x = (f - m)/√v, π(f) = N(f; m, v) p(y|f)^α / Z, q = (p^α - 1)/α, or log p where α = 0. In general log Z comes
from the integral of π, d1 = E_π[x]/(α √v) and d2 = (Var_π[x] - 1)/(α v). These cancel where Z is nearly 1 or α nearly
0; there, with N = N(f; m, v),

    Z = 1 + α E_N[q],   d1 = E_N[q x] / (Z √v),   d2 = E_N[q (x² - 1)]/(Z v) - α d1².
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .densities import LogDensity
from .rule import Cavity, Observations, Tilted

_FREQUENCY = 0.93  # at which spectra are estimated, in units of the Nyquist frequency
_STEP = 0.26  # largest step, in units of the radius of a density, for which the radius bounds the error
_ALIAS, _ALIAS_UNBOUNDED = 1e-3, 2e-9  # largest relative amplitude of a spectrum where it does, and where it does not
_ACCURATE = 1e-9  # largest relative error by truncation and rounding
_VISIBLE = 30.0  # nats below its largest value at which π is left out of a window
_NEARLY_ONE = 0.5  # largest α |E_N[q]| for which the second form is used
_COVERED, _REACH = 7.5, 9.0  # of N, in standard deviations: what this form needs at least, and what windows give it
_EXTENSION, _FAR_EXTENSION = 0.5, 15.0  # of windows beyond which π is visible, or largest, in half their width
_SMALLEST_POWER = 1e-30  # stands for α = 0
_LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)


class Window(NamedTuple):
    """The interval middle ± half of x, [R] each."""

    middle: tf.Tensor
    half: tf.Tensor


class Approximation(NamedTuple):
    """Tilted distributions, with what is known of their errors; [R] each but for `log_pi`."""

    tilted: Tilted
    is_accurate: tf.Tensor
    """Whether the relative errors of log Z, d1 and d2 are below 1e-8."""
    second_form: tf.Tensor
    """Whether the second form is used."""
    log_pi: tf.Tensor
    """log π + constant at the points, [K, R]."""


class _Form(NamedTuple):
    """Values from one of the two forms, and bounds of their relative errors; [R] each."""

    log_partition: tf.Tensor
    d1: tf.Tensor
    d2: tf.Tensor
    alias: tf.Tensor
    """By the step."""
    truncation: tf.Tensor
    """By truncation and rounding."""


def weights(number: int) -> AnyNDArray:
    """
    Return t = -1, ..., 1 and weights of sums over a `number` of points, [12, K].

    The sums are, times 1, t and t² each: values; cosine and sine transforms at one frequency. Then the values at both
    ends.
    """
    k = np.arange(number)
    t = 2.0 * k / (number - 1) - 1.0
    phase = _FREQUENCY * np.pi * k
    ends = (k == 0).astype(float), (k == number - 1).astype(float)
    rows = [t**power * wave for wave in (np.ones(number), np.cos(phase), np.sin(phase)) for power in range(3)]
    return np.stack([t, *rows, *ends])


def trapezoid(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor, window: Window, table: tf.Tensor
) -> Approximation:
    """
    Compute tilted distributions on equispaced points of a window.

    :param alpha: [R].
    :param table: what :func:`weights` returns.
    """
    m, v = cavity
    sd = tf.sqrt(v)
    middle, half = window
    power = tf.maximum(alpha, _SMALLEST_POWER)
    t, sums_of = table[0][:, None], table[1:]
    step = 2.0 * half / tf.cast(tf.shape(table)[1] - 1, half.dtype)

    x = middle + half * t  # [K, R]
    z = power * density.log_prob(m + sd * x, *observations)
    exponent = -0.5 * tf.square(x)
    log_pi = z + exponent
    height = tf.reduce_max(log_pi, axis=0)
    pi = sums_of @ tf.exp(log_pi - height)  # [11, R]
    T = tf.tanh(0.5 * z)  # exp(z) - 1 = 2 T / (1 - T)
    q = sums_of @ (tf.exp(exponent) * (T / (1.0 - T)))
    q *= 2.0 / power * step * np.exp(-_LOG_ROOT_2PI)

    offset = height + tf.math.log(step) - _LOG_ROOT_2PI
    ratio, by_pi = _from_pi(pi, offset, window, power, m, sd)
    by_q, by_q_is_small = _from_q(q, window, power, m, sd, tf.sqrt(ratio))
    covers = (middle - half < -_COVERED) & (middle + half > _COVERED)
    second_form = covers & by_q_is_small
    log_partition, d1, d2, alias, truncation = (tf.where(second_form, *pair) for pair in zip(by_q, by_pi, strict=True))

    is_fine = sd * step <= _STEP * density.radius(observations.X)
    tolerance = tf.where(is_fine, tf.constant(_ALIAS, sd.dtype), tf.constant(_ALIAS_UNBOUNDED, sd.dtype))
    is_accurate = (alias <= tolerance) & (truncation <= _ACCURATE)

    return Approximation(Tilted(log_partition, d1, d2, ratio), is_accurate, second_form, log_pi)


def next_window(
    log_pi: tf.Tensor, second_form: tf.Tensor, window: Window, table: tf.Tensor
) -> tuple[Window, tf.Tensor]:
    """
    Return the interval where π is, or N if the second form is used, and the point x where π is largest.

    :param log_pi: at the points of the present window, [K, R].
    """
    middle, half = window
    t = table[0][:, None] + tf.zeros_like(log_pi)
    step = 2.0 * half / tf.cast(tf.shape(table)[1] - 1, half.dtype)
    height = tf.reduce_max(log_pi, axis=0)
    is_visible = log_pi >= height - _VISIBLE
    one = tf.ones_like(t)
    peak = tf.reduce_min(tf.where(log_pi >= height, t, one), axis=0)
    first = tf.reduce_min(tf.where(is_visible, t, one), axis=0)
    last = tf.reduce_max(tf.where(is_visible, t, -one), axis=0)
    margins = []  # beyond the first and the last of these points
    for edge, end in ((first, -1.0), (last, 1.0)):
        beyond = tf.where(tf.equal(peak, end), _FAR_EXTENSION * half, _EXTENSION * half)
        margins.append(tf.where(tf.equal(edge, end), beyond, step))
    left, right = middle + half * first - margins[0], middle + half * last + margins[1]
    left = tf.where(second_form, tf.minimum(left, -_REACH), left)
    right = tf.where(second_form, tf.maximum(right, _REACH), right)
    return Window(0.5 * (left + right), 0.5 * (right - left)), middle + half * peak


class _Sums(NamedTuple):
    """What :func:`weights` sum up, [R] each."""

    values: list[tf.Tensor]
    """Times 1, t and t²."""
    amplitudes: list[tf.Tensor]
    """Bounds of the errors of these: their spectra."""
    end: tf.Tensor
    """The larger modulus at an end, which says what is left out beyond it."""


def _parts(sums: tf.Tensor) -> _Sums:
    values, cosines, sines, ends = tf.split(sums, [3, 3, 3, 2])
    amplitudes = tf.sqrt(tf.square(cosines) + tf.square(sines))
    return _Sums(tf.unstack(values), tf.unstack(amplitudes), tf.reduce_max(tf.abs(ends), axis=0))


def _from_pi(
    sums: tf.Tensor, offset: tf.Tensor, window: Window, power: tf.Tensor, m: tf.Tensor, sd: tf.Tensor
) -> tuple[tf.Tensor, _Form]:
    """Return Var_π[x], and what follows from it and from E_π[x]."""
    middle, half = window
    mass = sums[0]
    (_, of_t, of_square), (a0, a1, a2), end = _parts(sums / mass)
    spread = of_square - tf.square(of_t)
    mean, ratio = middle + half * of_t, tf.square(half) * spread
    log_Z = offset + tf.math.log(mass)

    gap = tf.abs(1.0 - ratio)  # the scale of d2, and in these units
    scale = tf.abs(mean) + gap * tf.sqrt(ratio)  # that of d1
    off = tf.abs(of_t)
    of_mean = half * (a1 + off * a0)
    of_ratio = tf.square(half) * (a2 + 2.0 * off * a1 + (tf.square(of_t) + spread) * a0)
    alias = _largest(a0 / tf.abs(log_Z), of_mean / scale, of_ratio / gap)
    reach = half * (1.0 + off)
    truncation = end * _largest(1.0 / tf.abs(log_Z), reach / scale, tf.square(reach) / gap)
    rounding = np.finfo(sd.dtype.as_numpy_dtype).eps * (1.0 + tf.abs(m * mean) / sd) / gap
    values = log_Z / power, mean / (power * sd), (ratio - 1.0) / (power * tf.square(sd))
    return ratio, _Form(*values, alias, truncation + rounding)


def _from_q(
    sums: tf.Tensor, window: Window, power: tf.Tensor, m: tf.Tensor, sd: tf.Tensor, width: tf.Tensor
) -> tuple[_Form, tf.Tensor]:
    """
    Return what follows from E_N[q], E_N[q x] and E_N[q x²], and whether α |E_N[q]| is small.

    :param width: standard deviation of π, in units of the cavity's.
    """
    middle, half = window
    off = tf.abs(middle)
    (q0, of_t, of_square), (a0, a1, a2), end = _parts(sums)
    q1 = middle * q0 + half * of_t
    q2 = middle * (q1 + half * of_t) + tf.square(half) * of_square
    Z = 1.0 + power * q0
    slope = q1 / Z
    curvature = (q2 - q0) / Z - power * tf.square(slope)

    gap = tf.abs(curvature)
    scale = tf.abs(slope) + gap * width
    e1 = off * a0 + half * a1
    e2 = tf.square(off) * a0 + 2.0 * off * half * a1 + tf.square(half) * a2
    of_slope = (e1 + power * tf.abs(slope) * a0) / Z
    of_curvature = (e2 + a0 + 2.0 * power * tf.abs(slope) * e1) / Z
    alias = _largest(a0 / tf.abs(q0), of_slope / scale, of_curvature / gap)
    end /= Z
    reach = off + half
    truncation = end * _largest(1.0 / tf.abs(q0), reach / scale, tf.square(reach) / gap)
    modulus = (tf.abs(q0) + tf.abs(q2)) / Z
    rounding = np.finfo(sd.dtype.as_numpy_dtype).eps * (modulus + tf.abs(m * slope) / sd) / gap
    values = tf.math.log1p(power * q0) / power, slope / sd, curvature / tf.square(sd)
    return _Form(*values, alias, truncation + rounding), power * tf.abs(q0) < _NEARLY_ONE


def _largest(one: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    for other in others:
        one = tf.maximum(one, other)
    return one
