"""
TSVGP, BTSVGP and PEPSVGP: minibatch bounds of a structured conditional, and power EP (Bui and
Titsias 2025).

Each has an explicit q(u), like `gpflow.models.SVGP`. With f_b = V_b'v + m(x) the conditional mean
of a block's rows given u, S_b their noise, D = Kff - Qff and X_b = S_b^-1/2 m D_bb S_b^-1/2, each
maximizes

    Σ_b { -1/2 log|2π S_b| - 1/2a log|I + a X_b| - 1/2 E_q[r_b'(S_b + p m D_bb)^-1 r_b] + g_b } -
    KL[q, p],   r = y - f

=========  ====================  =====  =====  =====================================================
           blocks                a      p      g_b
=========  ====================  =====  =====  =====================================================
SVGP       any                   0      0      0, eq. 3
TSVGP      rows                  1      0      0, eq. 5
BTSVGP     minibatches           1      0      0, eq. 9
PEPSVGP    rows or minibatches   α      α      n_b/2 log m - n_b/2α log(1 + α(m - 1))
=========  ====================  =====  =====  =====================================================

with m = 1 except in PEPSVGP, whose objective at the optimal q(u) equals PEPR's.
"""

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import positive, to_default_float
from typing_extensions import override

from .. import validation
from ..engine import conditional_covariance_of_f, factored_log_det_ratio, log1p_ratio, noise_at
from ..ep.sweep import Projected, project_mean
from ..maths.linalg import cholesky, inverse_of_product, plus_identity
from ..runtime import Tensors, WithGradient, once_differentiable
from .minibatch_svgp import ElboMixin, MinibatchSVGP, PowerSVGP, WhitenedQ
from .parts import ParameterPart, Part
from .sparse import checked_power

_ADVICE_BLOCK = "a larger noise variance, a larger jitter of Kuu, or smaller minibatches"


class StructuredSVGP(MinibatchSVGP):
    """
    A minibatch objective for Gaussian noise that may depend on x; models define
    :meth:`_bound`.
    """

    minibatch_is_block = False  #: A minibatch is a block; otherwise each of its rows is a block.

    @Part
    def likelihood(self, likelihood: object) -> Likelihood:
        """The likelihood: Gaussian, with noise that may depend on x."""
        return validation.gaussian(likelihood)

    def _bound(self) -> tuple[tf.Tensor, bool, tf.Tensor]:
        """
        Return (a, p == a, m) of the module's formula (p is a or 0); by default as in the tighter
        bounds.
        """
        one = to_default_float(1.0)
        return one, False, one

    @override
    def objective_terms(
        self, X: tf.Tensor, Y: tf.Tensor, rows: Projected, L: tf.Tensor, q: WhitenedQ
    ) -> Tensors:
        power, in_noise, m = self._bound()
        noise = noise_at(self.likelihood, X)[None]  # [1, n]
        residual = tf.transpose(Y) - rows.mean - project_mean(rows.V, q.m)  # [C, n]
        if self.minibatch_is_block:
            Kff = self._prior().Kff(X)
            D = conditional_covariance_of_f(Kff, tf.linalg.matrix_transpose(rows.V))
            T = tf.matmul(q.R, rows.V, transpose_a=True)  # [C, M, n]: Cov_q[f] = T'T
            of_blocks = _of_minibatch(m * D, noise, residual, T, power, in_noise)
        else:
            d = m * rows.conditional_variance  # [n] or [C, n]
            variance = noise + power * d if in_noise else noise
            squares = tf.reduce_sum((tf.square(residual) + q.variance(rows.V)) / variance)
            of_blocks = _total(log1p_ratio(power, d / noise), residual) + squares
        shrinkage = log1p_ratio(power, m - 1.0) - tf.math.log(m)
        of_noise = np.log(2.0 * np.pi) + tf.math.log(noise) + shrinkage
        return -0.5 * (_total(of_noise, residual) + of_blocks), -q.divergence()


def _total(value: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Sum values [1 or C, ...] over C latent functions, []."""
    return tf.reduce_sum(
        tf.broadcast_to(value, tf.concat([tf.shape(like)[:1], tf.shape(value)[1:]], 0))
    )


def _of_minibatch(
    D: tf.Tensor,
    noise: tf.Tensor,
    residual: tf.Tensor,
    T: tf.Tensor,
    power: tf.Tensor,
    in_noise: bool,
) -> tf.Tensor:
    """
    log|I + a X|/a and the quadratic form of one block with covariance m D, `D` [n, n] or [C, n, n],
    summed, [].
    """
    sd = tf.sqrt(noise)  # [1, n]
    X = D / (sd[:, :, None] * sd[:, None, :])  # [1 or C, n, n]
    white = tf.concat([residual[:, None, :], T], axis=1) / sd[:, None, :]  # [C, 1 + M, n]
    if in_noise:
        return _log_det_and_squares(power, X, tf.linalg.matrix_transpose(white))
    none = tf.linalg.matrix_transpose(white[:, :0])  # the quadratic form has only the noise
    return _log_det_and_squares(power, X, none) + tf.reduce_sum(tf.square(white))


def _log_det_and_squares(power: tf.Tensor, X: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """
    log|I + a X|/a + tr W'(I + a X)^-1 W, summed over latent functions, []; X [1 or C, n, n], W [C,
    n, k].
    """
    copies = 1.0
    if X.shape[0] == 1:  # one matrix for all: columns of one W
        copies = float(W.shape[0])
        W = tf.reshape(tf.transpose(W, [1, 0, 2]), [1, tf.shape(W)[1], -1])

    @tf.custom_gradient
    def value(X: tf.Tensor, W: tf.Tensor) -> WithGradient:
        factor = cholesky(plus_identity(power * X), name="a block", advice=_ADVICE_BLOCK)
        U = tf.linalg.cholesky_solve(factor, W)
        squares = tf.reduce_sum(tf.square(X), axis=[1, 2])
        log_det = factored_log_det_ratio(factor, power, tf.linalg.trace(X), squares)

        def gradient(bar: tf.Tensor) -> Tensors:  # in fewer products than automatically
            in_X = copies * inverse_of_product(factor) - power * tf.matmul(U, U, transpose_b=True)
            return once_differentiable(bar * in_X, 2.0 * bar * U)

        return copies * tf.reduce_sum(log_det) + tf.reduce_sum(W * U), gradient

    return value(X, W)


class TSVGP(ElboMixin, StructuredSVGP):
    r"""
    The tighter bound of `gpflow.models.SVGP` with a scale for every row, at its optimum.

    Source: Bui and Titsias (2025), eq. 5.

    .. math::

        \frac{N}{n} \sum_n \left\{ E_q \log N(y_n; w_n, s_n) - \frac{1}{2} \log(1 + d_n/s_n)
        \right\} - KL[q, p]

    with w_n the mean of f_n given u, d_n its variance given u, and s_n the noise variance. It is
    never below SVGP's bound; the optimal q(u) and the predictions equal SVGP's.

    With a non-Gaussian likelihood all rows share one learned scale m, the parameter `scale`
    (Titsias 2025): p(f|u) has the covariance m D, at a cost of (m - 1 - log m)/2 per row:

    .. math::

        \frac{N}{n} \sum_n \left\{ E[\log p(y_n|f_n)] - \frac{1}{2} (m - 1 - \log m) \right\} -
        KL[q, p], \qquad f_n \sim N(E_q[w_n], Var_q[w_n] + m d_n)

    At the initial value m = 1 this is SVGP's bound.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> parts = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[::10]
    >>> model = TSVGP(*parts, num_data=50)
    >>> svgp = gpflow.models.SVGP(*parts, num_data=50)
    >>> bool(svgp.elbo((X, np.sin(X))) < model.elbo((X, np.sin(X))))
    True
    """

    @ParameterPart
    def scale(self, scale: object) -> Parameter | None:
        """m of all rows, learned; None with Gaussian noise."""
        return None if scale is None else validation.scale(scale)

    likelihood = MinibatchSVGP.likelihood

    @override
    def _check(self) -> None:
        """Accept any likelihood. A replacement must be Gaussian if and only if the original was."""
        super()._check()
        is_gaussian = isinstance(self.likelihood, Gaussian)
        has_scale = self.scale is not None
        if is_gaussian == has_scale:
            kept = "be another than Gaussian" if has_scale else "be Gaussian"
            raise ValueError(
                f"likelihood must {kept}, as in the constructor of this {type(self).__name__}, got "
                f"{type(self.likelihood).__name__}: construct a new model."
            )

    @override
    def add_parameters(self) -> None:
        self.scale = None
        if not isinstance(self.likelihood, Gaussian):
            self.scale = Parameter(1.0, transform=positive())

    @override
    def objective_terms(
        self, X: tf.Tensor, Y: tf.Tensor, rows: Projected, L: tf.Tensor, q: WhitenedQ
    ) -> Tensors:
        if self.scale is None:
            return super().objective_terms(X, Y, rows, L, q)
        m = tf.convert_to_tensor(self.scale)
        scaled = rows._replace(conditional_variance=m * rows.conditional_variance)
        count = tf.cast(self.num_latent_gps * tf.shape(X)[0], m.dtype)
        expected = self._variational_expectations(X, Y, scaled, q)
        return expected - 0.5 * count * (m - 1.0 - tf.math.log(m)), -q.divergence()


class BTSVGP(ElboMixin, StructuredSVGP):
    r"""
    The tighter bound of `gpflow.models.SVGP` with the optimal matrix for every block.

    Source: Bui and Titsias (2025), eq. 9.

    .. math::

        \frac{N}{n} \left\{ \sum_n E_q \log N(y_n; w_n, s_n)
        - \frac{1}{2} \log|I + S^{-1/2} D S^{-1/2}| \right\} - KL[q, p]

    for the n rows of a block, with their covariance D given u and their noise S = diag(s).

    A minibatch is a block: give the rows in fixed blocks
    (:class:`gpflow_pep.data.minibatches.Minibatches`), for which the sum is a bound, never below
    the bound of :class:`TSVGP`. A step costs O(n³ + n² M) more than in SVGP.

    >>> from gpflow_pep.data.minibatches import Minibatches
    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> model = BTSVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[::10], num_data=50)
    >>> batches = iter(Minibatches(50, 10, fixed=True).dataset((X, np.sin(X))))
    >>> loss = model.training_loss_closure(batches)
    >>> gpflow.keras.tf_keras.optimizers.Adam(0.01).minimize(loss, model.trainable_variables)
    """

    minibatch_is_block = True


class PEPSVGP(PowerSVGP, StructuredSVGP):
    r"""
    Minibatch power EP for Gaussian noise with an explicit q(u) and a structured conditional m D
    (Bui and Titsias 2025).

    .. math::

        & \frac{N}{n} \sum_n \left\{ -\frac{1}{2} \log 2\pi s_n
        - \frac{1}{2\alpha} \log\left(1 + \alpha \frac{m d_n}{s_n}\right)
        - \frac{1}{2} \frac{E_q[(y_n - w_n)^2]}{s_n + \alpha m d_n} \right\} \\
        & + \frac{N}{2} \log m - \frac{N}{2\alpha} \log(1 + \alpha(m-1)) - KL[q, p]

    for rows, with w_n, d_n and s_n as in :class:`TSVGP`. With ``minibatch_is_block=True`` the
    matrix D of a block replaces d_n, and log determinants replace logarithms.

    ======================================  =====================================================
    alpha = 0, scale = 1                    the bound of `gpflow.models.SVGP`, for any blocks
    q(u) at its optimum                     :class:`PEPR` with the same alpha, scale and blocks
    ======================================  =====================================================
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingPointsLike,
        *,
        alpha: float = 0.5,
        scale: float | Parameter = 1.0,
        minibatch_is_block: bool = False,
        num_data: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        q_diag: bool = False,
        q_mu: object = None,
        q_sqrt: object = None,
        whiten: bool = True,
    ):
        """
        See :class:`TSVGP` for the other arguments.

        :param alpha: the power, in [0, 1].
        :param scale: m of the structured conditional, positive; a :class:`gpflow.Parameter` is
            learned.
        :param minibatch_is_block: whether a minibatch is one block, as in :class:`BTSVGP`;
            otherwise each row is one.
        :param likelihood: a :class:`gpflow.likelihoods.Gaussian`, whose noise may depend on x.
        """
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            alpha=alpha,
            scale=scale,
            num_data=num_data,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            q_diag=q_diag,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            whiten=whiten,
        )
        self.minibatch_is_block = validation.boolean(minibatch_is_block, "minibatch_is_block")

    @override
    def _bound(self) -> tuple[tf.Tensor, bool, tf.Tensor]:
        return checked_power(self._alpha), True, tf.convert_to_tensor(self.scale)
