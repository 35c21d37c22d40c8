"""StreamingSGPR, StreamingSVGP and StreamingPEP: models of data that arrive in batches."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from typing_extensions import Self, override

from .. import validation
from ..engine import AbsorbedPosterior, Powers, mean_at
from ..ep.sweep import Projected
from ..maths.linalg import cholesky, plus_identity
from ..runtime import Tensors, compiled, local_variable
from ..saving.arrays_file import Arrays
from .collapsed import CollapsedRegression
from .kernels_and_inducing_variables import assign_inducing_points, assigned, inducing_points
from .minibatch_svgp import ElboMixin, WhitenedQ
from .parts import Power
from .pep import PEP
from .sparse import ADVICE_KUU, checked_power
from .stream import Stream


class StreamingSGPR(CollapsedRegression, Stream):
    r"""
    Sparse GP regression of a stream of batches, for any power.

    Source: Bui, Nguyen and Turner (2017), eqs 27 and 117.

    The model is PEPR on the current batch; the posterior of earlier batches enters as an additional
    Gaussian site:

    .. math::

        q(u) \propto p(u) \prod_n N(y_n; \mu(x_n) + K_{nu} K_{uu}^{-1} u, v_n) \, t_{old}(u)

    Its objective is the online log evidence of the batch given earlier batches: at alpha = 0 a
    lower bound, with the old posterior treated as exact. If hyperparameters and inducing points
    stay fixed, the objectives of all batches add up to the objective of PEPR on all data, and q(u)
    equals its posterior.

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
        shared_noise: bool = False,
    ):
        """
        See :class:`PEPR` for the other arguments; scale and blocks do not apply.

        :param data: the first batch: inputs X [N, D] and outputs Y [N, P].
        :param inducing_variable: Z [M, D], or :class:`gpflow.inducing_variables.InducingPoints`.
        :param alpha: the power, a number in [0, 1]; 0 is the exact VFE limit.
        :param shared_noise: whether all rows have the current noise variance, which is therefore
            trained on all of them; the likelihood must have one noise variance. False: earlier rows
            keep the noise variance with which they were absorbed, as in the paper.
        """
        self.shared_noise = validation.boolean(shared_noise, "shared_noise")
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
        self._alpha = local_variable(self._checked_alpha(alpha), default_float())

    alpha = Power()

    @override
    @classmethod
    def _of_batch(cls, arrays: Arrays, *parts: object, **options: object) -> Self:
        options.setdefault("shared_noise", "old.noise" in arrays)
        return super()._of_batch(arrays, *parts, **options)

    @override
    def site_powers(self) -> Powers:
        return Powers.of_pep(checked_power(self._alpha))

    @override
    def _check(self) -> None:
        super()._check()
        if self.shared_noise and not isinstance(self.likelihood.variance, Parameter):
            raise ValueError(
                "likelihood must have one noise variance with shared_noise=True, got a Gaussian "
                "whose noise is a function: use shared_noise=False."
            )

    @override
    def _old_noise_variance(self) -> tf.Tensor | None:
        if not self.shared_noise:
            return None
        return tf.reshape(self.likelihood.variance, [])  # GPflow accepts [1], too

    @override
    @compiled
    def _absorb(self) -> AbsorbedPosterior:
        powers = self.site_powers()
        sums, row_sums = self._of_sites(powers)
        total = sums.with_old(self._old_site(sums.L, powers.noise_power))
        noise = self._old_noise_variance()
        if noise is not None:
            P = float(self.num_latent_gps)
            N = tf.cast(self.num_data, default_float())
            square = row_sums.quadratic + 2.0 * P * row_sums.penalty
            noise = self._old.noise_after(noise, P * N, square)
        return self._old.absorb(inducing_points(self.inducing_variable), total, noise)

    @override
    def _state_variables(self) -> dict[str, tf.Variable]:
        variables = super()._state_variables()
        if self.shared_noise:
            variables["old.noise"] = self._old.absorbed.noise
        return variables


class StreamingSVGP(ElboMixin, Stream):
    r"""
    Sparse variational GP of a stream of batches, for any likelihood.

    Source: Bui, Nguyen and Turner (2017), eq. 14.

    .. math::

        \frac{N}{n} \sum_n E_q[\log p(y_n|f_n)] - KL[q(u), p(u)] + E_q[\log q_{old}(a)/p_{old}(a)]

    is a lower bound on the batch's log evidence, with the old posterior treated as exact. Use it
    like `gpflow.models.SVGP`; :meth:`update` absorbs the current q(u), at most as wide as the prior
    in every direction.

    Takes the arguments of :class:`TSVGP`, with any likelihood of GPflow but `Ordinal`.
    `inducing_variable` must be Z [M, D] or :class:`gpflow.inducing_variables.InducingPoints`,
    shared or `SeparateIndependentInducingVariables`; `num_data` is the number of rows of the first
    batch, or None if every minibatch is a whole batch.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y, probit = (np.sin(X) > 0.0).astype(float), likelihoods.Probit()
    >>> model = StreamingSVGP(gpflow.kernels.Matern52(), probit, X[::10], num_data=30)
    >>> result = fit(model, (X[:30], Y[:30]), batch_size=10, max_iterations=20)
    >>> model.update((X[30:], Y[30:]))
    >>> result = fit(model, (X[30:], Y[30:]), batch_size=10, max_iterations=20)
    """

    _NEEDED = ("old.linear",)

    @override
    def objective_terms(
        self, X: tf.Tensor, Y: tf.Tensor, rows: Projected, L: tf.Tensor, q: WhitenedQ
    ) -> Tensors:
        projected = self._old.project(self.inducing_variable, self.kernel, self._jitter_of_Kuu(), L)
        log_ratio = self._old.log_ratio(projected, *q)
        return self._variational_expectations(X, Y, rows, q), log_ratio - q.divergence()

    @override
    def _move_inducing_points(self, Z: AnyNDArray) -> None:
        """Set the inducing points to Z, and q(u) to the current posterior at Z."""
        if np.array_equal(Z, inducing_points(self.inducing_variable)):
            return
        posterior, means, covariances = self.posterior(), [], []
        for c in range(self.num_latent_gps):
            points = tf.constant(Z[c % len(Z)])
            mean, covariance = posterior.predict_f(points, full_cov=True)
            mean -= mean_at(self.mean_function, points, self.num_latent_gps)
            means.append(mean[:, c, None])
            covariances.append(covariance[c])
        m = tf.stack(means)  # [C, M, 1]
        R = cholesky(
            plus_identity(tf.stack(covariances), self._jitter_of_Kuu()),
            name="the covariance of q at the new points",
            advice=ADVICE_KUU,
        )  # [C, M, M]
        assign_inducing_points(self.inducing_variable, Z)
        if self.whiten:
            L = self._factor_of_Kuu()
            m = tf.linalg.triangular_solve(L, m)
            R = tf.linalg.triangular_solve(L, R)
        self.q_mu = assigned(self.q_mu, tf.transpose(m[..., 0]))
        self.q_sqrt = assigned(self.q_sqrt, tf.transpose(tf.norm(R, axis=-1)) if self.q_diag else R)

    @override
    def assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Update num_data; the objective receives the batch as an argument."""
        if self.num_data is not None:
            self.num_data = len(X)

    @override
    def batch_variables(self) -> dict[str, tf.Variable]:
        return {} if self.num_data is None else {"num_data": self.num_data}

    @override
    @classmethod
    def _of_batch(cls, arrays: Arrays, *parts: Any, **options: Any) -> Self:
        num_data = int(arrays["num_data"]) if "num_data" in arrays else None
        return cls(
            *parts, num_data=num_data, num_latent_gps=arrays["old.linear"].shape[0], **options
        )


class StreamingPEP(PEP, Stream):
    r"""
    Sparse power EP of a stream of batches, for any likelihood.

    Source: Bui, Nguyen and Turner (2017), sec. 3.

    The model is :class:`PEP` of its current batch, with the posterior of all earlier batches as one
    more Gaussian site. Its objective is the online log evidence of the batch, given all earlier
    batches. :meth:`update` absorbs the sites and continues with a new batch: sites of earlier
    batches are not updated again. With a Gaussian likelihood it equals :class:`StreamingSGPR` and
    is exact; otherwise it approximates the posterior of :class:`PEP` on all batches.

    Takes the arguments of :class:`PEP`. `data` is the first batch, a pair of arrays; `alpha` is one
    number, because the old posterior has a single power; `inducing_variable` is Z [M, D] or
    :class:`gpflow.inducing_variables.InducingPoints`, shared or
    `SeparateIndependentInducingVariables`.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y, probit = (np.sin(X) > 0.0).astype(float), likelihoods.Probit()
    >>> model = StreamingPEP((X[:30], Y[:30]), gpflow.kernels.Matern52(), probit, X[::10], alpha=0.5)
    >>> model.update((X[30:], Y[30:]))
    >>> probability, _ = model.predict_y(np.array([[1.5], [4.5]]))  # uses the first batch, too
    >>> (probability.numpy() > 0.5).ravel().tolist()
    [True, False]
    """

    @override
    def _checked_alpha(self, alpha: object) -> AnyNDArray:
        """Check that `alpha` is one number: the old posterior has a single power."""
        return validation.power(alpha)
