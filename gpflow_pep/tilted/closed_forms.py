"""Tilted distributions in closed form, in place of quadrature."""

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Exponential, Gamma, Gaussian, Poisson, ScalarLikelihood
from typing_extensions import override

from ..engine import log1p_ratio
from ..likelihoods import Probit
from ..maths.normal import log_ndtr_and_derivatives
from .densities import power_of
from .registry import KL, Projection, Wasserstein, tilted_rule
from .rule import AtPower, Cavity, Observations, Size, Tilted, TiltedRule


class GaussianTilting(TiltedRule):
    """N(y; f, s)^α at any α: proportional to N(y; f, s/α)."""

    def __init__(self, likelihood: Gaussian):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        noise = self._likelihood.variance_at(observations.X)[:, 0]  # s [R]
        total = noise + alpha * cavity.variance
        error = observations.Y[:, 0] - cavity.mean
        log_det = tf.math.log(2.0 * np.pi * noise) + log1p_ratio(alpha, cavity.variance / noise)
        return Tilted(-0.5 * (log_det + tf.square(error) / total), error / total, -1.0 / total, noise / total)


class ProbitTilting(TiltedRule):
    """Phi(±f) at α = 1: log Z = log Phi(z), z = ± m / sqrt(1 + v) (Rasmussen and Williams 2005, sec. 3.9)."""

    def __init__(self, likelihood: Probit):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        sign = self._likelihood.sign(observations.Y)[:, 0]
        total = 1.0 + cavity.variance
        z = sign * cavity.mean / tf.sqrt(total)
        log_Z, slope, drop = log_ndtr_and_derivatives(z)
        ratio = (1.0 + cavity.variance * tf.nn.relu(1.0 - drop)) / total
        return Tilted(log_Z, sign * slope / tf.sqrt(total), -drop / total, ratio)


class PoissonExpectation(TiltedRule):
    """α = 0 with an exponential link: E[y g - exp(g)], g = f + log(bin size), whose mass may be far from m."""

    def __init__(self, likelihood: Poisson):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        y = observations.Y[:, 0]
        m = cavity.mean + tf.math.log(tf.convert_to_tensor(self._likelihood.binsize, y.dtype))
        rate = tf.exp(m + 0.5 * cavity.variance)
        return Tilted(y * m - rate - tf.math.lgamma(y + 1.0), y - rate, -rate, tf.ones_like(rate))


class GammaExpectation(TiltedRule):
    """α = 0 with an exponential link: E[-k f - y exp(-f)] of shape k, 1 if exponential; its mass may be far from m."""

    def __init__(self, likelihood: Gamma | Exponential):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        y = observations.Y[:, 0]
        k = tf.ones_like(y)
        if isinstance(self._likelihood, Gamma):
            k = tf.broadcast_to(self._likelihood._shape(observations.X), tf.shape(observations.Y))[:, 0]
        expected = y * tf.exp(-cavity.mean + 0.5 * cavity.variance)
        constant = power_of(y, k) - tf.math.lgamma(k)
        return Tilted(constant - k * cavity.mean - expected, expected - k, -expected, tf.ones_like(expected))


@tilted_rule.register(Gaussian, (KL, Wasserstein))
def _gaussian(likelihood: Gaussian, projection: Projection) -> TiltedRule:
    """The tilted distribution is Gaussian."""
    return GaussianTilting(likelihood)


@tilted_rule.register(Probit, KL)
def _probit(likelihood: Probit, projection: Projection) -> TiltedRule:
    return AtPower(1.0, ProbitTilting(likelihood), _by_quadrature(likelihood, projection))


@tilted_rule.register(Poisson, (KL, Wasserstein))
def _poisson(likelihood: Poisson, projection: Projection) -> TiltedRule:
    return _at_zero(PoissonExpectation(likelihood), likelihood, projection)


@tilted_rule.register((Gamma, Exponential), (KL, Wasserstein))
def _gamma(likelihood: Gamma | Exponential, projection: Projection) -> TiltedRule:
    return _at_zero(GammaExpectation(likelihood), likelihood, projection)


def _at_zero(expectation: TiltedRule, likelihood: Poisson | Gamma | Exponential, projection: Projection) -> TiltedRule:
    """Use an expectation, known for an exponential link, at α = 0, where both projections are the same."""
    quadrature = _by_quadrature(likelihood, projection)
    return AtPower(0.0, expectation, quadrature) if likelihood.invlink in (tf.exp, tf.math.exp) else quadrature


def _by_quadrature(likelihood: ScalarLikelihood, projection: Projection) -> TiltedRule:
    """Return the rule of any scalar likelihood."""
    rule: TiltedRule = tilted_rule.dispatch_or_raise(ScalarLikelihood, type(projection))(likelihood, projection)
    return rule
