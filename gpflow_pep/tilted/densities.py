"""log p(y | f) of a scalar likelihood with its first two derivatives in f, elementwise and stable in the tails."""

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Ordinal, Poisson, ScalarLikelihood, SwitchedLikelihood
from gpflow.likelihoods.utils import inv_probit

from ..likelihoods import Logit, Probit
from ..normal import hazard


class Density(NamedTuple):
    """log p(y | f) and its derivatives in f."""

    log_prob: tf.Tensor
    slope: tf.Tensor
    curvature: tf.Tensor


_FAR = 1e10

LogDensity = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Density]
"""From F [K, R], rows X [R, D] and Y [R, Dy] to :class:`Density` [K, R]."""


@singledispatch
def log_density(likelihood: ScalarLikelihood) -> LogDensity:
    """The log density of a likelihood; in general its own, differentiated automatically (twice, in f)."""
    return _differentiated(lambda F, X, Y: likelihood._scalar_log_prob(X, F[..., None], Y)[..., 0])


def _differentiated(log_prob: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]) -> LogDensity:
    def density(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(F)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(F)
                value = log_prob(F, X, Y)
            slope = inner.gradient(value, F, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        curvature = outer.gradient(slope, F, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return Density(value, slope, curvature)

    return density


@log_density.register
def _switched(likelihood: SwitchedLikelihood) -> LogDensity:
    """It divides its arguments between likelihoods, for which they must have all of their rows, in one dimension."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        X, Y = (tf.tile(values, [tf.shape(F)[0], 1]) for values in (X, Y))
        return tf.reshape(likelihood._scalar_log_prob(X, tf.reshape(F, [-1, 1]), Y), tf.shape(F))

    return _differentiated(log_prob)


@log_density.register
def _ordinal(likelihood: Ordinal) -> LogDensity:
    """GPflow's outermost bin edges are infinite, where the second derivative of Phi is NaN; these are far enough."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        inner = likelihood.bin_edges / likelihood.sigma
        edges = tf.concat([[-_FAR], inner, [_FAR]], 0)
        number = tf.cast(Y[:, 0], tf.int32)
        x = F / likelihood.sigma
        below, above = (inv_probit(tf.gather(edges, number + k) - x) for k in (0, 1))
        return tf.math.log(above - below + 1e-6)

    return _differentiated(log_prob)


@log_density.register
def _probit(likelihood: Probit) -> LogDensity:
    def density(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        sign = likelihood.sign(Y)[:, 0]
        x = sign * F
        value = likelihood.log_cdf(x)
        slope, drop = hazard(x, value)
        return Density(value, sign * slope, -drop)

    return density


def _logistic(sign: Callable[[tf.Tensor], tf.Tensor]) -> LogDensity:
    def density(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        s = sign(Y)[:, 0]
        wrong = tf.sigmoid(-s * F)  # the probability of the other label
        return Density(tf.math.log_sigmoid(s * F), s * wrong, -wrong * tf.sigmoid(s * F))

    return density


@log_density.register
def _logit(likelihood: Logit) -> LogDensity:
    return _logistic(likelihood.sign)


@log_density.register
def _bernoulli(likelihood: Bernoulli) -> LogDensity:
    """With a sigmoid GPflow's own log(1 - p) is -inf from f = 37 on."""
    if likelihood.invlink in (tf.sigmoid, tf.nn.sigmoid, tf.math.sigmoid):
        return _logistic(lambda Y: 2.0 * Y - 1.0)
    return log_density.dispatch(ScalarLikelihood)(likelihood)


@log_density.register
def _poisson(likelihood: Poisson) -> LogDensity:
    """With exp GPflow's own y log(exp(f)) - exp(f) is NaN where exp overflows."""
    if likelihood.invlink not in (tf.exp, tf.math.exp):
        return log_density.dispatch(ScalarLikelihood)(likelihood)

    def density(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        Y = Y[:, 0]
        log_bin = tf.math.log(tf.convert_to_tensor(likelihood.binsize, F.dtype))
        rate = tf.exp(F + log_bin)
        return Density(Y * (F + log_bin) - rate - tf.math.lgamma(Y + 1.0), Y - rate, -rate)

    return density
