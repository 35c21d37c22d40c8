"""
Sites of blocks: the matrix form of `sites.py`, in which the inverse of Sigma replaces the precision
1/v.

Notation for a chunk of G blocks of b rows, n rows in all: V = L^-1 Kuf [M, n], also as Vt [G, b,
M], D = m (Kff - V'V) [G, b, b], S the diagonal noise, Sigma = S + noise D, X = S^-1/2 D S^-1/2 [G,
b, b].
"""

import tensorflow as tf
from typing_extensions import override

from ..maths.linalg import (
    cholesky,
    inverse_of_product,
    log_det,
    plus_identity,
    symmetric_product,
    symmetrized,
)
from ..runtime import Tensors, WithGradient, once_differentiable
from .covariances import conditional_covariance_of_f, with_checked_variance
from .gaussian import RowSums, log1p_ratio
from .rows import Rows
from .sites import Powers, SiteRule, given_u

# Of k X; below it the penalty is a series of four terms, whose first neglected term is at most as
# large as the rounding error of the closed form.
_SERIES_BELOW = 1e-3
_ADVICE = (
    "a larger noise variance, a larger jitter of Kuu, smaller blocks, or looking for repeated rows "
    "in a block"
)


class _SitesOfBlocks(SiteRule):
    """Rows in blocks [G, b], given one latent function u; by default sites of single rows, v = s."""

    @override
    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return rows.noise

    @override
    def _covariance_given_u(self, V: tf.Tensor, L: tf.Tensor, rows: Rows) -> tf.Tensor:
        Vt = _in_blocks(tf.transpose(V), rows.Kff)
        D = conditional_covariance_of_f(rows.Kff, Vt)
        D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(rows.Kff), L)
        return rows.scale[..., None, None] * D

    @override
    def _variance_given_u(self, D: tf.Tensor, rows: Rows) -> tf.Tensor:
        return tf.reshape(tf.nn.relu(tf.linalg.diag_part(D)) / rows.scale[..., None], [-1])


class BlockSites(_SitesOfBlocks):
    """The sites and the penalty of :class:`Powers`, one for each block, for one latent function."""

    @override
    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        blocks = _in_blocks(tf.transpose(V), D), _in_blocks(rows.residual, D)
        A, c, quadratic, log_noise = block_sums(*blocks, self.noise(D, rows, powers))
        penalty = self.penalty(D, rows, powers)
        return RowSums(A, c, quadratic, log_noise, penalty, self._none_shared(V))

    @override
    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        S = tf.linalg.diag(tf.reshape(rows.noise, tf.shape(D)[:2]))
        return S + powers.noise_power[..., None, None] * D

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(
            powers.weight * log_det_ratio(powers.penalty_power, _relative(D, rows))
        )

    @override
    def leave_one_out_terms(self, L: tf.Tensor, rows: Rows, powers: Powers) -> Tensors:
        """Leaving row n out subtracts p_n p_n' / p_nn from Sigma^-1 = [..., p_n, ...]."""
        V, D = given_u(self, L, rows)
        precision = inverse_of_product(_factor_of_noise(self.noise(D, rows, powers)))
        noise = 1.0 / tf.linalg.diag_part(precision)  # [G, b]
        both = tf.transpose(V), rows.residual
        e, residual = (
            _flat(noise[..., None] * tf.matmul(precision, _in_blocks(values, D))) for values in both
        )
        return (
            V,
            self._variance_given_u(D, rows),
            tf.transpose(e),
            tf.reshape(noise, [-1]),
            residual,
        )


@tf.custom_gradient
def block_sums(Vt: tf.Tensor, r: tf.Tensor, Sigma: tf.Tensor) -> WithGradient:
    """
    Compute A, c, quadratic and log_noise of blocks with Vt [G, b, M], residuals r [G, b, P] and
    site noise Sigma [G, b, b].
    """
    factor = _factor_of_noise(Sigma)
    U = _flat(tf.linalg.triangular_solve(factor, Vt))  # [n, M]
    rho = _flat(tf.linalg.triangular_solve(factor, r))  # [n, P]
    Ut = tf.transpose(U)

    def gradient(A: tf.Tensor, c: tf.Tensor, quadratic: tf.Tensor, log_noise: tf.Tensor) -> Tensors:
        precision = inverse_of_product(factor)
        PV = tf.matmul(precision, Vt)  # [G, b, M]
        Pr = tf.matmul(precision, r)  # [G, b, P]
        PVA = tf.matmul(PV, A + tf.transpose(A))
        Pc = tf.matmul(PV, c) + quadratic * Pr  # [G, b, P]
        # The derivative in Sigma is log_noise P - P (V' A V + V' c r' + quadratic r r') P, made
        # symmetric, with P = Sigma^-1.
        bar = 0.5 * tf.matmul(PVA, PV, transpose_b=True) + tf.matmul(Pc, Pr, transpose_b=True)
        Sigma_bar = log_noise * precision - symmetrized(bar)
        r_bar = Pc + quadratic * Pr
        return PVA + tf.matmul(Pr, c, transpose_b=True), r_bar, Sigma_bar

    return (
        symmetric_product(Ut, Ut),
        tf.matmul(Ut, rho),
        tf.reduce_sum(tf.square(rho)),
        tf.reduce_sum(log_det(factor)),
    ), gradient


def _factor_of_noise(Sigma: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of Sigma, [G, b, b]."""
    return cholesky(Sigma, name="a block of the site noise", advice=_ADVICE)


class StructuredBlockSites(_SitesOfBlocks):
    """
    Sites of single rows, v = s, and the penalty of blocks, the sum of weight log|I + X|: powers 0
    and 1.
    """

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(
            powers.weight * log_det(penalty_factor(powers.penalty_power, _relative(D, rows)))
        )


class SphericalBlockSites(_SitesOfBlocks):
    """
    Blocks of b rows with one m each, at its optimum: the penalty is the sum of weight b log(1 + tr
    X / b).
    """

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        size = tf.cast(tf.shape(D)[-1], D.dtype)
        traces = tf.linalg.trace(_relative(D, rows))
        return tf.reduce_sum(powers.weight * log1p_ratio(powers.penalty_power / size, traces))


class SharedBlockSites(_SitesOfBlocks):
    """
    Blocks of one size b with one M: no penalty, but the sum of X_b, of which the bound takes one
    log det.
    """

    def __init__(self, size: int):
        self._size = size

    @override
    def zero(self, L: tf.Tensor, num_outputs: int) -> RowSums:
        shared = tf.zeros([self._size, self._size], L.dtype)
        return super().zero(L, num_outputs)._replace(shared=shared)

    @override
    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        shared = tf.reduce_sum(_relative(D, rows), axis=0)
        return super().forward(V, D, rows, powers)._replace(shared=shared)


def _relative(D: tf.Tensor, rows: Rows) -> tf.Tensor:
    """X = S^-1/2 D S^-1/2, [G, b, b]."""
    root = tf.math.rsqrt(tf.reshape(rows.noise, tf.shape(D)[:2]))
    return root[:, :, None] * D * root[:, None, :]


def _in_blocks(values: tf.Tensor, D: tf.Tensor) -> tf.Tensor:
    """[n, K] -> [G, b, K], as the blocks of D."""
    return tf.reshape(values, tf.concat([tf.shape(D)[:2], tf.shape(values)[1:]], 0))


def _flat(values: tf.Tensor) -> tf.Tensor:
    """[G, b, K] -> [n, K]."""
    return tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], 0))


@tf.custom_gradient
def log_det_ratio(power: tf.Tensor, X: tf.Tensor) -> WithGradient:
    """
    Compute log det(I + power X) / power, [G], of symmetric X [G, b, b], power [] or [G]; the trace
    if power is 0.
    """
    X2 = tf.matmul(X, X)
    t1, t2, t3, t4 = tf.linalg.trace(X), _dot(X, X), _dot(X, X2), _dot(X2, X2)
    series = t1 - power * (t2 / 2.0 - power * (t3 / 3.0 - power * t4 / 4.0))
    factor = penalty_factor(power, X)
    direct = tf.math.divide_no_nan(log_det(factor), power)

    def gradient(bar: tf.Tensor) -> tuple[None, tf.Tensor]:
        return None, *once_differentiable(bar[:, None, None] * inverse_of_product(factor))

    return tf.where(
        (power == 0.0) | (power * tf.sqrt(t2) < _SERIES_BELOW), series, direct
    ), gradient


def _dot(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """tr(X Y) of symmetric matrices [G, b, b]: [G]."""
    return tf.reduce_sum(X * Y, axis=[-2, -1])


def penalty_factor(power: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of I + power X with power [] or [G], [G, b, b]."""
    matrix = plus_identity(power[..., None, None] * X)
    return cholesky(matrix, name="a block of the penalty", advice=_ADVICE)
