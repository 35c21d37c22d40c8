"""Tilted distributions that are known in closed form, in place of quadrature."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Exponential, Gamma, Gaussian, Poisson
from typing_extensions import override

from ..likelihoods import Probit
from ..normal import hazard, log_ndtr
from ..statistics import log1p_ratio
from .tilted import Cavity, Rows, Tilted, TiltedRule


class GaussianTilting(TiltedRule):
    """N(y; f, s)^α at any α: proportional to N(y; f, s/α)."""

    def __init__(self, likelihood: Gaussian):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        noise = self._likelihood.variance_at(rows.X)[:, 0]  # s [R]
        total = noise + alpha * cavity.variance
        error = rows.Y[:, 0] - cavity.mean
        log_det = tf.math.log(2.0 * np.pi * noise) + log1p_ratio(alpha, cavity.variance / noise)
        return Tilted(-0.5 * (log_det + tf.square(error) / total), error / total, -1.0 / total, noise / total)


class ProbitTilting(TiltedRule):
    """Phi(±f) at α = 1: log Z = log Phi(z), z = ± m / sqrt(1 + v) (Rasmussen and Williams 2005, sec. 3.9)."""

    def __init__(self, likelihood: Probit):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        sign = self._likelihood.sign(rows.Y)[:, 0]
        total = 1.0 + cavity.variance
        z = sign * cavity.mean / tf.sqrt(total)
        log_Z = log_ndtr(z)
        slope, drop = hazard(z, log_Z)
        ratio = (1.0 + cavity.variance * tf.nn.relu(1.0 - drop)) / total
        return Tilted(log_Z, sign * slope / tf.sqrt(total), -drop / total, ratio)


class PoissonExpectation(TiltedRule):
    """α = 0 with an exponential link: E[y g - exp(g)], g = f + log(bin size), whose mass may be far from m."""

    def __init__(self, likelihood: Poisson):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        y = rows.Y[:, 0]
        m = cavity.mean + tf.math.log(tf.convert_to_tensor(self._likelihood.binsize, y.dtype))
        rate = tf.exp(m + 0.5 * cavity.variance)
        return Tilted(y * m - rate - tf.math.lgamma(y + 1.0), y - rate, -rate, tf.ones_like(rate))


class GammaExpectation(TiltedRule):
    """α = 0 with an exponential link: E[-k f - y exp(-f)] of shape k, 1 if exponential; its mass may be far from m."""

    def __init__(self, likelihood: Gamma | Exponential):
        self._likelihood = likelihood

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        y = rows.Y[:, 0]
        k = tf.ones_like(y)
        if isinstance(self._likelihood, Gamma):
            k = tf.broadcast_to(self._likelihood._shape(rows.X), tf.shape(rows.Y))[:, 0]
        expected = y * tf.exp(-cavity.mean + 0.5 * cavity.variance)
        constant = tf.math.xlogy(k - 1.0, y) - tf.math.lgamma(k)
        return Tilted(constant - k * cavity.mean - expected, expected - k, -expected, tf.ones_like(expected))


class AtPower(TiltedRule):
    """One rule where α has a certain value, another one elsewhere; α may change in a compiled graph."""

    def __init__(self, power: float, there: TiltedRule, elsewhere: TiltedRule):
        self._power, self._there, self._elsewhere = power, there, elsewhere

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        def by(rule: TiltedRule) -> Any:
            return lambda: tuple(rule.moments(cavity, rows, alpha))

        return Tilted(*tf.cond(tf.equal(alpha, self._power), by(self._there), by(self._elsewhere)))

    @override
    def rough(self) -> TiltedRule:
        return AtPower(self._power, self._there, self._elsewhere.rough())

    @override
    def sensitivity(
        self, cavity: Cavity, rows: Rows, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        def by(rule: TiltedRule) -> Any:
            return lambda: rule.sensitivity(cavity, rows, alpha, bar, sources)

        return tuple(tf.cond(tf.equal(alpha, self._power), by(self._there), by(self._elsewhere)))
