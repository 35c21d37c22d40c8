"""StreamingPEP: power expectation propagation of data that arrive in batches, for any likelihood."""

import tensorflow as tf
from gpflow.base import Parameter, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from .. import validation
from ..engine import SiteSums
from ..tilted import Projection
from .pep import PEP
from .stream import StreamOfBatches


class StreamingPEP(StreamOfBatches, PEP):
    r"""
    Sparse power EP of a stream of batches, for any likelihood (Bui, Nguyen and Turner 2017, sec. 3).

    The model is :class:`PEP` of its current batch, with the posterior of all earlier batches as one more Gaussian site:

        q(u) ∝ p(u) ∏_n t_n(u) t_old(u)

    Its objective is the online log evidence of the batch, given the earlier ones; on the first batch it is that of
    :class:`PEP`. :meth:`update` absorbs the sites and goes on with a new batch: sites of earlier batches are not
    updated again. With a Gaussian likelihood it is :class:`StreamingSGPR`.
    """

    _TF_MODULE_IGNORED_PROPERTIES = StreamOfBatches._TF_MODULE_IGNORED_PROPERTIES | PEP._TF_MODULE_IGNORED_PROPERTIES

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        alpha: float = 0.5,
        scale: float | Parameter = 1.0,
        projection: str | Projection = "kl",
        tol: float = 1e-6,
        max_sweeps: int = 1000,
        damping: float = 1.0,
        mean_function: MeanFunction | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
    ):
        """
        Take the arguments of :class:`PEP`, except these.

        :param data: the first batch: inputs X [N, D] and observations Y [N, P].
        :param inducing_variable: Z [M, D], or :class:`gpflow.inducing_variables.InducingPoints`, shared or
            `SeparateIndependentInducingVariables`.
        :param alpha: the power, a number in [0, 1]: the old posterior has one.
        :raises ValueError: naming the argument that cannot be used.
        """
        power = validation.single_power(alpha)
        super().__init__(
            data,
            kernel,
            likelihood,
            inducing_variable,
            alpha=power,
            scale=scale,
            projection=projection,
            tol=tol,
            max_sweeps=max_sweeps,
            damping=damping,
            mean_function=mean_function,
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        self._begin_stream([self.num_latent_gps], 1)

    @override
    def _other_variables(self) -> tuple[tf.Variable, ...]:
        return *super()._other_variables(), *self._old.variables

    @override
    def _absorbed_sums(self) -> SiteSums:
        return self._converged().total

    @override
    def _stream_variables(self) -> dict[str, tf.Variable]:
        sites = {"sites.precision": self._sites.precision, "sites.linear": self._sites.linear}
        return {**super()._stream_variables(), **sites}
