"""Predictions of observations from marginals of f: GPflow's, except for Ordinal, where GPflow returns NaN."""

from functools import singledispatch

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, Ordinal
from gpflow.likelihoods.utils import inv_probit

_FAR = 1e10  # in place of infinity, at which TensorFlow's error function is NaN
_FLOOR = 1e-6  # GPflow adds this to a probability


@singledispatch
def predicted_moments(likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
    """Mean and variance of y, [..., P] each, given those of f [..., C]."""
    return likelihood.predict_mean_and_var(X, Fmu, Fvar)


@singledispatch
def predicted_log_density(
    likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """Log density of y under these marginals of f, [...]."""
    return likelihood.predict_log_density(X, Fmu, Fvar, Y)


@predicted_moments.register
def _ordinal_moments(likelihood: Ordinal, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
    probabilities = _probabilities(likelihood, Fmu, Fvar)
    labels = tf.range(likelihood.num_bins, dtype=probabilities.dtype)
    mean = tf.reduce_sum(labels * probabilities, axis=-1)
    return mean, tf.reduce_sum(tf.square(labels) * probabilities, axis=-1) - tf.square(mean)


@predicted_log_density.register
def _ordinal_log_density(
    likelihood: Ordinal, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    probabilities = _probabilities(likelihood, Fmu, Fvar) + _FLOOR
    labels = tf.broadcast_to(tf.cast(Y, tf.int32), tf.shape(probabilities)[:-1])
    own = tf.gather(probabilities, labels, axis=-1, batch_dims=labels.shape.rank)
    return tf.reduce_sum(tf.math.log(own), axis=-1)


def _probabilities(likelihood: Ordinal, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """
    Compute the probability of each label, [..., C, K], which sum to 0.998 with the jitter of GPflow's `inv_probit`.

    f and the noise of variance σ² add up to a Gaussian: E[Φ((b - f)/σ)] = Φ((b - μ)/s) with s² = σ² + v.
    """
    Fmu, Fvar = tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar)
    spread = tf.sqrt(tf.square(tf.convert_to_tensor(likelihood.sigma)) + Fvar)
    inner = (tf.cast(likelihood.bin_edges, Fmu.dtype) - Fmu[..., None]) / spread[..., None]  # [..., C, K - 1]
    far = _FAR * tf.ones_like(inner[..., :1])
    below = inv_probit(tf.concat([-far, inner, far], axis=-1))
    return below[..., 1:] - below[..., :-1]
