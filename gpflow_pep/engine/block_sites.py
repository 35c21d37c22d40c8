"""Sites of blocks: the matrix form of `sites.py`, in which the inverse of Sigma replaces the precision 1/v.

Notation for a chunk of G blocks of b rows, n rows in all: V = L^-1 Kuf [M, n], also as Vt [G, b, M],
D = m (Kff - V'V) [G, b, b], S the diagonal noise, Sigma = S + noise D, X = S^-1/2 D S^-1/2 [G, b, b].
"""

import tensorflow as tf
from typing_extensions import override

from ..maths.linalg import (
    cholesky,
    inverse_of_product,
    log_det,
    symmetric_product,
    triangular_solve,
)
from .covariances import with_checked_variance
from .penalty import ADVICE, log1p_ratio, log_det_ratio, penalty_factor
from .rows import Rows
from .sites import Powers, RowSums, SiteRule, derivative_in_scale, weighted_sums


class BlockSites(SiteRule):
    """One site per block; any noise, any penalty, one latent function."""

    @override
    def given_u(self, L: tf.Tensor, rows: Rows) -> tuple[tf.Tensor, tf.Tensor]:
        V = triangular_solve(L, rows.Kuf)
        Vt = _in_blocks(tf.transpose(V), rows.Kff)
        D = rows.Kff - symmetric_product(Vt, Vt)
        D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(rows.Kff), L)
        return V, rows.scale[..., None, None] * D

    @override
    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        factor = self._factor_of_noise(D, rows, powers)
        U = _flat(tf.linalg.triangular_solve(factor, _in_blocks(tf.transpose(V), D)))  # [n, M]
        rho = _flat(tf.linalg.triangular_solve(factor, _in_blocks(rows.residual, D)))  # [n, P]
        unit = tf.ones(tf.shape(U)[:1], U.dtype)
        sums = weighted_sums(tf.transpose(U), unit, rho, self.penalty(D, rows, powers))
        return sums._replace(log_noise=tf.reduce_sum(log_det(factor)))

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(
            powers.weight * log_det_ratio(powers.penalty_power, _relative(D, rows))
        )

    @override
    def times(
        self, V: tf.Tensor, D: tf.Tensor, D_bar: tf.Tensor, scale: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        Kff_bar = 0.5 * scale[..., None, None] * (D_bar + tf.linalg.matrix_transpose(D_bar))
        VD = tf.transpose(_flat(tf.matmul(Kff_bar, _in_blocks(tf.transpose(V), D))))
        return Kff_bar, VD, derivative_in_scale(tf.reduce_sum(D * D_bar, axis=[1, 2]), scale)

    @override
    def leave_one_out_terms(
        self, L: tf.Tensor, rows: Rows, powers: Powers
    ) -> tuple[tf.Tensor, ...]:
        """Leaving row n out subtracts p_n p_n' / p_nn from Sigma^-1 = [..., p_n, ...]."""
        V, D = self.given_u(L, rows)
        precision = inverse_of_product(self._factor_of_noise(D, rows, powers))  # [G, b, b]
        noise = 1.0 / tf.linalg.diag_part(precision)  # [G, b]
        both = tf.transpose(V), rows.residual
        e, residual = (
            _flat(noise[..., None] * tf.matmul(precision, _in_blocks(values, D))) for values in both
        )
        return V, _variance(D, rows), tf.transpose(e), tf.reshape(noise, [-1]), residual

    def _factor_of_noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        """Cholesky factor of Sigma, [G, b, b]."""
        S = tf.linalg.diag(tf.reshape(rows.noise, tf.shape(D)[:2]))
        Sigma = S + powers.noise_power[..., None, None] * D
        return cholesky(Sigma, name="a block of the site noise", advice=ADVICE)


class StructuredBlockSites(BlockSites):
    """Sites of single rows, v = s, and the penalty of blocks, the sum of weight log|I + X|: powers 0 and 1."""

    @override
    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        return weighted_sums(V, 1.0 / rows.noise, rows.residual, self.penalty(D, rows, powers))

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(
            powers.weight * log_det(penalty_factor(powers.penalty_power, _relative(D, rows)))
        )

    @override
    def leave_one_out_terms(
        self, L: tf.Tensor, rows: Rows, powers: Powers
    ) -> tuple[tf.Tensor, ...]:
        V, D = self.given_u(L, rows)
        return V, _variance(D, rows), V, rows.noise, rows.residual


class SphericalBlockSites(StructuredBlockSites):
    """Blocks of b rows with one m each, at its optimum: the penalty is the sum of weight b log(1 + tr X / b)."""

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        size = tf.cast(tf.shape(D)[-1], D.dtype)
        traces = tf.linalg.trace(_relative(D, rows))
        return tf.reduce_sum(powers.weight * log1p_ratio(powers.penalty_power / size, traces))


class SharedBlockSites(StructuredBlockSites):
    """Blocks of one size b with one M: the penalty is the sum of X_b, [b, b], of which the bound takes one log det."""

    def __init__(self, size: int):
        self._size = size

    @override
    def zero(self, L: tf.Tensor, num_outputs: int) -> RowSums:
        return (
            super()
            .zero(L, num_outputs)
            ._replace(penalty=tf.zeros([self._size, self._size], L.dtype))
        )

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(_relative(D, rows), axis=0)


def _relative(D: tf.Tensor, rows: Rows) -> tf.Tensor:
    """X = S^-1/2 D S^-1/2, [G, b, b]."""
    root = tf.math.rsqrt(tf.reshape(rows.noise, tf.shape(D)[:2]))
    return root[:, :, None] * D * root[:, None, :]


def _variance(D: tf.Tensor, rows: Rows) -> tf.Tensor:
    """diag(D)/m, the variance of f given u without the scale, [n]."""
    return tf.reshape(tf.nn.relu(tf.linalg.diag_part(D)) / rows.scale[..., None], [-1])


def _in_blocks(values: tf.Tensor, D: tf.Tensor) -> tf.Tensor:
    """[n, K] -> [G, b, K], as the blocks of D."""
    return tf.reshape(values, tf.concat([tf.shape(D)[:2], tf.shape(values)[1:]], 0))


def _flat(values: tf.Tensor) -> tf.Tensor:
    """[G, b, K] -> [n, K]."""
    return tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], 0))
