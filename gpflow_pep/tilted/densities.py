"""
Log densities of scalar likelihoods with two derivatives in f, stable in the tails; closed-form
tilted moments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods
from gpflow.likelihoods import ScalarLikelihood
from gpflow.likelihoods.utils import inv_probit
from gpflow.utilities import to_default_float
from typing_extensions import override

from ..engine import log1p_ratio, noise_at
from ..likelihoods import Logit, Probit
from ..maths.normal import log_ndtr, log_ndtr_and_derivatives
from ..runtime import Tensors, derivatives, refuse_xla, watching
from .rule import (
    KL,
    AtPower,
    Cavity,
    Observations,
    Projection,
    Registry,
    Scalar,
    Tilted,
    TiltedRule,
    Wasserstein,
    tilted_rule,
)

EXPONENTIALS = (tf.exp, tf.math.exp)
_SIGMOIDS = (tf.sigmoid, tf.nn.sigmoid, tf.math.sigmoid)
_SOFTPLUSES = (tf.nn.softplus, tf.math.softplus)
_LEAST_SOFTPLUS = -30.0  # below, softplus(f) = exp(f) to 5e-14
_LEAST_MODE = 1e-6  # of softplus(f), if the observation is 0
_JITTER = 1e-3  # GPflow's inv_probit maps to [1e-3, 1 - 1e-3]
# Radius for exponential links: exp(-y exp(f)) is bounded up to π/2; slightly less, because
# prefactors grow with y.
_RADIUS_EXPONENTIAL = 1.5

LogProb: TypeAlias = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""Maps F [K, R], X [R, D] and Y [R, P] to log p(y | f), [K, R]."""
_ExponentialFamily: TypeAlias = likelihoods.Poisson | likelihoods.Gamma | likelihoods.Exponential
_Moments: TypeAlias = Callable[[Cavity, Observations, tf.Tensor], Tilted]


class _Terms(NamedTuple):
    """
    log p = constant + slope f - rate exp(sign f): of Poisson, gamma and exponential densities with
    an exponential link; [] or [R].
    """

    constant: tf.Tensor
    slope: tf.Tensor
    rate: tf.Tensor
    sign: float


class Density(NamedTuple):
    """log p(y | f) and its derivatives in f."""

    log_prob: tf.Tensor
    slope: tf.Tensor
    curvature: tf.Tensor


@dataclass(frozen=True)
class LogDensity:
    """The log density of a scalar likelihood; calling it gives the derivatives too."""

    log_prob: LogProb
    derivatives: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Density] | None = None
    """
    Maps the arguments of `log_prob` to value and derivatives. None: automatic differentiation of
    `log_prob`.
    """
    radius: Callable[[tf.Tensor], Any] = lambda X: 0.0
    """
    Maps X [R, D] to the distance from the real axis, [] or [R], within which p^α, α <= 1, is
    analytic in f and bounded. 0 if unknown: quadrature then uses more nodes.
    """
    center: Callable[[Observations], Any] | None = None
    """
    Maps rows to the f, [] or [R], at which p changes fastest; away from it the radius grows in
    proportion to the distance. None if there is no such point: wide cavities then use more nodes.
    """
    is_log_concave: bool = False
    """Whether log p is known to be concave in f: tilted distributions have one mode."""

    def __call__(self, F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        """Compute log p(y | f) and its derivatives, each [K, R]."""
        if self.derivatives is not None:
            return self.derivatives(F, X, Y)
        with watching([F]) as outer:
            with watching([F]) as inner:
                value = self.log_prob(F, X, Y)
            (slope,) = derivatives(inner, value, [F])
        return Density(value, slope, *derivatives(outer, slope, [F]))


log_density = Registry("log_density")
"""
Registry: returns the :class:`LogDensity` of a likelihood; by default its ``_scalar_log_prob``,
differentiated automatically.
"""


def _column(value: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Broadcast a parameter or function of the inputs to [R]."""
    return tf.broadcast_to(value, [tf.shape(X)[0], 1])[:, 0]


@log_density.register(ScalarLikelihood)
def _automatic(likelihood: ScalarLikelihood) -> LogDensity:
    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        value = likelihood._scalar_log_prob(X, F[..., None], Y)
        F = F[..., None]
        if value.dtype != F.dtype or not value.shape.is_compatible_with(F.shape):
            name = type(likelihood).__name__
            raise ValueError(
                f"likelihood: _scalar_log_prob of {name} must return a value for each f, but F is "
                f"{F.dtype.name} of shape {F.shape}, the result {value.dtype.name} of shape "
                f"{value.shape}."
            )
        return value[..., 0]

    return LogDensity(log_prob)


@log_density.register(likelihoods.SwitchedLikelihood)
def _switched(likelihood: likelihoods.SwitchedLikelihood) -> LogDensity:
    """SwitchedLikelihood partitions its arguments by row, so F [K, R] is flattened."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        refuse_xla("a SwitchedLikelihood, which partitions rows by their values")
        X, Y = (tf.tile(values, [tf.shape(F)[0], 1]) for values in (X, Y))
        return tf.reshape(likelihood._scalar_log_prob(X, tf.reshape(F, [-1, 1]), Y), tf.shape(F))

    return LogDensity(log_prob)


@log_density.register(likelihoods.Ordinal)
def _ordinal(likelihood: likelihoods.Ordinal) -> LogDensity:
    """
    Use finite outermost edges: at GPflow's infinite edges the second derivative of Phi is NaN.
    """

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        edges = tf.concat([[-1e10], likelihood.bin_edges / likelihood.sigma, [1e10]], 0)
        number = tf.cast(Y[:, 0], tf.int32)
        x = F / likelihood.sigma
        below, above = (inv_probit(tf.gather(edges, number + k) - x) for k in (0, 1))
        return tf.math.log(above - below + 1e-6)

    return LogDensity(log_prob)


@log_density.register(Probit)
def _probit(likelihood: Probit) -> LogDensity:
    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        sign = likelihood.sign(Y)[:, 0]
        value, slope, drop = log_ndtr_and_derivatives(sign * F)
        return Density(value, sign * slope, -drop)

    # Both labels are equally probable at 0; 2.816 is the imaginary part of the first zeros of
    # Phi(z).
    return LogDensity(
        lambda F, X, Y: log_ndtr(likelihood.sign(Y)[:, 0] * F),
        derivatives,
        lambda X: 2.816,
        lambda _: 0.0,
        is_log_concave=True,
    )


def _logistic(sign: Callable[[tf.Tensor], tf.Tensor]) -> LogDensity:
    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        s = sign(Y)[:, 0]
        wrong = tf.sigmoid(-s * F)  # the probability of the other label
        return Density(tf.math.log_sigmoid(s * F), s * wrong, -wrong * tf.sigmoid(s * F))

    log_sigmoid = tf.math.log_sigmoid  # with poles at ± iπ
    return LogDensity(
        lambda F, X, Y: log_sigmoid(sign(Y)[:, 0] * F),
        derivatives,
        lambda X: np.pi,
        lambda _: 0.0,
        is_log_concave=True,
    )


@log_density.register(Logit)
def _logit(likelihood: Logit) -> LogDensity:
    return _logistic(likelihood.sign)


@log_density.register(likelihoods.Bernoulli)
def _bernoulli(likelihood: likelihoods.Bernoulli) -> LogDensity:
    """
    Replace GPflow's log(1 - p), which with a sigmoid is -inf above f = 37; inv_probit is ε + (1 -
    2ε) Phi(f).
    """
    if likelihood.invlink in _SIGMOIDS:
        return _logistic(lambda Y: 2.0 * Y - 1.0)
    if likelihood.invlink is not inv_probit:
        return _automatic(likelihood)

    def sign_of(Y: tf.Tensor) -> tf.Tensor:
        one = tf.ones_like(Y[:, 0])
        return tf.where(tf.equal(Y[:, 0], 1.0), one, -one)

    def probabilities(F: tf.Tensor, Y: tf.Tensor) -> Tensors:
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

    # The first zeros of p for y = 1 are at f = -3.202 ± 0.905i.
    return LogDensity(
        log_prob,
        derivatives,
        lambda X: 0.905,
        lambda observations: -3.202 * sign_of(observations.Y),
    )


def _log_of(invlink: Callable[[tf.Tensor], tf.Tensor], F: tf.Tensor) -> tf.Tensor:
    """Return the logarithm of an inverse link, which is finite also where the link underflows."""
    if invlink not in _SOFTPLUSES:
        return tf.math.log(tf.maximum(invlink(F), np.finfo(F.dtype.as_numpy_dtype).tiny))
    log = tf.math.log(tf.math.softplus(tf.maximum(F, _LEAST_SOFTPLUS)))
    return tf.where(F < _LEAST_SOFTPLUS, F, log)


def _by_link(
    likelihood: _ExponentialFamily, log_prob: LogProb, mode: Callable[..., tf.Tensor]
) -> LogDensity:
    """
    Return the log density of y given a mean or scale by a link, `log_prob` unless the link is
    exponential; `mode`: the most probable value of invlink(f).
    """
    if likelihood.invlink in EXPONENTIALS:
        return _exponential(likelihood)
    if likelihood.invlink not in _SOFTPLUSES:
        return LogDensity(log_prob)

    def center(observations: Observations) -> tf.Tensor:
        value = tf.maximum(mode(observations), _LEAST_MODE)
        return value + tf.math.log(-tf.math.expm1(-value))  # the inverse of softplus

    # As with exponential links: log(1 + exp(f)) and its inverse have positive real parts up to π/2.
    return LogDensity(log_prob, None, lambda X: _RADIUS_EXPONENTIAL, center)


@log_density.register(likelihoods.Poisson)
def _poisson(likelihood: likelihoods.Poisson) -> LogDensity:
    """Replace GPflow's y log λ - λ, which is NaN if λ overflows, or vanishes and y = 0."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        Y = Y[:, 0]
        size = tf.convert_to_tensor(likelihood.binsize, F.dtype)
        log_rate = _log_of(likelihood.invlink, F) + tf.math.log(size)
        return Y * log_rate - size * likelihood.invlink(F) - tf.math.lgamma(Y + 1.0)

    return _by_link(likelihood, log_prob, lambda at: at.Y[:, 0] / likelihood.binsize)


def log_power(y: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """
    Return (k - 1) log y, 0 if y = 0 and k = 1; unlike for xlogy, the derivative in k is log y also
    at k = 1.
    """
    positive = y > 0.0
    log = tf.math.log(tf.where(positive, y, 1.0))
    return tf.where(positive, (k - 1.0) * log, tf.math.xlogy(k - 1.0, y))


def _shape(likelihood: likelihoods.Gamma | likelihoods.Exponential, X: tf.Tensor) -> tf.Tensor:
    """Return the shape k of the gamma density, [] or [R]; k = 1 for an exponential density."""
    if isinstance(likelihood, likelihoods.Gamma):
        return _column(likelihood._shape(X), X)
    return tf.ones([], X.dtype)


@log_density.register((likelihoods.Gamma, likelihoods.Exponential))
def _gamma(likelihood: likelihoods.Gamma | likelihoods.Exponential) -> LogDensity:
    """
    Return the log density of a gamma distribution with scale exp(f) or, by another link, s(f).
    """

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        k = _shape(likelihood, X)
        Y = Y[:, 0]
        log_scale = _log_of(likelihood.invlink, F)
        constant = log_power(Y, k) - tf.math.lgamma(k)
        # 1/s may overflow: then p(y > 0) vanishes.
        relative = tf.math.multiply_no_nan(tf.exp(-log_scale), tf.broadcast_to(Y, tf.shape(F)))
        return constant - k * log_scale - relative

    def mode(at: Observations) -> tf.Tensor:
        return at.Y[:, 0] / _shape(likelihood, at.X)

    return _by_link(likelihood, log_prob, mode)


def _terms(likelihood: _ExponentialFamily, X: tf.Tensor, Y: tf.Tensor) -> _Terms:
    """Return the terms of the log density of rows if the link is exponential."""
    y = Y[:, 0]
    if isinstance(likelihood, likelihoods.Poisson):
        size = tf.convert_to_tensor(likelihood.binsize, y.dtype)
        return _Terms(y * tf.math.log(size) - tf.math.lgamma(y + 1.0), y, size, 1.0)
    k = _shape(likelihood, X)
    return _Terms(log_power(y, k) - tf.math.lgamma(k), -k, y, -1.0)


def _exponential(likelihood: _ExponentialFamily) -> LogDensity:
    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        constant, slope, rate, sign = _terms(likelihood, X, Y)
        size = rate * tf.exp(sign * F)
        return Density(constant + slope * F - size, slope - sign * size, -size)

    return LogDensity(
        lambda *at: derivatives(*at).log_prob,
        derivatives,
        lambda X: _RADIUS_EXPONENTIAL,
        is_log_concave=True,
    )


@log_density.register(likelihoods.Beta)
def _beta(likelihood: likelihoods.Beta) -> LogDensity:
    """
    Replace GPflow's parameters a and b, one of which vanishes where a sigmoid is 0 or 1 to
    rounding.
    """
    if likelihood.invlink not in _SIGMOIDS:
        return _automatic(likelihood)

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        scale = _column(likelihood._scale(X), X)
        Y = Y[:, 0]
        log_mean = tf.math.log_sigmoid(F)
        log_rest = tf.math.log_sigmoid(-F)
        a = scale * tf.exp(log_mean)
        b = scale * tf.exp(log_rest)
        # log Γ(a) = log Γ(a + 1) - log a
        log_gammas = tf.math.lgamma(a + 1.0) + tf.math.lgamma(b + 1.0) - log_mean - log_rest
        constant = tf.math.lgamma(scale) + 2.0 * tf.math.log(scale)
        return (a - 1.0) * tf.math.log(Y) + (b - 1.0) * tf.math.log1p(-Y) + constant - log_gammas

    return LogDensity(log_prob)


@log_density.register(likelihoods.StudentT)
def _student_t(likelihood: likelihoods.StudentT) -> LogDensity:
    """Replace GPflow's log(1 + z²/ν), which loses all accuracy for large ν."""

    def log_prob(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        df = to_default_float(likelihood.df)
        scale = _column(likelihood._scale(X), X)
        constant = (
            -tfp.math.log_gamma_difference(0.5, 0.5 * df)
            - 0.5 * tf.math.log(np.pi * df)
            - tf.math.log(scale)
        )
        return constant - 0.5 * (df + 1.0) * tf.math.log1p(tf.square((Y[:, 0] - F) / scale) / df)

    def derivatives(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Density:
        df = to_default_float(likelihood.df)
        error = Y[:, 0] - F
        total = df * tf.square(_column(likelihood._scale(X), X)) + tf.square(error)
        slope = (df + 1.0) * error / total
        return Density(log_prob(F, X, Y), slope, (2.0 * error * slope - (df + 1.0)) / total)

    def radius(X: tf.Tensor) -> tf.Tensor:
        """
        Return the |z| of the imaginary z with (1 + z²/(ν s²))^(-(ν + 1)/2) = 10; the pole is at z =
        i s √ν.
        """
        df = to_default_float(likelihood.df)
        return _column(likelihood._scale(X), X) * tf.sqrt(
            -df * tf.math.expm1(-2.0 * np.log(10.0) / (df + 1.0))
        )

    return LogDensity(log_prob, derivatives, radius, lambda observations: observations.Y[:, 0])


# --- tilted distributions in closed form ----------------------------------------------------------
class ClosedForm(TiltedRule):
    """Compute tilted distributions by a function of cavities, observations and powers."""

    def __init__(self, function: _Moments):
        self._function = function

    @override
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        return self._function(cavity, observations, alpha)


@tilted_rule.register(likelihoods.Gaussian, (KL, Wasserstein))
def _gaussian(likelihood: likelihoods.Gaussian, projection: Projection) -> TiltedRule:
    """
    N(y; f, s)^α is proportional to N(y; f, s/α), so the tilted distribution is Gaussian for all α.
    """

    def moments(cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> Tilted:
        noise = noise_at(likelihood, observations.X)  # s [R]
        total = noise + alpha * cavity.variance
        error = observations.Y[:, 0] - cavity.mean
        log_det = tf.math.log(2.0 * np.pi * noise) + log1p_ratio(alpha, cavity.variance / noise)
        return Tilted(
            -0.5 * (log_det + tf.square(error) / total), error / total, -1.0 / total, noise / total
        )

    return ClosedForm(moments)


@tilted_rule.register(Probit, KL)
def _probit_rule(likelihood: Probit, projection: KL) -> TiltedRule:
    """α = 1: log Z = log Phi(z), z = ± m / sqrt(1 + v) (Rasmussen and Williams 2005, sec. 3.9)."""

    def moments(cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> Tilted:
        sign = likelihood.sign(observations.Y)[:, 0]
        total = 1.0 + cavity.variance
        z = sign * cavity.mean / tf.sqrt(total)
        log_Z, slope, drop = log_ndtr_and_derivatives(z)
        ratio = (1.0 + cavity.variance * tf.nn.relu(1.0 - drop)) / total
        return Tilted(log_Z, sign * slope / tf.sqrt(total), -drop / total, ratio)

    return AtPower(1.0, ClosedForm(moments), _by_quadrature(likelihood, projection))


@tilted_rule.register((likelihoods.Poisson, likelihoods.Gamma, likelihoods.Exponential), KL)
def _exponential_rule(likelihood: _ExponentialFamily, projection: KL) -> TiltedRule:
    """For α = 0 and an exponential link: E[exp(± f)] in place of exp(± f) in the log density."""
    quadrature = _by_quadrature(likelihood, projection)
    if likelihood.invlink not in EXPONENTIALS:
        return quadrature

    def moments(cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> Tilted:
        constant, slope, rate, sign = _terms(likelihood, *observations)
        size = rate * tf.exp(sign * cavity.mean + 0.5 * cavity.variance)
        expected = constant + slope * cavity.mean - size
        return Tilted(expected, slope - sign * size, -size, tf.ones_like(size))

    return AtPower(0.0, ClosedForm(moments), quadrature)


def _by_quadrature(likelihood: ScalarLikelihood, projection: KL) -> TiltedRule:
    return tilted_rule.dispatch_or_raise(ScalarLikelihood, KL)(likelihood, projection)
