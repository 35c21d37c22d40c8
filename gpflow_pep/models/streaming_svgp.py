"""StreamingSVGP: the uncollapsed online bound, for any likelihood and minibatches within a batch."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, RegressionData
from gpflow.config import default_jitter
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import override

from .. import validation
from ..engine import SiteSums, independent_parts, kernel_matrix
from ..likelihoods.observations import check_observations
from ..maths.linalg import cholesky, finite
from ..runtime.tracing import no_autograph
from .kernels_and_inducing_variables import assign_inducing_points, assigned, inducing_points
from .minibatch_svgp import ADVICE, MinibatchSVGP, WhitenedQ, elbo
from .sparse import ADVICE_KUU
from .stream import Stream

_Model = TypeVar("_Model", bound="StreamingSVGP")


class StreamingSVGP(MinibatchSVGP, Stream):
    r"""
    Sparse variational GP of a stream of batches (Bui, Nguyen and Turner 2017, eq. 14), of any likelihood.

    .. math::

        \frac{N}{n} \sum_n E_q[\log p(y_n|f_n)] - KL[q(u), p(u)] + E_q[\log q_{old}(a)/p_{old}(a)]

    is a lower bound on the batch's log evidence, with the old posterior treated as exact. Use it like
    `gpflow.models.SVGP`; :meth:`update` absorbs the current q(u). Directions in which q is wider than the prior are
    absorbed as if they were as wide as the prior.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y, probit = (np.sin(X) > 0.0).astype(float), likelihoods.Probit()
    >>> model = StreamingSVGP(gpflow.kernels.Matern52(), probit, X[::10], num_data=30)
    >>> result = fit(model, (X[:30], Y[:30]), batch_size=10, max_iterations=20)
    >>> model.update((X[30:], Y[30:]))
    >>> result = fit(model, (X[30:], Y[30:]), batch_size=10, max_iterations=20)
    """

    _NEEDED = ("old.linear",)
    elbo = elbo
    _TF_MODULE_IGNORED_PROPERTIES = frozenset({"_old", *MinibatchSVGP._TF_MODULE_IGNORED_PROPERTIES})

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
        The other arguments are those of :class:`TSVGP`.

        :param likelihood: any likelihood of GPflow but `Ordinal`.
        :param inducing_variable: Z [M, D], or :class:`gpflow.inducing_variables.InducingPoints`, shared or
            `SeparateIndependentInducingVariables`.
        :param num_data: the number of rows of the first batch; None: every minibatch is a whole batch.
        :raises ValueError: naming the argument that cannot be used.
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
        self._begin_stream([self.num_latent_gps], 1)

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """
        The online bound, estimated from the rows of a minibatch, in nats.

        :param data: X [n, D] and Y [n, P], some or all rows of the batch.
        :raises tf.errors.InvalidArgumentError: if a matrix cannot be factorized, or the result is not finite.
        """
        X, Y = self._checked_minibatch(data)
        L, q = self._whitened()
        mean, variance = self._marginals(self._projected(L, X), q)
        of_rows = self.likelihood.variational_expectations(X, tf.transpose(mean), tf.transpose(variance), Y)
        value = self._row_weight(tf.shape(X)[0]) * tf.reduce_sum(of_rows) - q.divergence() + self._log_ratio(L, q)
        return finite(value, name="the objective of StreamingSVGP", advice=ADVICE)

    def _run_identity(self) -> dict[str, Any]:
        return {"old_posterior": self._old.variables}

    def _log_ratio(self, L: tf.Tensor, q: WhitenedQ) -> tf.Tensor:
        """E_q[log q_old(a)/p_old(a)], []."""
        return self._old.log_ratio(self.inducing_variable, self.kernel, L, *q, default_jitter())

    @override
    def _sums(self) -> SiteSums:
        """Return those of q(v) = N(m, S) in natural parameters: S^-1 = I + A, c = S^-1 m."""
        L, q = self._whitened()
        t, U = tf.linalg.eigh(tf.matmul(q.R, q.R, transpose_b=True))
        t = tf.minimum(t, 1.0)[..., None, :]
        A = tf.matmul(U * (1.0 - t) / t, U, transpose_b=True)
        c = tf.matmul(U / t, tf.matmul(U, q.m[..., None], transpose_a=True))
        return SiteSums(L, A, c)

    @override
    def _move_inducing_points(self, Z: AnyNDArray) -> None:
        """Set the inducing points to Z, and q(u) to the current posterior at Z."""
        if np.array_equal(Z, inducing_points(self.inducing_variable)):
            return
        kernels = [kernel for _, kernel in independent_parts(self.inducing_variable, self.kernel)]
        posterior, means, roots = self.posterior(), [], []
        for c in range(self.num_latent_gps):
            points = tf.constant(Z[c % len(Z)])
            jitter = default_jitter() * tf.eye(len(points), dtype=points.dtype)
            mean, covariance = posterior.predict_f(points, full_cov=True)
            offset = tf.broadcast_to(self.mean_function(points), mean.shape)
            m = (mean - offset)[:, c : c + 1]
            R = cholesky(covariance[c] + jitter, name="the covariance of q at the new points", advice=ADVICE_KUU)
            if self.whiten:
                L = cholesky(kernel_matrix(kernels[c % len(kernels)], points) + jitter, name="Kuu", advice=ADVICE_KUU)
                m, R = tf.linalg.triangular_solve(L, m), tf.linalg.triangular_solve(L, R)
            means.append(m)
            roots.append(tf.norm(R, axis=1)[:, None] if self.q_diag else R)
        assign_inducing_points(self.inducing_variable, Z)
        self.q_mu = assigned(self.q_mu, tf.concat(means, axis=1))
        self.q_sqrt = assigned(self.q_sqrt, tf.concat(roots, axis=1) if self.q_diag else tf.stack(roots))

    @override
    def _checked_new_data(self, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
        X, Y = validation.regression_data(data)
        check_observations(self.likelihood, Y, self.num_latent_gps)
        num_inputs = inducing_points(self.inducing_variable).shape[-1]
        if X.shape[1] != num_inputs:
            raise ValueError(f"data (X) must have {num_inputs} columns, as the inducing points, got {X.shape[1]}.")
        return X, Y

    @override
    def _assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """The batch itself is given to the objective."""
        if self.num_data is not None:
            self.num_data = len(X)

    @override
    def _batch_variables(self) -> dict[str, tf.Variable]:
        return {} if self.num_data is None else {"num_data": self.num_data}

    @override
    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        return () if self._old is None else tuple(self._old.variables)

    @override
    @classmethod
    def _of_batch(cls: type[_Model], arrays: Mapping[str, AnyNDArray], *parts: Any, **options: Any) -> _Model:
        num_data = int(arrays["num_data"]) if "num_data" in arrays else None
        num_latent_gps = arrays["old.linear"].shape[0]
        return cls(*parts, num_data=num_data, num_latent_gps=num_latent_gps, **options)
