"""log Z, d1 and d2 from sums over points, in two forms, with bounds of their errors.

Notation: x = (f - m)/√v, π(f) = N(f; m, v) p(y|f)^α / Z, q = (p^α - 1)/α, or log p where α = 0. In general log Z comes
from the integral of π, d1 = E_π[x]/(α √v) and d2 = (Var_π[x] - 1)/(α v). These cancel where Z is nearly 1 or α nearly
0; there, with N = N(f; m, v),

    Z = 1 + α E_N[q],   d1 = E_N[q x] / (Z √v),   d2 = E_N[q (x² - 1)]/(Z v) - α d1².
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..graphs import shared
from .rule import Cavity, Tilted

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
