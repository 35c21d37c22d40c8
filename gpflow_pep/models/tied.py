"""
APEP, ARPEP and RPAPEP: minibatch power EP whose N factors are tied (Villacampa-Calvo and
Hernández-Lobato 2020).

Instead of a site per observation there is an explicit q(u), as in `gpflow.models.SVGP`; the factor
of each observation is the N-th root of q(u)/p(u). All three maximize, over q(u) and the
hyperparameters,

    1/α Σ_n log E_cav[p(y_n|f_n)^α] + a term in q and the prior

with a cavity that all observations share. Whitened, u = L v with Kuu = L L', q(v) = N(m, S), S = R
R':

=======  ===================================  ======================================================================
         cavity                               term
=======  ===================================  ======================================================================
ARPEP    q itself                             -KL[q, prior] = log|S|/2 - (tr S + m'm - M)/2
APEP     q^(1-a) prior^a, a = α/N             log|S|/2 - log|W|/2a - m'm_cav/2,   W = (1-a) I + a R'R
RPAPEP   q^β, β = 1 - α/(N+1)                 log|S|/2 - M(N+1) log β/2α - log|I + tS|/2α - m'(I + tS)^-1 m/2,  t = α/β
=======  ===================================  ======================================================================

(the paper's eqs. 9, 11 and 10, rearranged to avoid division by α). At α = 0 each is the bound of
`gpflow.models.SVGP`.
"""

from abc import abstractmethod

import tensorflow as tf
from typing_extensions import override

from ..engine import factored_log_det_ratio, log1p_ratio, scale_terms
from ..ep.sweep import Projected, project_mean
from ..maths.linalg import cholesky, column_products
from ..runtime import Tensors, WithGradient, in_xla, once_differentiable
from ..tilted import Cavity, Observations, log_partition, rule_for
from .minibatch_svgp import PowerSVGP, WhitenedQ
from .sparse import checked_power


class TiedFactors(PowerSVGP):
    """
    A model with an explicit q(u) and tied factors; models define `cavity`. `num_data` is
    required: each factor is the N-th root of q(u)/p(u). The likelihood is any `ScalarLikelihood`
    that is twice differentiable in f, or :class:`gpflow_pep.likelihoods.MultiClassRobustMax`, or
    GPflow's `MultiClass` or `Softmax`.
    """

    @override
    def _check(self) -> None:
        super()._check()
        if self.num_data is None:
            raise ValueError("num_data must be given, since every factor depends on it, got None.")
        rule_for(self.likelihood, "kl")

    @abstractmethod
    def cavity(self, q: WhitenedQ, V: tf.Tensor, alpha: tf.Tensor, num_data: tf.Tensor) -> Tensors:
        """
        Compute the cavity's mean of v [C, M], its variance of w = V'v [C, n], and the term in q and
        prior, [].
        """

    @override
    def objective_terms(
        self, X: tf.Tensor, Y: tf.Tensor, rows: Projected, L: tf.Tensor, q: WhitenedQ
    ) -> Tensors:
        alpha = checked_power(self._alpha)
        N, m = tf.convert_to_tensor(self.num_data), tf.convert_to_tensor(self.scale)
        mean, variance, term = self.cavity(q, rows.V, alpha, N)
        cavity_of_f = Cavity(
            rows.mean + project_mean(rows.V, mean), m * rows.conditional_variance + variance
        )  # [C, n]
        of_rows = log_partition(
            rule_for(self.likelihood, "kl"), cavity_of_f, Observations(X, Y), alpha
        )
        return tf.reduce_sum(of_rows), term + self.num_latent_gps * scale_terms(alpha, m, N)


class ARPEP(TiedFactors):
    r"""
    Minibatch power EP with q in place of the cavity.

    Source: Villacampa-Calvo and Hernández-Lobato (2020), eq. 9.

    .. math::

        \frac{1}{\alpha} \sum_n \log E_q[p(y_n|f_n)^\alpha] - KL[q, p]

    It minimizes an α-divergence locally. A step costs as much as in `gpflow.models.SVGP`.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> Y, parts = (np.sin(X) > 0.0).astype(float), (gpflow.kernels.Matern52(), likelihoods.Probit(), X[::10])
    >>> model = ARPEP(*parts, num_data=50, alpha=0.5)
    >>> result = fit(model, (X, Y), batch_size=10, max_iterations=100, learning_rate=0.1)
    >>> probability, _ = model.predict_y(np.array([[1.5], [4.5]]))
    >>> (probability.numpy() > 0.5).ravel().tolist()
    [True, False]
    """

    @override
    def cavity(self, q: WhitenedQ, V: tf.Tensor, alpha: tf.Tensor, num_data: tf.Tensor) -> Tensors:
        return q.m, q.variance(V), -q.divergence()


class APEP(TiedFactors):
    r"""
    Minibatch power EP with tied factors.

    Source: Villacampa-Calvo and Hernández-Lobato (2020), eq. 11.

    .. math::

        \frac{1}{\alpha} \sum_n \left\{ \log E_{cav}[p(y_n|f_n)^\alpha] + g(cav) - g(q) \right\} +
        g(q) - g(p), \qquad cav \propto q \, (p/q)^{\alpha/N}

    with the log normalizers g: the cavity is q without the fraction α/N of q/p (APEP: approximate
    PEP). With Gaussian noise the optimum equals the optimum of :class:`PEPR` if all observations
    are identical, otherwise not, even if Z = X: the exact factors then differ from row to row, and
    the tied factor is their average.
    """

    @override
    def cavity(self, q: WhitenedQ, V: tf.Tensor, alpha: tf.Tensor, num_data: tf.Tensor) -> Tensors:
        log_det, mean, variance = tied_cavity(
            q, V, alpha / num_data, 1.0, advice=_advice(alpha, num_data)
        )
        term = q.half_log_det() - 0.5 * (tf.reduce_sum(log_det) + tf.reduce_sum(q.m * mean))
        return mean, variance, term


class RPAPEP(TiedFactors):
    r"""
    Minibatch power EP that approximates the prior's factor too.

    Source: Villacampa-Calvo and Hernández-Lobato (2020), eq. 10.

    .. math::

        g(q) + \frac{1}{\alpha} \left\{ \sum_n \log E_{cav}[p(y_n|f_n)^\alpha] + \log
        E_{cav}[p(u)^\alpha] + (N+1)(g(cav) - g(q)) \right\}, \qquad cav \propto q^{1 -
        \alpha/(N+1)}

    with the log normalizers g: the prior is one of N + 1 tied factors, and the cavity is q,
    widened.
    """

    @override
    def cavity(self, q: WhitenedQ, V: tf.Tensor, alpha: tf.Tensor, num_data: tf.Tensor) -> Tensors:
        M = tf.cast(tf.size(q.m), q.m.dtype)
        beta = 1.0 - alpha / (num_data + 1.0)
        log_det, mean, _ = tied_cavity(
            q, V[..., :0], alpha / beta, 0.0, advice=_advice(alpha, num_data)
        )
        log_beta = log1p_ratio(alpha, -1.0 / (num_data + 1.0))  # log β / α
        term = -0.5 * (
            M * (num_data + 1.0) * log_beta
            + tf.reduce_sum(log_det) / beta
            + tf.reduce_sum(q.m * mean)
        )
        return q.m, q.variance(V) / beta, q.half_log_det() + term


def _advice(alpha: tf.Tensor, num_data: tf.Tensor) -> str | tf.Tensor:
    advice = "a smaller alpha (alpha = {}, num_data N = {}), or q_sqrt without huge or NaN entries"
    return "" if in_xla() else tf.strings.format(advice, (alpha, num_data))


def tied_cavity(
    q: WhitenedQ, V: tf.Tensor, power: tf.Tensor, offset: float, *, advice: str | tf.Tensor
) -> Tensors:
    """
    Compute log|W|/power [C], m - power R W^-1 R'm [C, M], diag(V'R W^-1 R'V) [C, n]; W = I + power
    (R'R - offset I).

    Differentiable once; the hand-written gradient takes fewer products. With Y = W^-1 R'V, i = W^-1
    R'm, derivatives d, μ, v in the three and j = -power W^-1 R'μ, the derivatives in m, R and V are

        μ + R j,    2 (V - power R Y) v Y' + 2 d R W^-1 + (m - power R i) j' - power (μ + R j) i',
        2 R Y v.

    :raises tf.errors.InvalidArgumentError: if W is not positive definite.
    """

    @tf.custom_gradient
    def values(m: tf.Tensor, R: tf.Tensor, V: tf.Tensor) -> WithGradient:
        G = tf.matmul(R, R, transpose_a=True)
        diagonal = tf.linalg.diag_part(G) - offset  # of R'R - offset I
        W = tf.linalg.set_diag(power * G, 1.0 + power * diagonal)
        factor = cholesky(W, name="the cavity, which must be positive definite,", advice=advice)
        U = tf.linalg.triangular_solve(factor, tf.matmul(R, V, transpose_a=True))  # [C, M, n]
        i = _solve(factor, tf.linalg.matvec(R, m, transpose_a=True))
        mean = m - power * tf.linalg.matvec(R, i)

        def gradient(d: tf.Tensor, mu: tf.Tensor, v: tf.Tensor) -> Tensors:
            j = -power * _solve(factor, tf.linalg.matvec(R, mu, transpose_a=True))
            m_bar = mu + tf.linalg.matvec(R, j)
            Y = tf.linalg.triangular_solve(factor, U, adjoint=True)
            RY = tf.matmul(R, Y)
            # R W^-1.
            RW = tf.linalg.matrix_transpose(
                tf.linalg.cholesky_solve(factor, tf.linalg.matrix_transpose(R))
            )
            thin = tf.stack([mean, -power * m_bar], axis=-1), tf.stack([j, i], axis=-1)  # [C, M, 2]
            R_bar = 2.0 * d[:, None, None] * RW + tf.matmul(*thin, transpose_b=True)
            R_bar += tf.matmul(V - power * RY, 2.0 * v[:, None, :] * Y, transpose_b=True)
            V_bar = 2.0 * v[:, None, :] * RY
            return once_differentiable(
                m_bar, R_bar, tf.reduce_sum(V_bar, axis=0) if V.shape.rank == 2 else V_bar
            )

        squares = tf.reduce_sum(tf.square(G), axis=[-2, -1])
        # |R'R - offset I|².
        squares += tf.reduce_sum(tf.square(diagonal) - tf.square(tf.linalg.diag_part(G)), axis=-1)
        log_det = factored_log_det_ratio(factor, power, tf.reduce_sum(diagonal, axis=-1), squares)
        return (log_det, mean, column_products(U, U)), gradient

    return values(q.m, q.R, V)


def _solve(factor: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    return tf.linalg.cholesky_solve(factor, vectors[..., None])[..., 0]
