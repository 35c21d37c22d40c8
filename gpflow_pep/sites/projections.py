"""Projections of a tilted distribution onto Gaussians, each a rule that gives the Gaussian's moments.

KL (expectation propagation) keeps mean and variance of the tilted distribution. The L2 Wasserstein distance (quantile
propagation, Zhang et al. 2019) keeps the mean, but the standard deviation becomes

    σ = ∫ φ(Φ⁻¹(F(f))) df,        F the tilted distribution function,

never more than the tilted one, and the same for a Gaussian likelihood.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import Exponential, Gamma, Gaussian, Poisson, ScalarLikelihood
from typing_extensions import override

from ..likelihoods import Probit
from ..quadrature import panels
from .closed_forms import AtPower, GammaExpectation, GaussianTilting, PoissonExpectation, ProbitTilting
from .quadrature import AdaptiveQuadrature, Resolved
from .tilted import Cavity, Rows, Tilted, TiltedRule

PROJECTIONS = ("kl", "wasserstein")


def site_rule(projection: str, likelihood: ScalarLikelihood) -> TiltedRule:
    """
    The rule for a projection, "kl" or "wasserstein", and a likelihood: closed forms where there are any.

    :raises ValueError: for another name, or a likelihood that is not one of scalar latent functions.
    """
    if projection not in PROJECTIONS:
        raise ValueError(f"projection must be one of {', '.join(map(repr, PROJECTIONS))}, got {projection!r}.")
    if not isinstance(likelihood, ScalarLikelihood):
        raise ValueError(f"likelihood must be a gpflow ScalarLikelihood, got {type(likelihood).__name__}.")
    if isinstance(likelihood, Gaussian):
        return GaussianTilting(likelihood)
    quadrature = AdaptiveQuadrature(likelihood)
    rule: TiltedRule = quadrature if projection == "kl" else Wasserstein(quadrature)
    if isinstance(likelihood, Probit) and projection == "kl":
        return AtPower(1.0, ProbitTilting(likelihood), rule)
    if isinstance(likelihood, Poisson) and likelihood.invlink in (tf.exp, tf.math.exp):
        return AtPower(0.0, PoissonExpectation(likelihood), rule)
    if isinstance(likelihood, Gamma | Exponential) and likelihood.invlink in (tf.exp, tf.math.exp):
        return AtPower(0.0, GammaExpectation(likelihood), rule)
    return rule


class Wasserstein(TiltedRule):
    """The L2 Wasserstein projection; in the limit α = 0, where tilting is infinitesimal, that of KL."""

    def __init__(self, quadrature: AdaptiveQuadrature):
        self._quadrature = quadrature

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        tilted, resolved = self._quadrature.moments_and_panels(cavity, rows, alpha)
        distance = tf.nn.relu(tilted.ratio - tf.square(_quantile_deviation(resolved, tf.shape(cavity.mean)[0])))
        distance = tf.where(alpha == 0.0, tf.zeros_like(distance), distance)  # squared, in units of v
        safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
        return tilted._replace(
            d2=tilted.d2 - distance / (safe * cavity.variance),
            ratio=tilted.ratio - distance,
        )

    @override
    def rough(self) -> TiltedRule:
        return self._quadrature.rough()

    @override
    def sensitivity(
        self, cavity: Cavity, rows: Rows, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        return self._quadrature.sensitivity(cavity, rows, alpha, bar, sources)


def _quantile_deviation(resolved: Resolved, num_rows: tf.Tensor) -> tf.Tensor:
    """σ in units of the cavity's standard deviation, [R]."""
    dtype = resolved.density.dtype
    by_left = tf.argsort(resolved.left)
    order = tf.gather(by_left, tf.argsort(tf.gather(resolved.row, by_left), stable=True))  # by row, then left to right
    row, half, density = (tf.gather(part, order) for part in (resolved.row, resolved.half, resolved.density))
    within = half[:, None] * tf.matmul(density, tf.constant(panels.INTEGRALS, dtype), transpose_b=True)  # [W, K]
    mass = tf.math.segment_sum(within[:, -1], row)  # [R]
    within /= tf.gather(mass, row)[:, None]
    number = tf.range(tf.size(row))
    at = tf.stack([row, number - tf.gather(tf.math.segment_min(number, row), row)], axis=1)  # row, place in it
    table = tf.scatter_nd(at, within[:, -1], [num_rows, tf.reduce_max(at[:, 1]) + 1])  # one row cannot spoil another
    before = tf.gather_nd(tf.cumsum(table, axis=1, exclusive=True), at)  # [W]
    F = tf.clip_by_value(before[:, None] + within, 0.0, 1.0)
    normal = tf.exp(-0.5 * tf.square(tf.math.ndtri(F)))  # φ(Φ⁻¹(F)) sqrt(2π), 0 where F is 0 or 1
    integral = half * tf.linalg.matvec(normal, tf.constant(panels.WEIGHTS[0], dtype))  # [W]
    return tf.math.unsorted_segment_sum(integral, row, num_rows) * tf.constant(0.3989422804014327, dtype)
