"""Base class of the minibatch models: an explicit q(u), as in `gpflow.models.SVGP`, and its predictions."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, Parameter, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin
from gpflow.models.util import InducingPointsLike
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import positive, triangular

from .. import validation
from ..engine import Prior, conditional_variance_of_f
from ..ep.cavity import project_mean
from ..ep.rows import Projected
from ..likelihoods.observations import check_observations
from ..maths.linalg import cholesky, column_products, finite
from ..runtime.checks import asserted
from ..runtime.tracing import in_xla, no_autograph
from . import predictions
from .kernels_and_inducing_variables import checked_inducing_variable
from .posteriors import GaussianPosterior
from .sparse import ADVICE_KUU

ADVICE = "a smaller learning rate; checking parameters, mean function and data for NaN, infinite or overflowing values"


_WRONG_NUMBER_OF_ROWS = "data must have at least one row and at most num_data of them, got"


class WhitenedQ(NamedTuple):
    """q(v) = N(m, R R'), whitened: u = L v with Kuu = L L'."""

    m: tf.Tensor  # [C, M]
    R: tf.Tensor  # [C, M, M], lower triangular

    def half_log_det(self) -> tf.Tensor:
        """log|S|/2, summed over latent functions, []."""
        return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self.R))))

    def divergence(self) -> tf.Tensor:
        """KL[q, prior] = (tr S + m'm - M - log|S|)/2, summed over latent functions, []."""
        squares = tf.reduce_sum(tf.square(self.R)) + tf.reduce_sum(tf.square(self.m))
        return 0.5 * (squares - tf.cast(tf.size(self.m), squares.dtype)) - self.half_log_det()


class MinibatchSVGP(GPModel, ExternalDataTrainingLossMixin):
    """A model with q(u) = N(q_mu, q_sqrt q_sqrt'), whitened or not, that is trained on minibatches."""

    _TF_MODULE_IGNORED_PROPERTIES = frozenset({"_num_data", *GPModel._TF_MODULE_IGNORED_PROPERTIES})

    predict_y = predictions.predict_y
    predict_log_density = predictions.predict_log_density
    predict_f_samples = predictions.predict_f_samples

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        num_data: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        q_diag: bool = False,
        q_mu: Any = None,
        q_sqrt: Any = None,
        whiten: bool = True,
    ):
        """
        Take the arguments of :class:`TSVGP`.

        :raises ValueError: naming the argument that cannot be used.
        """
        self._check_likelihood(likelihood)
        if num_latent_gps is None:
            if q_mu is not None:
                num_latent_gps = int(q_mu.shape[1])
            elif q_sqrt is not None:
                num_latent_gps = int(q_sqrt.shape[1 if q_diag else 0])
            else:
                num_latent_gps = 1 if isinstance(likelihood, ScalarLikelihood) else likelihood.latent_dim
        C = validation.positive_integer(num_latent_gps, "num_latent_gps")
        if not isinstance(likelihood, ScalarLikelihood) and likelihood.latent_dim != C:
            raise ValueError(f"num_latent_gps must be {likelihood.latent_dim} for this likelihood, got {C}.")
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=C)
        self.inducing_variable: InducingVariables = checked_inducing_variable(kernel, inducing_variable, None, C)
        self._num_data = None if num_data is None else tf.Variable(_count(num_data), trainable=False)
        self.whiten, self.q_diag = whiten, q_diag
        M = int(self.inducing_variable.num_inducing)
        self.q_mu = Parameter(validation.shaped(q_mu, (M, C), np.zeros((M, C)), "q_mu"), dtype=default_float())
        shape = (M, C) if q_diag else (C, M, M)
        identity = np.ones(shape) if q_diag else np.tile(np.eye(M), (C, 1, 1))
        q_sqrt = validation.shaped(q_sqrt, shape, identity, "q_sqrt")
        self.q_sqrt = Parameter(q_sqrt, transform=positive() if q_diag else triangular(), dtype=default_float())

    def _check_likelihood(self, likelihood: Likelihood) -> None:
        """Raise an error for a likelihood that the model does not support."""

    @property
    def num_data(self) -> tf.Variable | None:
        """
        N, the number of all observations, []; None if each minibatch is treated as the whole data set. Compiled
        functions see a new value.

        :raises ValueError: when it is set to anything but a whole number of at least 1.
        """
        return self._num_data

    @num_data.setter
    def num_data(self, num_data: int) -> None:
        if self._num_data is None:
            raise ValueError("num_data was None at construction and cannot be set afterwards: pass it there.")
        self._num_data.assign(_count(num_data))

    def _row_weight(self, num_rows: tf.Tensor) -> tf.Tensor:
        """N/n, []."""
        n = tf.cast(num_rows, default_float())
        return tf.ones_like(n) if self._num_data is None else self._num_data / n

    def _checked_minibatch(self, data: RegressionData) -> RegressionData:
        """
        Return X and Y of the default type. Both must have the same n <= N rows, and Y a column per latent function.

        :raises ValueError: if that is not so, X is not finite, or the likelihood does not accept Y.
        :raises tf.errors.InvalidArgumentError: the same in a graph, where values or numbers of rows are not known when
            it is traced.
        """
        X = validation.inputs(data[0], "data[0] (X)")
        Y = check_observations(self.likelihood, data[1], self.num_latent_gps)
        if not X.shape[:1].is_compatible_with(Y.shape[:1]):
            raise ValueError(f"data: X and Y must have the same number of rows, got {X.shape[0]} and {Y.shape[0]}.")
        message = "data: X and Y must have the same number of rows"
        if in_xla():
            Y = self._with_checked_size(asserted(Y, tf.equal(tf.shape(X)[0], tf.shape(Y)[0])))
            # Where Y is refused X is NaN too: a likelihood may take NaN for a label.
            return asserted(X, tf.math.is_finite(X) & tf.reduce_all(tf.math.is_finite(Y))), Y
        X = asserted(X, tf.equal(tf.shape(X)[0], tf.shape(Y)[0]), message)
        X = finite(X, name="data[0] (X)", advice="leaving out rows in which an input is missing")
        return X, self._with_checked_size(Y)

    def _with_checked_size(self, Y: tf.Tensor) -> tf.Tensor:
        """Return Y; raise an error unless its number of rows is from 1 to num_data."""
        if self._num_data is None:
            return Y
        n, most = tf.cast(tf.shape(Y)[0], default_float()), tf.convert_to_tensor(self._num_data)
        accepted = (n >= 1.0) & (n <= most)
        if not tf.executing_eagerly():
            return asserted(Y, accepted, _WRONG_NUMBER_OF_ROWS, n)
        if not bool(accepted):
            raise ValueError(f"{_WRONG_NUMBER_OF_ROWS} {n:g}; num_data is {most:g}.")
        return Y

    def _whitened(self) -> tuple[tf.Tensor, WhitenedQ]:
        """Return L, and q(v)."""
        Kuu = Prior(self.inducing_variable, self.kernel).Kuu(default_jitter())
        L = cholesky(Kuu, name="Kuu", advice=ADVICE_KUU)
        m = tf.transpose(self.q_mu)
        R = tf.linalg.diag(tf.transpose(self.q_sqrt)) if self.q_diag else tf.convert_to_tensor(self.q_sqrt)
        if self.whiten:
            return L, WhitenedQ(m, R)
        m = tf.linalg.triangular_solve(L, m[..., None])[..., 0]
        return L, WhitenedQ(m, tf.linalg.triangular_solve(L, R))

    def _projected(self, L: tf.Tensor, X: tf.Tensor) -> Projected:
        prior = Prior(self.inducing_variable, self.kernel)
        V = tf.linalg.triangular_solve(L, prior.Kuf(X, *prior.inputs))
        conditional_variance = conditional_variance_of_f(prior.variances(X, *prior.inputs), V, L)
        return Projected(V, conditional_variance, tf.transpose(self.mean_function(X)))

    def _marginals(self, rows: Projected, q: WhitenedQ) -> MeanAndVariance:
        """Mean and variance of f under q, [C, n]."""
        T = tf.matmul(q.R, rows.V, transpose_a=True)  # [C, M, n]
        return rows.mean + project_mean(rows.V, q.m), rows.conditional_variance + column_products(T, T)

    @no_autograph
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> GaussianPosterior:
        """
        Return the posterior, with its cache computed once; it does not follow later changes of the model.

        :param precompute_cache: GPflow's "tensor" (default), "variable" or "nocache" (None).
        :raises ValueError: for any other cache type.
        """

        def values() -> tuple[tf.Tensor, ...]:
            L, q = self._whitened()
            return L, tf.transpose(q.m), q.R

        return GaussianPosterior(
            self.kernel,
            self.inducing_variable,
            self.mean_function,
            values,
            precompute_cache=validation.cache_type(precompute_cache),
        )

    @inherit_check_shapes
    @no_autograph
    def predict_f(self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False) -> MeanAndVariance:
        """Mean and (co)variance of the latent functions at Xnew."""
        Xnew = validation.real_numbers(Xnew, "Xnew")
        return self.posterior(PrecomputeCacheType.NOCACHE).fused_predict_f(Xnew, full_cov, full_output_cov)


@check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
def elbo(self: MinibatchSVGP, data: RegressionData) -> tf.Tensor:
    """
    Return the objective, estimated from the rows of a minibatch, in nats; of a stream that of the batch.

    Models whose objective is a lower bound on the log evidence name it as a method.
    """
    return self.maximum_log_likelihood_objective(data)


def _count(num_data: Any) -> tf.Tensor:
    return tf.constant(validation.num_data(num_data), default_float())
