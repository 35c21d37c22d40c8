"""TSGPR: the tighter bound of a structured conditional, one scale a row."""

import tensorflow as tf
from gpflow.base import RegressionData, TensorData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from ..engine import EvidenceTerms, Powers
from .upper_bound import UpperBound


class StructuredBound(UpperBound):
    """The bounds whose sites are SGPR's: L0 = log N(y; m, Qff + σ²I) minus a penalty on D, which they share."""

    @override
    def _powers(self) -> Powers:
        zero = tf.zeros([], default_float())
        return Powers(noise_power=zero, penalty_power=zero + 1.0, weight=zero + 0.5)

    @override
    def _penalty(self, terms: EvidenceTerms, powers: Powers, scale: tf.Tensor) -> tf.Tensor:
        return -terms.penalty


class TSGPR(StructuredBound):
    """
    The tighter collapsed bound (Bui and Titsias 2025, eq. 6); q(u) and predictions as `gpflow.models.SGPR`.

        log N(y; m, Qff + σ²I) - 1/2 Σ_n log(1 + d_n/σ²),          d = diag(Kff - Qff)

    Never below SGPR's bound nor above the log evidence.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingPointsLike,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        The arguments are those of :class:`PEPR`, without alpha, scale and blocks.

        :raises ValueError: naming the argument that cannot be used.
        """
        super().__init__(
            data,
            kernel,
            inducing_variable,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            noise_variance=noise_variance,
            likelihood=likelihood,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
