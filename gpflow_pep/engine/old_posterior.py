"""
The old posterior as one more Gaussian site, on the old inducing variables a (Bui, Nguyen and Turner
2017).

    q_old(a)/p_old(a) = exp(-a'Λa/2 + η'a + log_normalizer),    Λ = R R' = L^-T A L^-1,  η = L^-T c,

from the sums A, c and the Cholesky factor L of the model at the time of absorption, without
inverting a covariance. A new stream has no old inducing variables.

The old posterior is a product of Gaussian likelihoods of earlier rows. If all rows of a stream
share one noise variance s, their variances v at absorption become v/ρ with ρ = v_old/s, and the
site

    exp(ρ(-a'Λa/2 + η'a) + log_normalizer - (ρ - 1) square/2 + count log(ρ)/2),

where `count` is the number of earlier values and `square` the sum of their squares over v. With
fixed kernel and inducing points this is exact at alpha = 0, and at any power if the inducing points
determine f at the earlier rows.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..maths.linalg import cholesky, finite, plus_identity, symmetrized
from ..runtime import Tensors, WithGradient, asserted, assign_all, once_differentiable
from .covariances import Prior, independent_parts, stacked
from .gaussian import OldPosteriorSite, SiteSums, factored_log_det_ratio

_ADVICE_SUMS = "checking data, parameters and q for NaN, infinite or overflowing values"
_ADVICE = (
    "a larger jitter (gpflow.config.set_default_jitter), or inducing points that are nearer to the "
    "old ones"
)
_M_CHANGED = (
    "The number of inducing points has changed since this function was compiled: compile it again. "
    "M is"
)


class AbsorbedPosterior(NamedTuple):
    """
    A posterior of inducing variables a at Z, divided by its prior; [...] are leading dimensions,
    none or [C].
    """

    Z: tf.Tensor  # [K, Ma, D]: K = 1 if all latent functions share the points, otherwise C
    root: tf.Tensor  # R, [..., Ma, Ma]
    linear: tf.Tensor  # η, [..., Ma, P]
    # log ∫ p_old(a)/q_old(a) without their normalizers: P/2 log|B| - c'B^-1 c/2, []
    log_normalizer: tf.Tensor
    noise: tf.Tensor  # noise variance, number of earlier values, their squares over it, [3]


class ProjectedPoints(NamedTuple):
    """The prior of the old inducing variables a, given the present ones; L is their factor."""

    V: tf.Tensor  # L^-1 Kba, [..., M, Ma]
    Q: tf.Tensor  # Kaa - V'V, [..., Ma, Ma]


class OldPosterior(tf.Module):
    """
    The old posterior in variables, so that compiled functions use new values, for any number of old
    points.
    """

    def __init__(self, shape: list[int], leading: list[int], num_outputs: int, dtype: tf.DType):
        """
        :param shape: K (1 or C), M and D of the first inducing points; `leading`: [] if outputs
            share q, or [C].
        """
        super().__init__()
        num_parts, num_inducing, num_inputs = shape
        self._leading = np.array(leading, np.int32)
        self._num_inducing = tf.Variable(num_inducing, trainable=False)

        def empty(*shape: int | None) -> tf.Variable:
            zeros = tf.zeros([size or 0 for size in shape], dtype)
            return tf.Variable(zeros, trainable=False, shape=shape)

        self.absorbed = AbsorbedPosterior(
            Z=empty(num_parts, None, num_inputs),
            root=empty(*leading, None, None),
            linear=empty(*leading, None, num_outputs),
            log_normalizer=empty(),
            noise=tf.Variable([1.0, 0.0, 0.0], trainable=False, dtype=dtype),
        )

    @property
    def shape(self) -> list[int]:
        """K, M and D of the model's inducing points."""
        num_parts, _, num_inputs = self.absorbed.Z.shape
        return [num_parts, int(self._num_inducing), num_inputs]

    def noise_after(
        self, noise_variance: tf.Tensor, count: tf.Tensor, square: tf.Tensor
    ) -> tf.Tensor:
        """
        Return `noise` of the earlier values and of the present ones, [3].

        :param noise_variance: the present noise variance, [].
        :param count: the number of present values, [].
        :param square: the sum of their squares over their variances, [].
        """
        old_variance, old_count, old_square = tf.unstack(self.absorbed.noise)
        square += old_square * old_variance / noise_variance
        return tf.stack([noise_variance, old_count + count, square])

    def absorb(
        self, Z: tf.Tensor, sums: SiteSums, noise: tf.Tensor | None = None
    ) -> AbsorbedPosterior:
        """
        Compute q(v) = N(B^-1 c, B^-1), B = I + A, at Z [K, Ma, D], divided by its prior, without
        assigning it.

        Negative eigenvalues of A, which sites of negative precision may cause, are set to 0: in
        those directions the old posterior is as wide as the prior.

        :param sums: with the leading dimensions of this posterior, or without those of size 1.
        :param noise: from :meth:`noise_after`; None: earlier rows keep their noise variance.
        """
        A, c = (
            tf.reshape(values, tf.concat([self._leading, tf.shape(values)[-2:]], 0))
            for values in sums[1:]
        )
        eigenvalues, U = tf.linalg.eigh(
            finite(A, name="A of the old posterior", advice=_ADVICE_SUMS)
        )
        eigenvalues = tf.nn.relu(eigenvalues)[..., None, :]  # [..., 1, Ma]
        L = tf.broadcast_to(sums.L, tf.shape(A))
        Uc = tf.matmul(
            U, finite(c, name="c of the old posterior", advice=_ADVICE_SUMS), transpose_a=True
        )
        # P log|B| of B = U (I + eigenvalues) U'.
        log_det = tf.reduce_sum(tf.math.log1p(eigenvalues)) * tf.cast(tf.shape(c)[-1], c.dtype)
        quadratic = tf.reduce_sum(tf.square(Uc) / (1.0 + tf.linalg.matrix_transpose(eigenvalues)))
        root, linear = (
            tf.linalg.triangular_solve(L, value, adjoint=True)
            for value in (U * tf.sqrt(eigenvalues), c)
        )
        if noise is None:
            noise = tf.convert_to_tensor(self.absorbed.noise)
        return AbsorbedPosterior(Z, root, linear, 0.5 * (log_det - quadratic), noise)

    def assign(self, absorbed: AbsorbedPosterior, num_inducing: int) -> None:
        """
        Assign new values and M of the model; functions compiled for a different M raise an error.
        """
        assign_all((*self.absorbed, self._num_inducing), (*absorbed, num_inducing))

    def site(
        self,
        projected: ProjectedPoints,
        alpha: tf.Tensor,
        noise_variance: tf.Tensor | None = None,
    ) -> OldPosteriorSite:
        """
        Compute the site at the current hyperparameters, for the power alpha; differentiable (their
        eq. 140).

            A = W (I + αD)^-1 W',    W = V R,  D = R'QR,    c = V (I + αΛQ)^-1 η,
            terms = log_normalizer + α η'(I + αQΛ)^-1 Qη/2 - P log|I + αD|/2α.

        :param projected: V and Q, from :meth:`project`.
        :param noise_variance: the noise variance of all rows, []: Λ and η become ρΛ and ρη. None:
            earlier rows keep theirs.
        """
        V, Q = projected
        _, R, linear, log_normalizer, noise = map(tf.convert_to_tensor, self.absorbed)
        old_variance, count, square = tf.unstack(noise)
        if noise_variance is None:
            noise_variance = old_variance
        ratio = old_variance / noise_variance
        root = tf.sqrt(ratio)
        # ρΛ and ρη enter as V √ρ, ρQ and √ρ η.
        A, c, quadratic, penalty = _site(root * V, ratio * Q, R, linear, alpha)
        log_noise = 0.5 * (count * tf.math.log(ratio) - (ratio - 1.0) * square)
        terms = log_normalizer + log_noise + ratio * quadratic + penalty
        return OldPosteriorSite(A, root * c, terms)

    def log_ratio(self, projected: ProjectedPoints, mean: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
        """
        Compute E[log q_old(a)/p_old(a)] under q(v) = N(mean [C, M], root root' [C, M, M]), [];
        differentiable.

            -(|W'root|² + |W'mean|² + tr D)/2 + η'V' mean + log_normalizer.
        """
        V, Q = projected
        _, R, linear, log_normalizer, _ = map(tf.convert_to_tensor, self.absorbed)
        W, mean = tf.matmul(V, R), mean[..., None]  # [C, M, Ma], [C, M, 1]
        root_and_mean = tf.matmul(W, tf.concat([root, mean], axis=-1), transpose_a=True)
        second = tf.reduce_sum(tf.square(root_and_mean)) + tf.reduce_sum(R * tf.matmul(Q, R))
        return tf.reduce_sum(tf.matmul(V, linear) * mean) - 0.5 * second + log_normalizer

    def project(
        self, inducing_variable: InducingVariables, kernel: Kernel, jitter: float, L: tf.Tensor
    ) -> ProjectedPoints:
        """
        Return V and Q for L, the Cholesky factor of Kuu + jitter I, [M, M] or [C, M, M];
        differentiable.

        The jitter belongs to the inducing variables: an old and a new one at the same point are
        equal, with a column of L' in V and zeros in Q. At coinciding points V and Q are set to
        these exact values, for any conditioning of Kuu; gradients go through the solve, since a new
        point may move away from the old point.
        """
        L = asserted(
            L, tf.equal(self._num_inducing, tf.shape(L)[-1]), _M_CHANGED, self._num_inducing
        )
        Z_old = tf.convert_to_tensor(self.absorbed.Z)
        results = []
        for number, part in enumerate(independent_parts(inducing_variable, kernel)):
            # Index 0 if functions share Z.
            old = Z_old[number % Z_old.shape[0]]
            prior = Prior(*part)
            same = _same(tf.convert_to_tensor(part[0].Z), old)
            Kaa = plus_identity(prior.Kff(old), jitter)
            results.append((prior.Kuf(old) + jitter * same, Kaa, same))
        Kba, Kaa, same = (stacked(values) for values in zip(*results, strict=True))
        left = 1.0 - tf.reduce_sum(
            same, axis=-2
        )  # [..., Ma], 0 for an old point that is also a new point
        exact_V = tf.grad_pass_through(
            lambda V: tf.matmul(L, same, transpose_a=True) + V * left[..., None, :]
        )
        exact_Q = tf.grad_pass_through(lambda Q: Q * left[..., None, :] * left[..., :, None])
        V = exact_V(tf.linalg.triangular_solve(L, Kba))
        return ProjectedPoints(V, exact_Q(Kaa - tf.matmul(V, V, transpose_a=True)))


def _site(V: tf.Tensor, Q: tf.Tensor, R: tf.Tensor, linear: tf.Tensor, alpha: tf.Tensor) -> Tensors:
    """
    Return A, c, and the terms that depend on V and Q: α η'(I + αQΛ)^-1 Qη/2 and -P log|I + αD|/2α.

    Differentiable in V and Q. Latent functions may share these, not R.

    The gradient by hand saves a fifth of the time of a step (M = 100, 300 rows). With S = R (I +
    αD)^-1 R' and ω = (I + αΛQ)^-1 η = η - α S Q η, so that A = V S V' and c = V ω, a change of Q
    makes dS = -α S dQ S, dω = -α S dQ ω and d terms = tr(dQ (α ω ω' - P S))/2.
    """

    @tf.custom_gradient
    def values(V: tf.Tensor, Q: tf.Tensor) -> WithGradient:
        D = tf.matmul(tf.matmul(R, Q, transpose_a=True), R)
        factor = cholesky(
            plus_identity(alpha * D),
            name="I + alpha R'QR of the old posterior",
            advice=_ADVICE,
        )
        G = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(R))  # S = G'G
        e = tf.matmul(G, tf.matmul(Q, linear))
        omega = linear - alpha * tf.matmul(G, e, transpose_a=True)
        H = tf.matmul(G, V, transpose_b=True)
        squares = tf.reduce_sum(tf.square(D), axis=[-2, -1])
        log_det = factored_log_det_ratio(factor, alpha, tf.linalg.trace(D), squares)
        num_outputs = tf.cast(tf.shape(linear)[-1], D.dtype)
        quadratic = 0.5 * alpha * tf.reduce_sum(linear * tf.matmul(Q, omega))
        penalty = -0.5 * num_outputs * tf.reduce_sum(log_det)

        def gradient(
            A_bar: tf.Tensor, c_bar: tf.Tensor, quadratic_bar: tf.Tensor, penalty_bar: tf.Tensor
        ) -> Tensors:
            VS = tf.matmul(H, G, transpose_a=True)
            A_bar_VS = tf.matmul(symmetrized(A_bar), VS)
            V_bar = 2.0 * A_bar_VS + tf.matmul(c_bar, omega, transpose_b=True)
            S_omega = tf.matmul(VS, c_bar, transpose_a=True) - 0.5 * quadratic_bar * omega
            Q_bar = tf.matmul(VS, A_bar_VS, transpose_a=True) + tf.matmul(
                S_omega, omega, transpose_b=True
            )
            Q_bar = -alpha * Q_bar - 0.5 * num_outputs * penalty_bar * tf.matmul(
                G, G, transpose_a=True
            )
            if V.shape.rank < V_bar.shape.rank:  # several latent functions share them
                V_bar, Q_bar = tf.reduce_sum(V_bar, axis=0), tf.reduce_sum(Q_bar, axis=0)
            return once_differentiable(V_bar, Q_bar)

        return (
            (tf.matmul(H, H, transpose_a=True), tf.matmul(V, omega), quadratic, penalty),
            gradient,
        )

    return values(V, Q)


def _same(Z: tf.Tensor, Z_old: tf.Tensor) -> tf.Tensor:
    """Return 1 for equal points and 0 otherwise, [M, Ma]; duplicates are matched in order."""

    def equal(X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(tf.equal(X[:, None, :], X2), axis=-1)  # [m, n]

    def occurrence(X: tf.Tensor) -> tf.Tensor:
        """
        Count the earlier points equal to each point, with itself, [n]; in floating point, for every
        device.
        """
        return tf.reduce_sum(tf.linalg.band_part(tf.cast(equal(X, X), X.dtype), -1, 0), axis=-1)

    return tf.cast(equal(Z, Z_old) & tf.equal(occurrence(Z)[:, None], occurrence(Z_old)), Z.dtype)
