"""
Vanilla streaming variational Bayes: the old posterior, as it is, is the prior of the next batch.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_pep import StreamingSGPR
from gpflow_pep.engine import OldPosteriorSite, kernel_matrix
from gpflow_pep.maths.linalg import log_det, plus_identity


class VanillaStreamingSGPR(StreamingSGPR):
    """
    A baseline of :class:`gpflow_pep.StreamingSGPR` at alpha = 0 that minimizes the divergence
    KL(q || p(y|f) q_old(f)).

    Here q_old(f) = p(f≠a|a, θ) q_old(a): the old posterior of the old inducing variables a, inside
    of which the prior keeps the old hyperparameters, and the conditional prior at the current ones.
    Bui, Nguyen and Turner (2017, sec. 3) multiply it by p(a|θ)/p(a|θ_old), which replaces the old
    prior; without this factor hyperparameters are learned from the present batch alone. At fixed
    hyperparameters both models are equal. (With the old hyperparameters in the conditional prior,
    too, the divergence is infinite unless the kernel stays as it is.)
    """

    # Not a parameter.
    _TF_MODULE_IGNORED_PROPERTIES = StreamingSGPR._TF_MODULE_IGNORED_PROPERTIES | {"_old_prior"}

    def __init__(self, *parts: Any, noise_variance: float, max_jitter: float | None = None):
        super().__init__(*parts, noise_variance=noise_variance, max_jitter=max_jitter)
        # Cholesky factor of the covariance of a under the old prior, [Ma, Ma].
        self._old_prior = tf.Variable(np.zeros([0, 0]), trainable=False, shape=[None, None])

    def update(self, *arguments: Any, **options: Any) -> None:
        """Absorb the posterior as :meth:`gpflow_pep.StreamingSGPR.update`; keep its prior."""
        super().update(*arguments, **options)
        Z = tf.convert_to_tensor(self._old.absorbed.Z[0])
        covariance = plus_identity(kernel_matrix(self.kernel, Z), self._jitter_of_Kuu())
        self._old_prior.assign(self._factorize(covariance))

    def _old_site(self, L: tf.Tensor, alpha: tf.Tensor) -> OldPosteriorSite:
        """Return the site q_old(a)/p(a|θ), which is q_old(a)/p(a|θ_old) times p(a|θ_old)/p(a|θ)."""
        projected = self._old.project(self.inducing_variable, self.kernel, self._jitter_of_Kuu(), L)
        A, c, terms = self._old.site(projected, alpha)
        V, Q = projected
        prior = self._factorize(tf.matmul(V, V, transpose_a=True) + Q)
        for sign, root in ((1.0, self._old_prior), (-1.0, prior)):
            A += sign * tf.matmul(V, tf.linalg.cholesky_solve(root, tf.transpose(V)))
            trace = tf.linalg.trace(tf.linalg.cholesky_solve(root, Q))
            terms -= sign * 0.5 * self.num_latent_gps * (trace + log_det(root))
        return OldPosteriorSite(A, c, terms)

    def _state_variables(self) -> dict[str, tf.Variable]:
        return super()._state_variables() | {"old.prior": self._old_prior}
