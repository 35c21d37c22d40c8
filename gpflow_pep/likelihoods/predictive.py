"""Predictions of y from marginals of f: by GPflow, except for Ordinal, for which GPflow returns NaN."""

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, Ordinal
from gpflow.likelihoods.utils import inv_probit


def predicted_moments(likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
    """Return mean and variance of y, each [..., P], from mean and variance of f [..., C]."""
    if not isinstance(likelihood, Ordinal):
        return likelihood.predict_mean_and_var(X, Fmu, Fvar)
    probabilities = _probabilities(likelihood, Fmu, Fvar)
    labels = tf.range(likelihood.num_bins, dtype=probabilities.dtype)
    mean = tf.reduce_sum(labels * probabilities, axis=-1)
    return mean, tf.reduce_sum(tf.square(labels) * probabilities, axis=-1) - tf.square(mean)


def predicted_log_density(
    likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
) -> tf.Tensor:
    """Return the log density of y under marginals of f, [...]."""
    if not isinstance(likelihood, Ordinal):
        return likelihood.predict_log_density(X, Fmu, Fvar, Y)
    probabilities = _probabilities(likelihood, Fmu, Fvar) + 1e-6  # like log_prob in GPflow
    labels = tf.broadcast_to(tf.cast(Y, tf.int32), tf.shape(probabilities)[:-1])
    own = tf.gather(probabilities, labels, axis=-1, batch_dims=labels.shape.rank)
    return tf.reduce_sum(tf.math.log(own), axis=-1)


def _probabilities(likelihood: Ordinal, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
    """
    Compute the probabilities of all labels, [..., C, K], by E[Φ((b - f)/σ)] = Φ((b - μ)/s) with s² = σ² + v; they sum
    to 0.998 because of the jitter in `inv_probit`.
    """
    Fmu, Fvar = tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar)
    spread = tf.sqrt(tf.square(tf.convert_to_tensor(likelihood.sigma)) + Fvar)
    inner = (tf.cast(likelihood.bin_edges, Fmu.dtype) - Fmu[..., None]) / spread[..., None]  # [..., C, K - 1]
    far = 1e10 * tf.ones_like(inner[..., :1])  # finite: TensorFlow's erf is NaN at infinity
    below = inv_probit(tf.concat([-far, inner, far], axis=-1))
    return below[..., 1:] - below[..., :-1]
