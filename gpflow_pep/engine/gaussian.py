"""
Sums over Gaussian sites, the evidence that follows from them, and its penalty log det(I + k X) / k,
with its limit at k = 0, without cancellation.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..maths.linalg import (
    cholesky,
    inverse_of_product,
    log_det,
    plus_identity,
    succeeds,
    triangular_solve,
)
from ..runtime import ONE_PROCESS, Tensors, WithGradient, Workers, once_differentiable

_ADVICE = (
    "a larger noise variance, fewer or better spread inducing points, or "
    "gpflow.config.set_default_jitter"
)


def factorize_B(A: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of B = I + A, the precision of the whitened q(v), [..., M, M]."""
    return cholesky(plus_identity(A), name="B = I + V diag(1/v) V'", advice=_ADVICE)


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


class RowSums(NamedTuple):
    """Sums over rows, or derivatives in them; v: site noise, r: residual, V = L^-1 Kuf."""

    A: tf.Tensor  # V diag(1/v) V', [M, M]
    c: tf.Tensor  # V diag(1/v) r, [M, P]
    quadratic: tf.Tensor  # r' diag(1/v) r summed over outputs, []
    log_noise: tf.Tensor  # log det of the site noise, []
    penalty: tf.Tensor  # Subtracted from the evidence, []
    shared: tf.Tensor  # Sum of S^-1/2 D_b S^-1/2 over blocks that share M, [b, b]; otherwise [0, 0]


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
        return succeeds(plus_identity(self.A))

    def posterior(self) -> InducingPosterior:
        """Compute q(v), with B = I + A; raise an error if B is not positive definite."""
        LB = factorize_B(self.A)
        return InducingPosterior(self.L, LB, tf.linalg.cholesky_solve(LB, self.c))


def log_gaussian(sums: SiteSums, row_sums: RowSums, num_data: tf.Tensor) -> tf.Tensor:
    """
    Compute the Gaussian log density log N(r; 0, V'V + v) from the sums, summed over P outputs, [].

        -P/2 (N log 2 pi + log det v + log det B) - (r' v^-1 r - c' B^-1 c)/2,     B = I + A

    Its derivative in A is -(P B^-1 + b b')/2, in c it is b = B^-1 c.
    """
    P = tf.cast(tf.shape(sums.c)[-1], sums.c.dtype)
    constant = np.log(2.0 * np.pi) * tf.cast(num_data, sums.c.dtype)

    @tf.custom_gradient
    def value(
        A: tf.Tensor, c: tf.Tensor, quadratic: tf.Tensor, log_noise: tf.Tensor
    ) -> WithGradient:
        factor = factorize_B(A)
        whitened = triangular_solve(factor, c)  # [M, P]
        distance = quadratic - tf.reduce_sum(tf.square(whitened))

        def gradient(bar: tf.Tensor) -> Tensors:
            b = triangular_solve(factor, whitened, adjoint=True)
            covariance = P * inverse_of_product(factor) + tf.matmul(b, b, transpose_b=True)
            half = -0.5 * bar
            return once_differentiable(half * covariance, -2.0 * half * b, half, P * half)

        return -0.5 * (P * (constant + log_noise + log_det(factor)) + distance), gradient

    return value(sums.A, sums.c, row_sums.quadratic, row_sums.log_noise)


def mahalanobis(sums: SiteSums, row_sums: RowSums) -> tf.Tensor:
    """r' (V'V + v)^-1 r = r' v^-1 r - c' B^-1 c, summed over outputs, []."""
    return row_sums.quadratic - tf.reduce_sum(sums.c * sums.posterior().b)


def log1p_ratio(power: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute log(1 + power x) / power elementwise, x if power is 0; broadcasts."""
    z = power * x
    # Below 1e-30 log(1 + z) is z; a product that underflows must not become 0. A NaN in x stays,
    # also if power is 0.
    return tf.where(
        (power == 0.0) | (tf.abs(z) < 1e-30), x, tf.math.divide_no_nan(tf.math.log1p(z), power)
    )


def scale_terms(
    power: tf.Tensor,
    scale: tf.Tensor,
    num_data: tf.Tensor,
    rows_per_site: tf.Tensor | float = 1.0,
    workers: Workers = ONE_PROCESS,
) -> tf.Tensor:
    """
    Compute the term of the structured conditional q(f|u), with covariance m D, in the evidence of
    T-PEP, [].

        Σ_n { log m - log(1 + α_n (m - 1))/α_n } / 2

    per latent function, for any likelihood: the power-EP term of p(f|u)/q(f|u) (Bui and Titsias
    2025, eqs 38 to 41).

    :param power: α of all rows [], or one for each row or block of this worker, [B].
    :param scale: m, [] or [B].
    :param num_data: number of rows of all workers.
    :param rows_per_site: number of rows of each site, [] or [B].
    """
    count = rows_per_site
    if power.shape.rank == scale.shape.rank == 0:
        count = tf.cast(num_data, scale.dtype)

    @tf.custom_gradient
    def total(scale: tf.Tensor) -> WithGradient:
        mixed = (1.0 - power) + power * scale  # 1 + α (m - 1), without cancellation at small m
        logarithm = tf.math.divide_no_nan(tf.math.log(mixed), power)
        ratio = tf.where(mixed < 0.5, logarithm, log1p_ratio(power, scale - 1.0))
        terms = (0.5 * count) * (tf.math.log(scale) - ratio)
        slopes = (0.5 * count) * (1.0 - power) * (1.0 - scale) / (scale * mixed)
        if terms.shape.rank > 0:
            terms, slope = tf.unstack(
                workers.sum(tf.stack([tf.reduce_sum(terms), tf.reduce_sum(slopes)]))
            )
            slopes = slope if scale.shape.rank == 0 else slopes
        return terms, lambda bar: once_differentiable(bar * slopes)[0]

    return total(scale)


def factored_log_det_ratio(
    factor: tf.Tensor, power: tf.Tensor, trace: tf.Tensor, squares: tf.Tensor
) -> tf.Tensor:
    """
    Compute log det(I + power X) / power, [...], of symmetric X [..., b, b] from a factor of I +
    power X, its trace and tr X², `squares`, [...]; the trace if power is 0. The relative accuracy
    is 1e-10, with two terms of the series.
    """
    series = trace - 0.5 * power * squares
    direct = tf.math.divide_no_nan(log_det(factor), power)
    # The next term is the square of the bound, 1e-5; the rounding error of the logarithm is 1e-16
    # over it.
    return tf.where((power == 0.0) | (power * tf.sqrt(tf.nn.relu(squares)) < 1e-5), series, direct)
