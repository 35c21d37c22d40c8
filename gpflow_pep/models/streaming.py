"""StreamingSGPR: collapsed sparse GP regression of data that arrive in batches."""

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import RegressionData, TensorData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from ..engine import EvidenceTerms, Powers, SiteSums, log_gaussian
from ..graphs import no_autograph
from ..linalg import finite
from .collapsed import ADVICE_OBJECTIVE, CollapsedRegression
from .power import SinglePower
from .stream import StreamOfBatches


class StreamingSGPR(SinglePower, StreamOfBatches, CollapsedRegression):
    r"""
    Sparse GP regression of a stream of batches, for any power (Bui, Nguyen and Turner 2017, eqs 27 and 117).

    The model is PEPR of the batch it holds, with the posterior of all earlier batches as one more Gaussian site:

        q(u) ∝ p(u) ∏_n N(y_n; m(x_n) + K_nu Kuu⁻¹ u, v_n) t_old(u)

    Its objective is the online log evidence of the batch, given the earlier ones: at alpha = 0 a lower bound, with the
    old posterior treated as exact. If hyperparameters and inducing points stay fixed, the objectives of all batches add
    up to the objective of all data, and q(u) is the one of all data.
    """

    _TF_MODULE_IGNORED_PROPERTIES = (
        StreamOfBatches._TF_MODULE_IGNORED_PROPERTIES | CollapsedRegression._TF_MODULE_IGNORED_PROPERTIES
    )
    _NOT_IN_CHECKPOINTS = CollapsedRegression._NOT_IN_CHECKPOINTS

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingPointsLike,
        *,
        alpha: float = 0.0,
        mean_function: MeanFunction | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        :param data: the first batch: inputs X [N, D] and outputs Y [N, P].
        :param kernel: any single-output kernel.
        :param inducing_variable: Z [M, D], or :class:`gpflow.inducing_variables.InducingPoints`.
        :param alpha: the power, a number in [0, 1]; 0 is the exact VFE limit.
        :param mean_function: m(x), zero by default.
        :param noise_variance: initial variance of a Gaussian likelihood; 1 by default. Excludes `likelihood`.
        :param likelihood: a :class:`gpflow.likelihoods.Gaussian`, whose noise may depend on x.
        :param chunk_size: rows worked on at a time; does not change results beyond rounding.
        :param max_jitter: if Kuu cannot be factorized, raise its jitter tenfold, up to this value, and report it; by
            default raise an error instead.
        :raises ValueError: naming the argument that cannot be used.
        """
        super().__init__(
            data,
            kernel,
            inducing_variable,
            mean_function=mean_function,
            noise_variance=noise_variance,
            likelihood=likelihood,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        self._alpha = self._power_variable(alpha)
        self._begin_stream([], self.num_latent_gps)

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """Compute the online log evidence of the batch, in nats, without canceling terms of the old posterior."""
        powers, scale = self._powers(), self._scale()
        sums, terms, old_terms = self._with_old_site(powers, scale)
        penalty = self._penalty(terms, powers, scale)
        objective = log_gaussian(sums, terms, self.num_data) + self.num_latent_gps * penalty + old_terms
        return finite(objective, name="the objective", advice=ADVICE_OBJECTIVE)

    @override
    def _sums(self) -> SiteSums:
        return self._with_old_site(self._powers(), self._scale())[0]

    def _with_old_site(self, powers: Powers, scale: tf.Tensor) -> tuple[SiteSums, EvidenceTerms, tf.Tensor]:
        """Return the sums over batch and old site, the evidence terms of the batch and those of the old site."""
        batch, terms = self._accumulated(powers, scale)
        old = self._old_site(batch.L, powers.noise_power)
        return batch.with_old(old), terms, old.terms

    @override
    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.in_one_chunk

    @override
    def _powers(self) -> Powers:
        alpha = self._checked_alpha()
        return Powers(noise_power=alpha, penalty_power=alpha, weight=0.5 * (1.0 - alpha))

    @override
    def _penalty(self, terms: EvidenceTerms, powers: Powers, scale: tf.Tensor) -> tf.Tensor:
        return -terms.penalty
