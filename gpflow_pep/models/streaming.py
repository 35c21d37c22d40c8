"""StreamingSGPR: collapsed sparse GP regression of data that arrive in batches."""

import tensorflow as tf
from gpflow.base import Parameter, RegressionData, TensorData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from .. import validation
from ..engine import EvidenceTerms, Powers
from ..tilted import Projection
from .collapsed import CollapsedRegression
from .pep import PEP
from .power import SinglePower
from .stream import Stream


class StreamingSGPR(SinglePower, CollapsedRegression, Stream):
    r"""
    Sparse GP regression of a stream of batches, for any power (Bui, Nguyen and Turner 2017, eqs 27 and 117).

    The model is PEPR of the batch it holds, with the posterior of all earlier batches as one more Gaussian site:

    .. math::

        q(u) \propto p(u) \prod_n N(y_n; \mu(x_n) + K_{nu} K_{uu}^{-1} u, v_n) \, t_{old}(u)

    Its objective is the online log evidence of the batch, given the earlier ones: at alpha = 0 a lower bound, with the
    old posterior treated as exact. If hyperparameters and inducing points stay fixed, the objectives of all batches add
    up to the objective of all data, and q(u) is the one of all data.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = StreamingSGPR((X[:30], np.sin(X[:30])), gpflow.kernels.Matern52(), X[::10])
    >>> first = model.log_posterior_density()
    >>> model.update((X[30:], np.sin(X[30:])))
    >>> at_once = PEPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], alpha=0.0)
    >>> np.allclose(first + model.log_posterior_density(), at_once.log_posterior_density())
    True
    """

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
        Take the arguments of :class:`PEPR`, without scale and blocks, except these.

        :param data: the first batch: inputs X [N, D] and outputs Y [N, P].
        :param inducing_variable: Z [M, D], or :class:`gpflow.inducing_variables.InducingPoints`.
        :param alpha: the power, a number in [0, 1]; 0 is the exact VFE limit.
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

    @override
    def _powers(self) -> Powers:
        return Powers.of_pep(self._checked_alpha())

    @override
    def _evidence_correction(self, terms: EvidenceTerms, powers: Powers, scale: tf.Tensor) -> tf.Tensor:
        return -terms.penalty

    @override
    def _batch_variables(self) -> dict[str, tf.Variable]:
        return {**super()._batch_variables(), "alpha": self._alpha}


# StreamingPEP: power expectation propagation of data that arrive in batches, for any likelihood.


class StreamingPEP(PEP, Stream):
    r"""
    Sparse power EP of a stream of batches, for any likelihood (Bui, Nguyen and Turner 2017, sec. 3).

    The model is :class:`PEP` of its current batch, with the posterior of all earlier batches as one more Gaussian site:

    .. math::

        q(u) \propto p(u) \prod_n t_n(u) \, t_{old}(u)

    Its objective is the online log evidence of the batch, given all earlier batches; on the first batch it is the
    objective of :class:`PEP`. :meth:`update` absorbs the sites and goes on with a new batch: sites of earlier batches
    are not updated again. With a Gaussian likelihood it is :class:`StreamingSGPR`, and exact; with any other likelihood
    its posterior approximates the posterior of :class:`PEP` of all batches together.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y, probit = (np.sin(X) > 0.0).astype(float), likelihoods.Probit()
    >>> model = StreamingPEP((X[:30], Y[:30]), gpflow.kernels.Matern52(), probit, X[::10], alpha=0.5)
    >>> model.update((X[30:], Y[30:]))
    >>> probability, _ = model.predict_y(np.array([[1.5], [4.5]]))  # the first batch is remembered
    >>> (probability.numpy() > 0.5).ravel().tolist()
    [True, False]
    """

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
