"""Base class of the minibatch models: an explicit q(u), as in `gpflow.models.SVGP`."""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import Parameter, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import positive, to_default_float, triangular
from typing_extensions import Self, override

from .. import validation
from ..engine import SiteSums, checked_indices, conditional_variance_of_f, mean_at
from ..ep.sweep import Projected, project_mean
from ..likelihoods.observations import check_observations
from ..maths.linalg import column_products, finite
from ..runtime import Tensors, asserted, in_xla, no_autograph
from .parts import ParameterPart, Power, checked_scale
from .sparse import InducingVariableGP, checked_bound

ADVICE = (
    "a smaller learning rate; checking parameters, mean function and data for NaN, infinite or "
    "overflowing values"
)
_WRONG_NUMBER_OF_ROWS = "data must have between 1 and num_data rows, got"


class WhitenedQ(NamedTuple):
    """q(v) = N(m, R R'), whitened: u = L v with Kuu = L L'."""

    m: tf.Tensor  # [C, M]
    R: tf.Tensor  # [C, M, M], lower triangular

    def variance(self, V: tf.Tensor) -> tf.Tensor:
        """Var_q[V'v], [C, n]."""
        T = tf.matmul(self.R, V, transpose_a=True)  # [C, M, n]
        return column_products(T, T)

    def half_log_det(self) -> tf.Tensor:
        """log|S|/2, summed over latent functions, []."""
        return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self.R))))

    def divergence(self) -> tf.Tensor:
        """KL[q, prior] = (tr S + m'm - M - log|S|)/2, summed over latent functions, []."""
        return gauss_kl(tf.transpose(self.m), self.R)


class MinibatchSVGP(InducingVariableGP, ExternalDataTrainingLossMixin):
    """
    A model with an explicit q(u), trained on minibatches.

    A model defines :meth:`objective_terms`, and may define :meth:`add_parameters`.
    """

    _by_precision = False

    def __new__(cls, *args: object, **options: object) -> Self:
        """
        Reject arguments in the order of models with data, such as SGPR: Python's error would name a
        wrong one.
        """
        if isinstance(next(iter(args), None), tuple | list | tf.data.Dataset) or "data" in options:
            raise ValueError(
                "kernel must come first, got data, which go to fit(model, data): "
                f"{cls.__name__}(kernel, likelihood, inducing_variable, num_data=N)."
            )
        return super().__new__(cls)

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
        :param kernel: a single-output kernel for all latent functions, `SharedIndependent` or
            `SeparateIndependent`.
        :param likelihood: any likelihood of GPflow but `Ordinal`.
        :param inducing_variable: Z [M, D], or any inducing variable with ``Kuu`` and ``Kuf`` for
            the kernel, shared or `SeparateIndependentInducingVariables`.
        :param num_data: N, the number of all observations; None: each minibatch is treated as the
            whole data set.
        :param mean_function: m(x), zero by default.
        :param num_latent_gps: C; by default inferred from q_mu, q_sqrt or the likelihood, or else
            1.
        :param q_diag: whether the covariance of q is diagonal, with q_sqrt [M, C], instead of full.
        :param q_mu: the mean of q [M, C], zero by default.
        :param q_sqrt: Cholesky factors of q's covariance [C, M, M], or standard deviations [M, C]
            if q_diag; default I.
        :param whiten: whether q_mu and q_sqrt parameterize q(v), u = L v, instead of q(u).
        """
        self.likelihood = likelihood
        if num_latent_gps is None:
            if q_mu is not None:
                num_latent_gps = int(q_mu.shape[1])
            elif q_sqrt is not None:
                num_latent_gps = int(q_sqrt.shape[1 if q_diag else 0])
            elif isinstance(likelihood, ScalarLikelihood):
                num_latent_gps = 1
            else:
                num_latent_gps = likelihood.latent_dim
        C = validation.positive_integer(num_latent_gps, "num_latent_gps")
        super().__init__(kernel, likelihood, inducing_variable, mean_function, C)
        self._num_data = None
        if num_data is not None:
            self._num_data = tf.Variable(
                validation.num_data(num_data), trainable=False, dtype=default_float()
            )
        self.whiten = validation.boolean(whiten, "whiten")
        self.q_diag = validation.boolean(q_diag, "q_diag")
        M = int(self.inducing_variable.num_inducing)
        self.q_mu = Parameter(
            validation.shaped(q_mu, (M, C), np.zeros((M, C)), "q_mu"), dtype=default_float()
        )
        shape = (M, C) if q_diag else (C, M, M)
        identity = np.ones(shape) if q_diag else np.tile(np.eye(M), (C, 1, 1))
        q_sqrt = validation.shaped(q_sqrt, shape, identity, "q_sqrt")
        self.q_sqrt = Parameter(
            q_sqrt, transform=positive() if q_diag else triangular(), dtype=default_float()
        )
        self.add_parameters()
        self._old = self._new_old_posterior()

    @ParameterPart
    def q_mu(self, q_mu: Any) -> Parameter:
        """The mean of q, [M, C]."""
        return q_mu

    @ParameterPart
    def q_sqrt(self, q_sqrt: Any) -> Parameter:
        """Cholesky factors of q's covariance, [C, M, M], or standard deviations, [M, C]."""
        return q_sqrt

    @override
    def _check(self) -> None:
        super()._check()
        likelihood, C = self.likelihood, self.num_latent_gps
        if not isinstance(likelihood, ScalarLikelihood) and likelihood.latent_dim != C:
            raise ValueError(
                f"num_latent_gps must be {likelihood.latent_dim} for this likelihood, got {C}."
            )
        M = int(self.inducing_variable.num_inducing)
        if self.q_mu.shape[0] != M:
            raise ValueError(
                f"inducing_variable must keep {self.q_mu.shape[0]} points, as q_mu, got {M}."
            )

    def add_parameters(self) -> None:
        """Create the parameters of the subclass; called at the end of the constructor."""

    @abstractmethod
    def objective_terms(
        self, X: tf.Tensor, Y: tf.Tensor, rows: Projected, L: tf.Tensor, q: WhitenedQ
    ) -> Tensors:
        """
        Compute the objective's sum over the rows of a minibatch, and its terms in q and the prior,
        [] each.
        """

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """
        Estimate the objective from the rows of a minibatch, in nats.

        :param data: X [n, D] and Y [n, P], some or all of the N rows (for streams: of the current
            batch).
        :raises tf.errors.InvalidArgumentError: if a matrix cannot be factorized, or the result is
            not finite.
        """
        X, Y = self._checked_minibatch(data)
        L, q = self._whitened()
        of_rows, other_terms = self.objective_terms(X, Y, self._projected(L, X), L, q)
        n = to_default_float(tf.shape(X)[0])
        weight = tf.ones_like(n) if self._num_data is None else self._num_data / n
        name = f"the objective of {type(self).__name__}"
        return finite(weight * of_rows + other_terms, name=name, advice=ADVICE)

    @property
    def num_data(self) -> tf.Variable | None:
        """
        N, the number of all observations; None: a minibatch is all data. Compiled functions use new
        values.
        """
        return self._num_data

    @num_data.setter
    def num_data(self, num_data: int) -> None:
        if self._num_data is None:
            raise ValueError(
                "num_data was None at construction and cannot be set afterwards: pass it there."
            )
        self._num_data.assign(validation.num_data(num_data))

    def _checked_minibatch(self, data: RegressionData) -> RegressionData:
        """
        Return X and Y as tensors; raise an error unless both have the same n <= N valid, finite
        rows.
        """
        X = validation.inputs(data[0], "data[0] (X)")
        X = X if X.shape.rank is not None else tf.ensure_shape(X, [None, None])
        X = checked_indices(self.kernel, X, "data[0] (X)")
        Y = check_observations(self.likelihood, data[1], self.num_latent_gps)
        message = "data: X and Y must have the same number of rows"
        if not X.shape[:1].is_compatible_with(Y.shape[:1]):
            raise ValueError(f"{message}, got {X.shape[0]} and {Y.shape[0]}.")
        X = asserted(X, tf.equal(tf.shape(X)[0], tf.shape(Y)[0]), message)
        Y = self._with_checked_size(Y)
        if in_xla():  # an invalid Y also makes X NaN, because a likelihood may treat NaN as a label
            return asserted(X, tf.math.is_finite(X) & tf.reduce_all(tf.math.is_finite(Y))), Y
        return finite(
            X, name="data[0] (X)", advice="leaving out rows in which an input is missing"
        ), Y

    def _with_checked_size(self, Y: tf.Tensor) -> tf.Tensor:
        """Return Y; raise an error unless it has between 1 and num_data rows."""
        if self._num_data is None:
            return Y
        n, most = to_default_float(tf.shape(Y)[0]), tf.convert_to_tensor(self._num_data)
        accepted = (n >= 1.0) & (n <= most)
        if not tf.executing_eagerly():
            return asserted(Y, accepted, _WRONG_NUMBER_OF_ROWS, n)
        if not accepted:
            raise ValueError(f"{_WRONG_NUMBER_OF_ROWS} {n:g}; num_data is {most:g}.")
        return Y

    def _whitened(self) -> tuple[tf.Tensor, WhitenedQ]:
        """Return L, and q(v)."""
        L = self._factor_of_Kuu()
        m = tf.transpose(self.q_mu)
        R = tf.convert_to_tensor(self.q_sqrt)
        if self.q_diag:
            R = tf.linalg.diag(tf.transpose(R))
        if self.whiten:
            return L, WhitenedQ(m, R)
        m = tf.linalg.triangular_solve(L, m[..., None])[..., 0]
        return L, WhitenedQ(m, tf.linalg.triangular_solve(L, R))

    @override
    def posterior_values(self) -> Tensors:
        L, q = self._whitened()
        return L, q.R, q.m[..., None]

    @override
    def site_sums(self) -> SiteSums:
        """
        S^-1 = I + A and c = S^-1 m, with eigenvalues of S above 1 (wider than the prior) clipped to
        1.
        """
        L, q = self._whitened()
        t, U = tf.linalg.eigh(tf.matmul(q.R, q.R, transpose_b=True))
        t = tf.minimum(t, 1.0)[..., None, :]
        A = tf.matmul(U * (1.0 - t) / t, U, transpose_b=True)
        return SiteSums(L, A, tf.matmul(U / t, tf.matmul(U, q.m[..., None], transpose_a=True)))

    def _projected(self, L: tf.Tensor, X: tf.Tensor) -> Projected:
        prior = self._prior()
        V = tf.linalg.triangular_solve(L, prior.Kuf(X))
        return Projected(
            V,
            conditional_variance_of_f(prior.variances(X), V, L),
            tf.transpose(mean_at(self.mean_function, X, self.num_latent_gps)),
        )

    def _variational_expectations(
        self, X: tf.Tensor, Y: tf.Tensor, rows: Projected, q: WhitenedQ
    ) -> tf.Tensor:
        """E_q[log p(y|f)], summed over the rows, []."""
        mean = tf.transpose(rows.mean + project_mean(rows.V, q.m))  # [n, C]
        variance = tf.transpose(rows.conditional_variance + q.variance(rows.V))
        return tf.reduce_sum(self.likelihood.variational_expectations(X, mean, variance, Y))


class ElboMixin(MinibatchSVGP):
    """A model whose objective is a lower bound on the log evidence."""

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    @no_autograph
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """
        Estimate the lower bound on the log evidence (streams: of the batch) by a minibatch, in
        nats.
        """
        return self.maximum_log_likelihood_objective(data)


class PowerSVGP(MinibatchSVGP):
    """A model with a power alpha and a scale m of the structured conditional."""

    alpha = Power()
    scale = ParameterPart(checked_scale)

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        alpha: float = 0.5,
        scale: float | Parameter = 1.0,
        num_data: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        q_diag: bool = False,
        q_mu: object = None,
        q_sqrt: object = None,
        whiten: bool = True,
    ):
        """
        See :class:`.TSVGP` for the other arguments.

        :param alpha: the power, in [0, 1].
        :param scale: m of T-PEP, in which f given u has the covariance m D (Bui and Titsias 2025):
            a positive number, or a `gpflow.Parameter` to learn it. 1 is power EP.
        """
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            num_data=num_data,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            q_diag=q_diag,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            whiten=whiten,
        )
        self._alpha = tf.Variable(
            self._checked_alpha(alpha), trainable=False, dtype=default_float()
        )
        self.scale = scale

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    @no_autograph
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """
        Estimate the objective at alpha = 0, a lower bound on the log evidence, by a minibatch, in
        nats.

        :raises tf.errors.InvalidArgumentError: at other powers, at which the objective approximates
            the log evidence.
        """
        return checked_bound(self.maximum_log_likelihood_objective(data), self._alpha)
