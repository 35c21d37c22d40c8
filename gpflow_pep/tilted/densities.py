"""log p(y | f) of scalar likelihoods with its first two derivatives in f, elementwise and stable in the tails."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Exponential,
    Gamma,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    StudentT,
    SwitchedLikelihood,
)
from gpflow.likelihoods.utils import inv_probit
from gpflow.utilities import to_default_float

from ..likelihoods import Logit, Probit
from ..maths.normal import log_ndtr, log_ndtr_and_derivatives
from ..runtime.tracing import refuse_xla
from .rule import Observations

_EXPONENTIALS = (tf.exp, tf.math.exp)
_SIGMOIDS = (tf.sigmoid, tf.nn.sigmoid, tf.math.sigmoid)
_FAR = 1e10
_JITTER = 1e-3  # of GPflow's inv_probit
_LARGE = 200.0  # from here on the series of log Γ(x + 1/2) - log Γ(x) is exact to 1e-15

# How far from the real axis singularities of log p (or, with an exponential link, growth of p) begin.
_RADIUS_PROBIT, _RADIUS_JITTERED_PROBIT = 2.816, 0.905  # zeros of Phi(z) and of 1e-3 + (1 - 2e-3) Phi(z)
_CENTER_JITTERED_PROBIT = -3.202  # the real part of the nearest of these
_RADIUS_LOGIT, _RADIUS_EXPONENTIAL = np.pi, 1.5  # a little less than π/2: what grows with y stands before the rest


class Density(NamedTuple):
    """log p(y | f) and its derivatives in f."""

    log_prob: tf.Tensor
    slope: tf.Tensor
    curvature: tf.Tensor


LogProb: TypeAlias = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""From F [K, R] and rows X [R, D] and Y [R, P] to log p(y | f), [K, R]."""


@dataclass(frozen=True)
class LogDensity:
    """The log density of a scalar likelihood; calling it gives the derivatives too."""

    log_prob: LogProb
    derivatives: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Density] | None = None
    """From the arguments of `log_prob` to value and derivatives; by default TensorFlow differentiates `log_prob`."""
    radius: Callable[[tf.Tensor], Any] = lambda X: 0.0
    """From X [R, D] to a width, [] or [R]: p^α, α <= 1, is analytic in f and bounded within this distance from the real
    axis. 0 if it is not known; quadrature then takes more nodes to be sure."""
    center: Callable[[Observations], Any] | None = None
    """From rows to f, [] or [R], where p changes fastest: away from there the radius grows in proportion to the
    distance. None if there is no such place; wide cavities then take more nodes."""

    def __call__(self, F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        """Compute log p(y | f) and its derivatives, [K, R] each."""
        if self.derivatives is not None:
            return self.derivatives(F, X, Y)
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(F)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(F)
                value = self.log_prob(F, X, Y)
            slope = inner.gradient(value, F, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        curvature = outer.gradient(slope, F, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return Density(value, slope, curvature)


class _LogDensities:
    """A registry of functions from a likelihood to its :class:`LogDensity`."""

    def __init__(self) -> None:
        self._makers: dict[type[ScalarLikelihood], Callable[[Any], LogDensity]] = {}

    def register(
        self, kind: type[ScalarLikelihood]
    ) -> Callable[[Callable[[Any], LogDensity]], Callable[[Any], LogDensity]]:
        """Decorate a function that returns the log density of likelihoods of this class."""

        def register(maker: Callable[[Any], LogDensity]) -> Callable[[Any], LogDensity]:
            self._makers[kind] = maker
            return maker

        return register

    def __call__(self, likelihood: ScalarLikelihood) -> LogDensity:
        """
        Return the registered log density of a likelihood, or else its own, differentiated automatically.

        A subclass that overrides ``_scalar_log_prob`` does not inherit what its base class has registered.
        """
        for kind in type(likelihood).__mro__:
            if kind in self._makers:
                return self._makers[kind](likelihood)
            if "_scalar_log_prob" in vars(kind):
                break
        return _own(likelihood)


log_density = _LogDensities()


def _at_zero(observations: Observations) -> tf.Tensor:
    """Where both labels are equally probable."""
    return tf.zeros([], observations.Y.dtype)


def _column(value: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Broadcast a parameter or function of the inputs to [R]."""
    return tf.broadcast_to(value, [tf.shape(X)[0], 1])[:, 0]


def _own(likelihood: ScalarLikelihood) -> LogDensity:
    return LogDensity(lambda F, X, Y: likelihood._scalar_log_prob(X, F[..., None], Y)[..., 0])


@log_density.register(SwitchedLikelihood)
def _switched(likelihood: SwitchedLikelihood) -> LogDensity:
    """It divides its arguments between likelihoods, for which they must have all of their rows, in one dimension."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        refuse_xla("a SwitchedLikelihood, which divides rows by their values")
        X, Y = (tf.tile(values, [tf.shape(F)[0], 1]) for values in (X, Y))
        return tf.reshape(likelihood._scalar_log_prob(X, tf.reshape(F, [-1, 1]), Y), tf.shape(F))

    return LogDensity(log_prob)


@log_density.register(Ordinal)
def _ordinal(likelihood: Ordinal) -> LogDensity:
    """GPflow's outermost edges are infinite, where the second derivative of Phi is NaN. Finite ones replace them."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        inner = likelihood.bin_edges / likelihood.sigma
        edges = tf.concat([[-_FAR], inner, [_FAR]], 0)
        number = tf.cast(Y[:, 0], tf.int32)
        x = F / likelihood.sigma
        below, above = (inv_probit(tf.gather(edges, number + k) - x) for k in (0, 1))
        return tf.math.log(above - below + 1e-6)

    return LogDensity(log_prob)


@log_density.register(Probit)
def _probit(likelihood: Probit) -> LogDensity:
    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return log_ndtr(likelihood.sign(Y)[:, 0] * F)

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        sign = likelihood.sign(Y)[:, 0]
        value, slope, drop = log_ndtr_and_derivatives(sign * F)
        return Density(value, sign * slope, -drop)

    return LogDensity(log_prob, derivatives, lambda X: _RADIUS_PROBIT, _at_zero)


def _logistic(sign: Callable[[tf.Tensor], tf.Tensor]) -> LogDensity:
    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return tf.math.log_sigmoid(sign(Y)[:, 0] * F)

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        s = sign(Y)[:, 0]
        wrong = tf.sigmoid(-s * F)  # the probability of the other label
        return Density(tf.math.log_sigmoid(s * F), s * wrong, -wrong * tf.sigmoid(s * F))

    return LogDensity(log_prob, derivatives, lambda X: _RADIUS_LOGIT, _at_zero)


@log_density.register(Logit)
def _logit(likelihood: Logit) -> LogDensity:
    return _logistic(likelihood.sign)


@log_density.register(Bernoulli)
def _bernoulli(likelihood: Bernoulli) -> LogDensity:
    """With a sigmoid GPflow's own log(1 - p) is -inf from f = 37 on; its probit, which has a jitter, keeps digits."""
    if likelihood.invlink in _SIGMOIDS:
        return _logistic(lambda Y: 2.0 * Y - 1.0)
    return _jittered_probit() if likelihood.invlink is inv_probit else _own(likelihood)


def _jittered_probit() -> LogDensity:
    """p = ε + (1 - 2ε) Phi(±f), as `inv_probit` has it."""

    def sign_of(Y: tf.Tensor) -> tf.Tensor:
        one = tf.ones_like(Y[:, 0])
        return tf.where(tf.equal(Y[:, 0], 1.0), one, -one)

    def probabilities(F: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return ±1, ±f, the tail (1 - 2ε) Phi(-|f|) and p."""
        sign = sign_of(Y)
        x = sign * F
        tail = 0.5 * (1.0 - 2.0 * _JITTER) * tf.math.erfc(np.sqrt(0.5) * tf.abs(x))
        return sign, x, tail, tf.where(x > 0.0, 1.0 - _JITTER - tail, _JITTER + tail)

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        _, x, tail, _ = probabilities(F, Y)
        return tf.where(x > 0.0, tf.math.log1p(-_JITTER - tail), tf.math.log(_JITTER + tail))

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        sign, x, _, p = probabilities(F, Y)
        h = (1.0 - 2.0 * _JITTER) / np.sqrt(2.0 * np.pi) * tf.exp(-0.5 * tf.square(x)) / p
        return Density(log_prob(F, X, Y), sign * h, -h * (x + h))

    def center(observations: Observations) -> tf.Tensor:
        return sign_of(observations.Y) * _CENTER_JITTERED_PROBIT

    return LogDensity(log_prob, derivatives, lambda X: _RADIUS_JITTERED_PROBIT, center)


@log_density.register(Poisson)
def _poisson(likelihood: Poisson) -> LogDensity:
    """With exp GPflow's own y log(exp(f)) - exp(f) is NaN where exp overflows."""
    if likelihood.invlink not in _EXPONENTIALS:
        return _own(likelihood)

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        Y = Y[:, 0]
        log_bin = tf.math.log(tf.convert_to_tensor(likelihood.binsize, F.dtype))
        rate = tf.exp(F + log_bin)
        return Density(Y * (F + log_bin) - rate - tf.math.lgamma(Y + 1.0), Y - rate, -rate)

    return LogDensity(lambda *at: derivatives(*at).log_prob, derivatives, lambda X: _RADIUS_EXPONENTIAL)


def power_of(y: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """(k - 1) log y, 0 where y = 0 and k = 1. The derivative of TensorFlow's xlogy in k is 0 where k = 1, not log y."""
    positive = y > 0.0
    log = tf.math.log(tf.where(positive, y, tf.ones_like(y)))
    return tf.where(positive, (k - 1.0) * log, tf.math.xlogy(k - 1.0, y))


@log_density.register(Gamma)
def _gamma(likelihood: Gamma) -> LogDensity:
    return _of_scale(likelihood, lambda X: _column(likelihood._shape(X), X))


@log_density.register(Exponential)
def _exponential(likelihood: Exponential) -> LogDensity:
    return _of_scale(likelihood, lambda X: tf.ones([], X.dtype))


def _of_scale(likelihood: Gamma | Exponential, shape: Callable[[tf.Tensor], tf.Tensor]) -> LogDensity:
    """A gamma density of scale exp(f)."""
    if likelihood.invlink not in _EXPONENTIALS:
        return _own(likelihood)

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        k, Y = shape(X), Y[:, 0]
        relative = Y * tf.exp(-F)
        constant = power_of(Y, k) - tf.math.lgamma(k)
        return Density(constant - k * F - relative, relative - k, -relative)

    return LogDensity(lambda *at: derivatives(*at).log_prob, derivatives, lambda X: _RADIUS_EXPONENTIAL)


def log_gamma_ratio(x: tf.Tensor) -> tf.Tensor:
    """log Γ(x + 1/2) - log Γ(x), by its series (Tricomi and Erdélyi 1951) where the two would cancel."""
    small, large = tf.minimum(x, _LARGE), tf.maximum(x, _LARGE)
    series = 0.5 * tf.math.log(large) - 1.0 / (8.0 * large) + 1.0 / (192.0 * large**3)
    return tf.where(x > _LARGE, series, tf.math.lgamma(small + 0.5) - tf.math.lgamma(small))


@log_density.register(StudentT)
def _student_t(likelihood: StudentT) -> LogDensity:
    """GPflow's own log(1 + z²/ν) has no digits left where ν is large."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        df, scale = to_default_float(likelihood.df), _column(likelihood._scale(X), X)
        constant = log_gamma_ratio(0.5 * df) - 0.5 * tf.math.log(np.pi * df) - tf.math.log(scale)
        return constant - 0.5 * (df + 1.0) * tf.math.log1p(tf.square((Y[:, 0] - F) / scale) / df)

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        df = to_default_float(likelihood.df)
        error = Y[:, 0] - F
        total = df * tf.square(_column(likelihood._scale(X), X)) + tf.square(error)
        slope = (df + 1.0) * error / total
        return Density(log_prob(F, X, Y), slope, (2.0 * error * slope - (df + 1.0)) / total)

    def radius(X: tf.Tensor) -> tf.Tensor:
        """Where (1 + z²/(ν s²))^(-(ν + 1)/2), which has a pole at z = i s √ν, is 10."""
        df = to_default_float(likelihood.df)
        return _column(likelihood._scale(X), X) * tf.sqrt(-df * tf.math.expm1(-2.0 * np.log(10.0) / (df + 1.0)))

    return LogDensity(log_prob, derivatives, radius, lambda observations: observations.Y[:, 0])
