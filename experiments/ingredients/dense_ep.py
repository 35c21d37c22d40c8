"""EP for a GP classifier of two classes without inducing points, for comparison."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import log_ndtr

from experiments.ingredients.initialization import Floats
from gpflow_pep.likelihoods import Probit

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
        number = len(self.data[1])
        self._sites = np.zeros(number), np.zeros(number)  # the next updates start there

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """Compute the log evidence at converged sites, []."""

        @tf.custom_gradient
        def value(K: tf.Tensor) -> Any:
            evidence, slope = tf.numpy_function(self._evidence_and_slope, [K], [K.dtype, K.dtype])

            def gradient(bar: tf.Tensor) -> tf.Tensor:  # at fixed sites: the evidence is stationary
                return bar * tf.ensure_shape(slope, K.shape)

            return tf.ensure_shape(evidence, []), gradient

        return value(self._covariance())

    def predict_f(self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False) -> Any:
        """Compute mean and variance of the latent function, [n, 1] each."""
        K = self._covariance().numpy()
        precision, shift = self._converged(K)
        LB, b = _posterior(K, precision, shift)
        Ks = self.kernel(self.data[0], Xnew).numpy()
        V = solve_triangular(LB, np.sqrt(precision)[:, None] * Ks, lower=True)
        variance = self.kernel(Xnew, full_cov=False) - np.sum(np.square(V), axis=0)
        return tf.constant(Ks.T @ b)[:, None], variance[:, None]

    def _covariance(self) -> tf.Tensor:
        K = self.kernel(self.data[0])
        return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + gpflow.default_jitter())

    def _evidence_and_slope(self, K: Floats) -> tuple[Floats, Floats]:
        """Return the log evidence and its derivative in K (sec. 3.6, eqs 3.65 and 5.27)."""
        y = self._signs()
        precision, shift = self._converged(K)
        LB, b = _posterior(K, precision, shift)
        mean, variance = _marginals(K, LB, b, precision)
        cavity_precision = 1.0 / variance - precision
        cavity_mean = (mean / variance - shift) / cavity_precision
        scale = np.sqrt(1.0 + 1.0 / cavity_precision)
        # log N(site mean; cavity mean, both variances), without the constants that cancel.
        of_sites = 0.5 * np.log1p(precision / cavity_precision) + 0.5 * (
            cavity_mean * cavity_precision * (precision * cavity_mean - 2.0 * shift) - shift**2
        ) / (cavity_precision + precision)
        evidence = (
            np.sum(log_ndtr(y * cavity_mean / scale) + of_sites)
            - np.sum(np.log(np.diag(LB)))
            + 0.5 * shift @ mean
        )
        root = np.sqrt(precision)
        inverse = root[:, None] * cho_solve((LB, True), np.diag(root))
        return np.asarray(evidence), 0.5 * (np.outer(b, b) - inverse)

    def _converged(self, K: Floats) -> tuple[Floats, Floats]:
        """
        Return precisions and precisions times means of the sites, [N] each.

        :raises FloatingPointError: if they have not converged.
        """
        y = self._signs()
        precision, shift = self._sites
        for _ in range(_MAX_SWEEPS):
            LB, b = _posterior(K, precision, shift)
            mean, variance = _marginals(K, LB, b, precision)
            cavity_variance = 1.0 / (1.0 / variance - precision)
            cavity_mean = cavity_variance * (mean / variance - shift)
            scale = np.sqrt(1.0 + cavity_variance)
            z = y * cavity_mean / scale
            ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))  # N / Φ
            d1 = y * ratio / scale  # of the log of the tilted normalizer in the cavity mean
            d2 = -ratio * (z + ratio) / scale**2
            site = -d2 / (1.0 + cavity_variance * d2)
            of_precision = site - precision
            of_shift = site * cavity_mean + d1 * (1.0 + cavity_variance * site) - shift
            precision = precision + _DAMPING * of_precision
            shift = shift + _DAMPING * of_shift
            if _is_small(of_precision, precision) and _is_small(of_shift, shift):
                self._sites = precision, shift
                return self._sites
        raise FloatingPointError(
            f"The sites of dense EP have not converged in {_MAX_SWEEPS} sweeps."
        )

    def _signs(self) -> Floats:
        return np.asarray(2.0 * self.data[1][:, 0] - 1.0)


def _is_small(change: Floats, values: Floats) -> bool:
    return bool(np.max(np.abs(change)) < _TOLERANCE * np.max(np.abs(values)))


def _posterior(K: Floats, precision: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Return the Cholesky factor of B = I + S K S, S² = diag(precision), and K^-1 times the mean."""
    root = np.sqrt(precision)
    LB = np.linalg.cholesky(np.eye(len(K)) + root[:, None] * K * root)
    return LB, shift - root * cho_solve((LB, True), root * (K @ shift))


def _marginals(K: Floats, LB: Floats, b: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """Return means and variances of the posterior, [N] each."""
    V = solve_triangular(LB, np.sqrt(precision)[:, None] * K, lower=True)
    return K @ b, np.diag(K) - np.sum(np.square(V), axis=0)
