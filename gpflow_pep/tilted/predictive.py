"""
Predictions of y from marginals of f, accurate at any variance, unlike GPflow's quadrature with 20
nodes.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, Ordinal
from gpflow.likelihoods.utils import inv_probit

from ..engine import flat_rows, split_rows
from ..likelihoods import MultiClassRobustMax, Probit
from .densities import EXPONENTIALS
from .rule import (
    Cavity,
    Observations,
    has_rule,
    log_partition,
    overrides_density,
    rule_for,
)

# Their own predictions, but not those of subclasses, are as accurate as the rules.
_EXACT = (
    likelihoods.Gaussian,
    Probit,
    MultiClassRobustMax,
)
_WITH_LINK = (likelihoods.Poisson, likelihoods.Gamma, likelihoods.Exponential)
_ROWS = 4096  # rows of f per chunk
_POSITIONS = np.linspace(0.0, 1.0, 193)
_SCALE = 3.0  # standard deviations from 0 within which points are equispaced in asinh(f)
_LEAST_VARIANCE = 1e-12  # of f: rules divide by it


def predicted_log_density(
    likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    Return log ∫ p(y|f) N(f; m, v) df, [...], for y [..., P] and f [..., C]: log Z at α = 1.
    Differentiable once in all arguments.
    """
    if type(likelihood) in _EXACT or not has_rule(likelihood):
        return likelihood.predict_log_density(X, Fmu, Fvar, Y)

    def of_rows(*rows: tf.Tensor) -> list[tf.Tensor]:
        return [tf.reduce_sum(_log_densities(likelihood, *rows), axis=1)]

    return _by_rows(of_rows, [[None]], _ROWS, X, Fmu, Fvar, Y)[0]


def predicted_moments(
    likelihood: Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    rows_per_chunk: int | None = _ROWS,
) -> MeanAndVariance:
    """Return mean and variance of y, each [..., P], from mean and variance of f [..., C]."""
    mean, variance = _by_rows(
        lambda *rows: _moments(likelihood, *rows), [[None, None]] * 2, rows_per_chunk, X, Fmu, Fvar
    )
    return mean, variance


def _by_rows(
    function: Callable[..., Sequence[tf.Tensor]],
    shapes: Sequence[Sequence[None]],
    rows_per_chunk: int | None,
    *values: TensorType,
) -> list[tf.Tensor]:
    """
    Apply a function of rows [n, D], which returns tensors of these `shapes`, to values [..., D] in
    chunks.
    """
    tensors = [tf.convert_to_tensor(each) for each in values]
    rows = list(map(flat_rows, tensors))
    dtype = tensors[1].dtype
    found = split_rows(rows, rows_per_chunk).concatenate(
        lambda chunk: function(*chunk.data), dtype, shapes
    )
    batch = tf.shape(tensors[1])[:-1]
    return [tf.reshape(each, tf.concat([batch, tf.shape(each)[1:]], 0)) for each in found]


def _log_densities(
    likelihood: Likelihood, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """
    Return log densities of y [n, P] for each latent function, [n, C], or for all jointly, [n, 1].
    """
    if isinstance(likelihood, Ordinal) and not overrides_density(likelihood, (Ordinal,)):
        own = tf.one_hot(tf.cast(Y, tf.int32), likelihood.num_bins, axis=0, dtype=mean.dtype)
        return tf.math.log(tf.reduce_sum(own * _of_labels(likelihood, mean, variance), axis=0))
    return tf.transpose(
        log_partition(
            rule_for(likelihood, "kl"),
            _cavity(mean, variance),
            Observations(X, tf.cast(Y, mean.dtype)),
            tf.ones([], mean.dtype),
            in_observations=True,
        )
    )


def _cavity(mean: tf.Tensor, variance: tf.Tensor) -> Cavity:
    """Return the cavity of rows with marginals of f, [n, C] each."""
    variance = tf.maximum(variance, _LEAST_VARIANCE)
    return Cavity(tf.transpose(mean), tf.transpose(variance))


def _moments(
    likelihood: Likelihood, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
) -> Sequence[tf.Tensor]:
    """Return mean and variance of y [n, P] for rows of f [n, C]."""
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        parts = [_moments(each, X, mean, variance) for each in likelihood.likelihoods]
        return [tf.concat(each, axis=-1) for each in zip(*parts, strict=True)]
    if isinstance(likelihood, likelihoods.Softmax | likelihoods.MultiClass):
        rule = rule_for(likelihood, "kl")
        p = tf.transpose(rule.class_probabilities(_cavity(mean, variance), X))
        return p, p * (1.0 - p)
    if type(likelihood) in _EXACT or not isinstance(likelihood, likelihoods.ScalarLikelihood):
        return likelihood.predict_mean_and_var(X, mean, variance)
    if isinstance(likelihood, Ordinal) and not overrides_density(likelihood, (Ordinal,)):
        labels = tf.range(likelihood.num_bins, dtype=mean.dtype)[:, None, None]
        return _mean_and_variance(labels, _of_labels(likelihood, mean, variance))
    if type(likelihood) in _WITH_LINK and likelihood.invlink in EXPONENTIALS:
        # E[y|f] = a exp(f) and Var[y|f] = b exp(k f).
        k = 1.0 if isinstance(likelihood, likelihoods.Poisson) else 2.0
        zero = tf.zeros_like(mean)
        a = likelihood.conditional_mean(X, zero)
        b = likelihood.conditional_variance(X, zero)
        expected = a * tf.exp(mean + 0.5 * variance)
        noise = b * tf.exp(k * mean + 0.5 * k**2 * variance)
        # In this order: the square of a large mean would be infinite, and NaN after times 0.
        return expected, noise + expected * (expected * tf.math.expm1(variance))
    if type(likelihood) is likelihoods.StudentT:
        df = tf.cast(likelihood.df, mean.dtype)
        ratio = df / tf.nn.relu(df - 2.0)  # the variance of y given f is infinite up to df = 2
        return mean, variance + ratio * tf.square(likelihood._scale(X))
    F, weights = _nodes(mean, variance)
    expected, spread = _mean_and_variance(likelihood.conditional_mean(X, F), weights)
    return expected, spread + tf.reduce_sum(weights * likelihood.conditional_variance(X, F), axis=0)


def _mean_and_variance(values: tf.Tensor, weights: tf.Tensor) -> MeanAndVariance:
    """Return the moments of K values with weights [K, n, C], which add up to 1."""
    mean = tf.reduce_sum(weights * values, axis=0)
    return mean, tf.reduce_sum(weights * tf.square(values - mean), axis=0)


def _nodes(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return points and weights for N(m, v), [K, n, C] each: dense at 0, where links change, and for
    every mean at most 0.7 standard deviations apart. They are equispaced in t with f = s
    asinh(sinh(t)/s), which is sinh(t) for |f| below s, a few standard deviations, and grows in
    proportion to t beyond.
    """
    sd = tf.sqrt(tf.maximum(variance, _LEAST_VARIANCE))
    scale = tf.maximum(_SCALE * sd, 1.0)  # s; narrow N: 1, so that f = t
    # Some inverse links grow like exp(f), which moves the maximum of their square by 2 v; others
    # vanish unless f is near 0. Beyond 36 standard deviations N underflows.
    reach = tf.maximum(8.0 * sd + 2.0 * tf.square(sd), 2.0 * sd + tf.abs(mean))
    reach = tf.minimum(reach, 36.0 * sd)
    first, last = (_stretched(edge, scale) for edge in (mean - reach, mean + reach))
    t = first + (last - first) * tf.constant(_POSITIONS[:, None, None], mean.dtype)
    # asinh(sinh(t)/s) = |t| + log((a + r)/s), a = e sinh|t|, e = exp(-|t|), r² = a² + (e s)²: e^|t|
    # would overflow.
    e = tf.exp(-tf.abs(t))
    a = 0.5 - 0.5 * tf.square(e)
    r = tf.sqrt(tf.square(a) + tf.square(e * scale))
    F = tf.sign(t) * scale * (tf.abs(t) + tf.math.log((a + r) / scale))
    exponent = tf.square((F - mean) / sd)
    exponent -= tf.reduce_min(exponent, axis=0)  # if the mean is so large that F is rounded
    weights = tf.exp(-0.5 * exponent) * (1.0 + tf.square(e)) / r  # df/dt = s (1 + e²)/(2 r)
    return F, weights / tf.reduce_sum(weights, axis=0)


def _stretched(f: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Return t = asinh(s sinh(f/s)), without overflow."""
    u = tf.abs(f) / scale
    e = tf.exp(-u)
    a = scale * (0.5 - 0.5 * tf.square(e))
    return tf.sign(f) * (u + tf.math.log(a + tf.sqrt(tf.square(a) + tf.square(e))))


def _of_labels(likelihood: Ordinal, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    Return the probabilities of the labels, [K, n, C], by E[Φ((b - f)/σ)] = Φ((b - m)/s) with s² =
    σ² + v. GPflow's terms, with the jitter of `inv_probit` and of the logarithm, do not add up to
    1.
    """
    spread = tf.sqrt(tf.square(likelihood.sigma) + variance)
    inner = (
        tf.cast(likelihood.bin_edges, mean.dtype)[:, None, None] - mean
    ) / spread  # [K - 1, n, C]
    far = 1e10 * tf.ones_like(mean)[None]  # finite: TensorFlow's erf is NaN at infinity
    below = inv_probit(tf.concat([-far, inner, far], axis=0))
    terms = below[1:] - below[:-1] + 1e-6
    return terms / tf.reduce_sum(terms, axis=0)
