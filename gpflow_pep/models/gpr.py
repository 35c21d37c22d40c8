"""GPflow's GPR with the closed form of its gradient."""

import tensorflow as tf
from gpflow.logdensities import multivariate_normal
from gpflow.models import GPR
from gpflow.utilities import add_likelihood_noise_cov
from typing_extensions import override

from ..maths.linalg import inverse_of_product
from ..runtime import Tensors, WithGradient, no_autograph, once_differentiable


class ClosedFormGPR(GPR):
    """A GPR whose log evidence has its closed-form gradient, in half of TensorFlow's time."""

    @override
    def log_marginal_likelihood(self) -> tf.Tensor:
        X, Y = self.data
        K = add_likelihood_noise_cov(self.kernel(X), self.likelihood, X)
        return _log_density(Y - self.mean_function(X), K)


@no_autograph
@tf.custom_gradient
def _log_density(residuals: tf.Tensor, K: tf.Tensor) -> WithGradient:
    """
    Return the log density [] of P columns r of `residuals` [N, P] with covariance K [N, N].

    With A = K^-1 and a = A r, its derivatives are -a and Σ_p (a a' - A) / 2 (Rasmussen and Williams
    2006, eq. 5.9).
    """
    L = tf.linalg.cholesky(K)
    P = tf.cast(tf.shape(residuals)[1], K.dtype)
    value = tf.reduce_sum(multivariate_normal(residuals, tf.zeros_like(residuals), L))

    def pull_back(bar: tf.Tensor) -> Tensors:
        a = tf.linalg.cholesky_solve(L, residuals)
        of_covariance = tf.matmul(a, a, transpose_b=True) - P * inverse_of_product(L)
        return once_differentiable(-bar * a, 0.5 * bar * of_covariance)

    return value, pull_back
