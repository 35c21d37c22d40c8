"""
Predictions of observations and samples that raise an error instead of returning NaN.

Model classes use them in place of the methods of :class:`gpflow.models.GPModel`.
"""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel

from ..likelihoods.observations import check_observations
from ..likelihoods.predictive import predicted_log_density, predicted_moments
from ..maths.linalg import finite
from ..runtime.checks import asserted
from ..runtime.tracing import in_xla
from ..validation import inputs, real_numbers

_ADVICE = (
    "checking Xnew, Y and the likelihood's parameters for NaN, infinite or overflowing values, and the kernel for a "
    "variance so large that p(y|f) overflows"
)


@check_shapes("Xnew: [batch..., N, D]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]")
def predict_y(self: GPModel, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False) -> MeanAndVariance:
    """
    Compute mean and variance of new observations at Xnew, by quadrature if there is no closed form.

    :raises NotImplementedError: if full_cov or full_output_cov is True.
    :raises ValueError: if Xnew is not finite (eagerly).
    :raises tf.errors.InvalidArgumentError: if one is NaN.
    """
    if full_cov or full_output_cov:
        raise NotImplementedError("predict_y has no full_cov and no full_output_cov: they must be False.")
    Xnew = real_numbers(Xnew, "Xnew")
    mean, variance = predicted_moments(self.likelihood, Xnew, *self.predict_f(Xnew))
    return _number(mean, "the predicted mean of y"), _number(variance, "the predicted variance of y")


@check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, P]", "return: [batch..., N]")
def predict_log_density(
    self: GPModel, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
) -> tf.Tensor:
    """
    Log density of new observations Y at X, in nats.

    :raises NotImplementedError: if full_cov or full_output_cov is True.
    :raises ValueError: if X is not finite (eagerly), or the likelihood does not accept Y.
    :raises tf.errors.InvalidArgumentError: if a density is NaN.
    """
    X, Y = data
    X = inputs(X, "data[0] (X)")
    Y = real_numbers(Y, "data[1] (Y)")
    rows = check_observations(self.likelihood, tf.reshape(Y, [-1, Y.shape[-1]]), self.num_latent_gps)
    Y = tf.reshape(rows, tf.shape(Y))
    if in_xla():
        X = asserted(X, tf.math.is_finite(Y))  # a likelihood may take NaN for a label
    if isinstance(self.likelihood, Softmax):
        Y = tf.cast(Y, tf.int64)  # GPflow's takes whole numbers only
    if full_cov or full_output_cov:
        raise NotImplementedError("predict_log_density has no full_cov and no full_output_cov: they must be False.")
    density = predicted_log_density(self.likelihood, X, *self.predict_f(X), Y)
    return _number(density, "the log predictive densities")


@check_shapes(
    "Xnew: [batch..., N, D]",
    "return: [batch..., N, P] if (num_samples is None)",
    "return: [batch..., S, N, P] if (num_samples is not None)",
)
def predict_f_samples(
    self: GPModel, Xnew: InputData, num_samples: int | None = None, full_cov: bool = True, full_output_cov: bool = False
) -> tf.Tensor:
    """
    Samples of the latent function at Xnew; see :meth:`gpflow.models.GPModel.predict_f_samples`.

    :raises tf.errors.InvalidArgumentError: if their covariance cannot be factorized.
    """
    samples = GPModel.predict_f_samples(self, Xnew, num_samples, full_cov, full_output_cov)
    return finite(samples, name="the posterior samples", advice="a larger jitter, or fewer or distinct Xnew")


def _number(value: tf.Tensor, name: str) -> tf.Tensor:
    """Refuse NaN, but not infinity: the variance of a Student-t, or the logarithm of a probability of 0."""
    if in_xla():
        return asserted(value, ~tf.math.is_nan(value))
    with tf.control_dependencies(
        [finite(tf.where(tf.math.is_inf(value), tf.zeros_like(value), value), name=name, advice=_ADVICE)]
    ):
        return tf.identity(value)
