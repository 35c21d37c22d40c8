"""EP for a GP classifier of two classes without inducing points, for comparison."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models.training_mixins import InternalDataTrainingLossMixin

from experiments.datasets import Floats
from gpflow_pep.likelihoods import Probit
from gpflow_pep.maths.linalg import log_det, plus_identity
from gpflow_pep.maths.normal import log_ndtr, log_ndtr_and_derivatives

_DAMPING = 0.3  # with 1, sites oscillate at large kernel variances
_MAX_SWEEPS = 1000
_TOLERANCE = 1e-7  # of the sites' largest change in a sweep, relative to the largest site


class DenseEP(gpflow.models.GPModel, InternalDataTrainingLossMixin):
    """
    EP with a probit likelihood, and sites of all rows updated at once (Rasmussen and Williams 2006,
    sec. 3.6).

    It costs O(N³) time a sweep and O(N²) memory.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: gpflow.kernels.Kernel,
        likelihood: gpflow.likelihoods.Likelihood,
        inducing_variable: gpflow.inducing_variables.InducingVariables,
    ):
        """
        :param data: X [N, D], and labels of 0 and 1, [N, 1].
        :param inducing_variable: recorded, but not used.
        """
        if not isinstance(likelihood, Probit):
            raise ValueError(f"likelihood must be probit for dense EP, got {likelihood}.")
        super().__init__(kernel, likelihood, num_latent_gps=1)
        self.data = gpflow.models.util.data_input_to_tensor(data)
        self.inducing_variable = inducing_variable
        self._signs = 2.0 * self.data[1] - 1.0
        self._sites = np.zeros((2, *self._signs.shape))  # the next updates start there

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """Compute the log evidence at converged sites, [] (eq. 3.65)."""
        # The sites count as constants in its gradient: the evidence is stationary in them.
        K, precision, shift = self._at_convergence()
        LB, b, mean, variance = _posterior(K, precision, shift)
        # log N(site mean; cavity mean, both variances), without the constants that cancel.
        of_sites = 0.5 * tf.math.log1p(precision * variance) + 0.5 * (
            mean * (precision * mean - 2.0 * shift) - variance * shift**2
        ) / (1.0 + precision * variance)
        log_normalizers = log_ndtr(self._signs * mean / tf.sqrt(1.0 + variance)) + of_sites
        return tf.reduce_sum(log_normalizers + 0.5 * shift * (K @ b)) - 0.5 * log_det(LB)

    def predict_f(self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False) -> Any:
        """Compute mean and variance of the latent function, [n, 1] each."""
        K, precision, shift = self._at_convergence()
        LB, b, *_ = _posterior(K, precision, shift)
        Ks = self.kernel(self.data[0], Xnew)
        V = tf.linalg.triangular_solve(LB, tf.sqrt(precision) * Ks)
        variance = self.kernel(Xnew, full_cov=False) - tf.reduce_sum(tf.square(V), axis=0)
        return tf.matmul(Ks, b, transpose_a=True), variance[:, None]

    def _at_convergence(self) -> list[tf.Tensor]:
        """
        Return the covariance of f [N, N], and precisions, and precisions times means, of the
        converged sites, [N, 1] each.
        """
        K = plus_identity(self.kernel(self.data[0]), gpflow.default_jitter())
        found = tf.numpy_function(self._converged, [K], K.dtype)
        return [K, *tf.unstack(tf.ensure_shape(found, self._sites.shape))]

    def _converged(self, K: Floats) -> Floats:
        """
        Update the sites until they converge; return them, [2, N, 1].

        :raises FloatingPointError: if they do not converge.
        """
        for _ in range(_MAX_SWEEPS):
            precision, shift = self._sites
            _, _, mean, variance = _posterior(K, precision, shift)
            scale = self._signs * tf.sqrt(1.0 + variance)
            _, slope, curvature = log_ndtr_and_derivatives(mean / scale)
            # The derivatives of the log of the tilted normalizer in the cavity mean are d1 and -d2.
            d1 = slope / scale
            d2 = curvature / scale**2
            site = d2 / (1.0 - variance * d2)
            matching = np.stack([site, site * mean + d1 * (1.0 + variance * site)])
            change = matching - self._sites
            self._sites = self._sites + _DAMPING * change
            largest = np.max(np.abs([change, self._sites]), axis=(2, 3))  # [2, 2]
            if np.all(largest[0] < _TOLERANCE * largest[1]):
                return self._sites
        raise FloatingPointError(
            f"The sites of dense EP have not converged in {_MAX_SWEEPS} sweeps."
        )


def _posterior(K: Any, precision: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    Return the Cholesky factor of B = I + S K S, S² = diag(precision), K^-1 times the mean, and
    means and variances of the cavities, [N, 1] each.
    """
    root = tf.sqrt(precision)
    LB = tf.linalg.cholesky(plus_identity(root * K * tf.transpose(root)))
    b = shift - root * tf.linalg.cholesky_solve(LB, root * (K @ shift))
    V = tf.linalg.triangular_solve(LB, root * K)
    variance = (tf.linalg.diag_part(K) - tf.reduce_sum(tf.square(V), axis=0))[:, None]
    of_cavity = 1.0 / (1.0 / variance - precision)
    return LB, b, of_cavity * (K @ b / variance - shift), of_cavity
