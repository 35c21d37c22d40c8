"""
Sums (L, A, c) over Gaussian sites: sufficient statistics for posterior, predictions and the old
posterior's site.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..maths.linalg import cholesky, inverse_of_product, log_det, triangular_solve
from ..runtime.custom_gradients import WithGradient, once_differentiable
from .sites import RowSums

_ADVICE = (
    "a larger noise variance, fewer or better spread inducing points, or "
    "gpflow.config.set_default_jitter"
)


def factorize_B(A: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of B = I + A, the precision of the whitened q(v), [..., M, M]."""
    return cholesky(precision_B(A), name="B = I + V diag(1/v) V'", advice=_ADVICE)


def precision_B(A: tf.Tensor) -> tf.Tensor:
    """B = I + A, [..., M, M]."""
    return tf.linalg.set_diag(A, 1.0 + tf.linalg.diag_part(A))


class InducingPosterior(NamedTuple):
    """q(v) = N(b, B^-1) of the whitened inducing variables, u = L v."""

    L: tf.Tensor  # Cholesky factor of Kuu, [M, M] or [C, M, M]
    LB: tf.Tensor  # Cholesky factor of B, [..., M, M]
    b: tf.Tensor  # B^-1 c, [..., M, P]


class OldPosteriorSite(NamedTuple):
    """The site of a stream's old posterior: its part of the sums and of the log evidence."""

    A: tf.Tensor  # [..., M, M]
    c: tf.Tensor  # [..., M, P]
    terms: tf.Tensor  # Added to the log evidence besides the effect of A and c, []


class SiteSums(NamedTuple):
    """
    The sums over all Gaussian sites exp(h w - τ w²/2) on w = V'v, V = L^-1 Kuf, u = L v, Kuu = L
    L'. Leading dimensions are [] if P outputs share q's covariance, or [C] with P = 1; then L may
    be shared.
    """

    L: tf.Tensor  # Cholesky factor of Kuu, [M, M] or [C, M, M]
    A: tf.Tensor  # V diag(τ) V', [..., M, M]
    c: tf.Tensor  # V h, [..., M, P]

    def plus(self, A: tf.Tensor, c: tf.Tensor) -> "SiteSums":
        """Add sites on the same inducing variables."""
        return self._replace(A=self.A + A, c=self.c + c)

    def with_old(self, old: OldPosteriorSite | None) -> "SiteSums":
        """Add the site of an old posterior, if there is one."""
        return self if old is None else self.plus(old.A, old.c)

    def is_proper(self) -> tf.Tensor:
        """Return whether B = I + A is positive definite, []."""
        return tf.reduce_all(tf.math.is_finite(tf.linalg.cholesky(precision_B(self.A))))

    def posterior(self) -> InducingPosterior:
        """Compute q(v), with B = I + A; raise an error if B is not positive definite."""
        LB = factorize_B(self.A)
        return InducingPosterior(self.L, LB, tf.linalg.cholesky_solve(LB, self.c))


def log_gaussian(sums: SiteSums, row_sums: RowSums, num_data: tf.Tensor) -> tf.Tensor:
    """
    Compute the Gaussian log density log N(r; 0, V'V + v) from the sums, summed over P outputs,
    [...].

        -P/2 (N log 2 pi + log det v + log det B) - (r' v^-1 r - c' B^-1 c)/2,     B = I + A

    Its derivative in A is -(P B^-1 + b b')/2, in c it is b = B^-1 c.
    """
    P = (
        tf.cast(tf.shape(sums.c)[-1], sums.c.dtype)
        if sums.c.shape[-1] is None
        else float(sums.c.shape[-1])
    )
    constant = np.log(2.0 * np.pi) * tf.cast(num_data, sums.c.dtype)

    @tf.custom_gradient
    def value(
        A: tf.Tensor, c: tf.Tensor, quadratic: tf.Tensor, log_noise: tf.Tensor
    ) -> WithGradient:
        factor = factorize_B(A)
        whitened = triangular_solve(factor, c)  # [..., M, P]
        distance = quadratic - tf.reduce_sum(tf.square(whitened), axis=[-2, -1])

        def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
            b = triangular_solve(factor, whitened, adjoint=True)
            covariance = P * inverse_of_product(factor) + tf.matmul(b, b, transpose_b=True)
            half = -0.5 * bar
            of_matrix = half if bar.shape.rank == 0 else half[..., None, None]
            return once_differentiable(of_matrix * covariance, -2.0 * of_matrix * b, half, P * half)

        return -0.5 * (P * (constant + log_noise + log_det(factor)) + distance), gradient

    return value(sums.A, sums.c, row_sums.quadratic, row_sums.log_noise)


def mahalanobis(sums: SiteSums, row_sums: RowSums) -> tf.Tensor:
    """r' (V'V + v)^-1 r = r' v^-1 r - c' B^-1 c, summed over outputs, [...]."""
    return row_sums.quadratic - tf.reduce_sum(sums.c * sums.posterior().b, axis=[-2, -1])
