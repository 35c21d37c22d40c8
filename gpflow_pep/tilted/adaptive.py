"""Tilted distributions of any likelihood, by adaptive quadrature.

A cavity may be a thousand times as wide as the likelihood or a hundredth of it, so that no fixed rule serves: here
panels around the mode of the tilted distribution are divided until Chebyshev polynomials of degree 22 resolve the
integrands on each. All rows are worked on together; in general their first four panels are enough.

Notation: π(f) = N(f; m, v) p(y|f)^α / Z, l = log p(y|f), l' and l'' its derivatives in f.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..maths import Evaluated, Panels, integrate
from ..maths.adaptive_quadrature import NODES, TAIL, WEIGHTS
from ..runtime.custom_gradients import derivatives
from .densities import LogDensity
from .rule import Cavity, Observations, Tilted

# Panels about the mode, in standard deviations of the cavity. log π has at most the curvature of the cavity where the
# likelihood is log-concave, so that past 10 there is 1e-22 of π; it takes that much for log Z = -1e-12 (p nearly 1).
_EDGES = (-10.0, -4.5, 0.0, 4.5, 10.0)
# Of the last coefficients, times the panel's width, relative to the integral of the modulus. Far out, where the density
# is small but the derivatives need not be, a narrow peak of the likelihood (Student's t) may stand between two nodes:
# even a small coefficient may be the only sign of it, and the tolerance is smaller there.
_TOLERANCE, _TOLERANCE_OUTSIDE = 2e-7, 1e-10
_OUTSIDE = _EDGES[-2]


class Centered(NamedTuple):
    """Rows in units of their own cavity: f = center + sd x; [R] each."""

    center: tf.Tensor
    sd: tf.Tensor
    shift: tf.Tensor  # (center - m) / sd
    height: tf.Tensor  # α l(center) - shift²/2, so that π is about 1 there before it is normalized
    slope: tf.Tensor  # l'(center)


class Resolved(NamedTuple):
    """Panels [W] with the unnormalized density of π at their nodes [W, K]; a row's are not in order."""

    row: tf.Tensor  # Which row a panel belongs to, [W]
    left: tf.Tensor  # Its left end, in cavity standard deviations from the center, [W]
    half: tf.Tensor  # Half its width, in the same unit, [W]
    density: tf.Tensor


_NUM_INTEGRALS, _NUM_WATCHED = 7, 4
_LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)
_SMALL_SHIFT = 3.0  # cavity standard deviations
_NARROW = 0.5  # ratio of the tilted to the cavity's variance


class _Integrals(NamedTuple):
    """Integrals over all panels of a row, [R] each. P is π, unnormalized; N is the cavity, normalized."""

    P: tf.Tensor
    Px: tf.Tensor
    Pxx: tf.Tensor
    slope: tf.Tensor  # of P (l' - l'(center))
    slope_squared: tf.Tensor
    curvature: tf.Tensor  # of P l''
    change: tf.Tensor  # of N (p^α - 1)/α, or N l where α = 0


class AdaptivePanels:
    """
    Integrates tilted distributions of scalar likelihoods that are twice differentiable in f.

    The relative error of log Z, d1 and d2 is below 1e-8 for cavity means of some tens and variances from 1e-4 to 1e3.
    """

    def __init__(self, density: LogDensity):
        self._density = density

    def moments(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        center: tf.Tensor,
        wanted: tf.Tensor | None = None,
    ) -> Tilted:
        """
        Compute the tilted distributions from panels about a center; alpha [n].

        :param wanted: which rows are wanted [n]; None: all.
        """
        centered = _centered(self._density, cavity, observations, alpha, center)
        sums, _ = self._integrate(centered, observations, alpha, keep_panels=False, wanted=wanted)
        return _tilted(centered, _Integrals(*tf.unstack(sums, axis=-1)), alpha)

    def moments_and_panels(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, center: tf.Tensor
    ) -> tuple[Tilted, Resolved]:
        """Compute the tilted distributions and the panels that resolve their densities; alpha [n]."""
        centered = _centered(self._density, cavity, observations, alpha, center)
        sums, resolved = self._integrate(centered, observations, alpha, keep_panels=True)
        return _tilted(centered, _Integrals(*tf.unstack(sums, axis=-1)), alpha), resolved

    def log_partition_vjp(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        center: tf.Tensor,
        bar: tf.Tensor,
        sources: Sequence[Any],
    ) -> tuple[tf.Tensor, ...]:
        """Compute the derivatives of sum(bar * log_partition): those of E_π[log p], on panels that resolve π."""
        centered = _centered(self._density, cavity, observations, alpha, center)
        sums, resolved = self._integrate(centered, observations, alpha, keep_panels=True)
        row, left, half, density = resolved
        weight = tf.gather(bar / sums[:, 0], row) * half * tf.transpose(density * WEIGHTS)  # [K, W]
        at = _take(centered, row)
        F = at.center + at.sd * (left + half * tf.constant(NODES + 1.0, half.dtype)[:, None])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            log_prob = self._density(F, *_take(observations, row)).log_prob
            total = tf.reduce_sum(tf.where(weight == 0.0, tf.zeros_like(weight), weight * log_prob))
        return derivatives(tape, total, sources)

    def _integrate(
        self,
        centered: Centered,
        observations: Observations,
        alpha: tf.Tensor,
        *,
        keep_panels: bool,
        wanted: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Any]:
        """Compute the integrals [R, 7], and the panels where they are asked for."""
        dtype, R = centered.sd.dtype, tf.shape(centered.sd)[0]
        nodes = tf.constant(NODES + 1.0, dtype)[:, None]
        inside, outside = (tf.constant(value, dtype) for value in (_TOLERANCE, _TOLERANCE_OUTSIDE))

        def evaluate(panels: Panels) -> Evaluated:
            row, left, half = panels
            at, observed, power = _take(centered, row), _take(observations, row), tf.gather(alpha, row)
            integrands = _integrands(self._density, left + half * nodes, at, observed, power)
            values, moduli, tails = (tf.transpose(half * part) for part in _integrals(integrands, left, half))
            tolerance = tf.where(tf.abs(left + half) > _OUTSIDE, outside, inside)[:, None]
            return Evaluated(values, moduli, tails / tolerance, (tf.transpose(integrands.P),))

        edges = np.array(_EDGES)
        used = None if wanted is None else tf.repeat(wanted, len(edges) - 1)
        first = Panels(
            row=tf.repeat(tf.range(R), len(edges) - 1),
            left=tf.tile(tf.constant(edges[:-1], dtype), [R]),
            half=tf.tile(tf.constant(0.5 * np.diff(edges), dtype), [R]),
        )
        sums, kept = integrate(evaluate, first, R, shape=(_NUM_INTEGRALS, _NUM_WATCHED), keep=keep_panels, used=used)
        return sums, Resolved(*kept) if keep_panels else None


def _centered(
    density: LogDensity, cavity: Cavity, observations: Observations, alpha: tf.Tensor, center: tf.Tensor
) -> Centered:
    at = density(tf.expand_dims(center, 0), *observations)
    sd = tf.sqrt(cavity.variance)
    shift = (center - cavity.mean) / sd
    return Centered(center, sd, shift, alpha * at.log_prob[0] - 0.5 * tf.square(shift), at.slope[0])


def _take(values: Any, row: tf.Tensor) -> Any:
    return type(values)(*(tf.gather(value, row) for value in values))


class _Integrands(NamedTuple):
    """At the nodes of each panel, [K, W] each; see :class:`_Integrals`."""

    P: tf.Tensor
    slope: tf.Tensor
    slope_squared: tf.Tensor
    curvature: tf.Tensor
    change: tf.Tensor


def _integrands(
    density: LogDensity, x: tf.Tensor, centered: Centered, observations: Observations, alpha: tf.Tensor
) -> _Integrands:
    """What is integrated over x [K, W]."""
    log_prob, l1, l2 = density(centered.center + centered.sd * x, *observations)
    exponent = -0.5 * tf.square(x + centered.shift)
    P = tf.exp(alpha * log_prob + (exponent - centered.height))
    outside = P == 0.0  # where it underflows, l' and l'' may overflow
    h = tf.where(outside, tf.zeros_like(P), l1 - centered.slope)
    curvature = tf.where(outside, tf.zeros_like(P), l2)
    safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
    change = tf.where(alpha == 0.0, log_prob, tf.math.expm1(alpha * log_prob) / safe)
    Ph = P * h
    return _Integrands(P, Ph, Ph * h, P * curvature, change * tf.exp(exponent - _LOG_ROOT_2PI))


def _integrals(integrands: _Integrands, left: tf.Tensor, half: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    Over half a panel's width: integrals [7, W]; of those functions that must be resolved for them the integrals of
    the modulus and the largest of the last coefficients, [4, W].
    """
    dtype = half.dtype
    moments = WEIGHTS * np.stack(
        [
            np.ones_like(NODES),
            1.0 + NODES,
            (1.0 + NODES) ** 2,
        ]
    )
    P, Pt, Ptt, *tail = tf.unstack(tf.constant(np.concatenate([moments, TAIL]), dtype) @ integrands.P)
    integrals = [P, left * P + half * Pt, tf.square(left) * P + 2.0 * left * half * Pt + tf.square(half) * Ptt]
    moduli, tails = [P], [tail]
    weights = tf.constant(WEIGHTS, dtype)
    for integrand in integrands[1:]:
        integral, *tail = tf.unstack(tf.constant(np.concatenate([WEIGHTS, TAIL]), dtype) @ integrand)
        integrals.append(integral)
        if integrand is not integrands.slope_squared:
            moduli.append((weights @ tf.abs(integrand))[0])
            tails.append(tail)
    return tf.stack(integrals), tf.stack(moduli), tf.reduce_max(tf.abs(tf.stack(tails)), axis=1)


def _tilted(centered: Centered, integrals: _Integrals, alpha: tf.Tensor) -> Tilted:
    """
    Moments give d1 = (E_π f - m)/(α v) and d2 = (Var_π f / v - 1)/(α v), which is right where π is much narrower than
    the cavity; elsewhere they cancel, but d1 = E_π l' and d2 = E_π l'' + α Var_π l' do not.
    """
    mass = integrals.P
    mean = integrals.Px / mass  # from the center, in sd
    ratio = integrals.Pxx / mass - tf.square(mean)
    h = integrals.slope / mass
    spread = tf.nn.relu(integrals.slope_squared / mass - tf.square(h))
    narrow = (ratio < _NARROW) & (alpha > 0.0)
    safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
    d1 = tf.where(narrow, (centered.shift + mean) / (safe * centered.sd), centered.slope + h)
    d2 = tf.where(narrow, (ratio - 1.0) / (safe * tf.square(centered.sd)), integrals.curvature / mass + alpha * spread)
    log_Z = centered.height + tf.math.log(mass) - _LOG_ROOT_2PI
    # log1p of E[p^α - 1] keeps log Z accurate where p is nearly 1 or α nearly 0; the panels cover all of the cavity
    # there, since p^α hardly shifts its mode.
    nearly_one = (alpha * tf.abs(integrals.change) < 0.5) & (tf.abs(centered.shift) < _SMALL_SHIFT)
    change = tf.where(nearly_one, integrals.change, tf.zeros_like(mass))
    log_normalizer = tf.where(alpha == 0.0, change, tf.math.log1p(alpha * change) / safe)
    return Tilted(tf.where(nearly_one, log_normalizer, log_Z / safe), d1, d2, ratio)
