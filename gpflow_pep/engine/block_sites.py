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
    symmetric_product,
)
from .covariances import with_checked_variance
from .penalty import ADVICE, log1p_ratio, log_det_ratio, penalty_factor
from .rows import Rows
from .sites import Powers, RowSums, SiteRule, given_u, weighted_sums


class _SitesOfBlocks(SiteRule):
    """Rows in blocks [G, b], given one latent function u."""

    @override
    def _covariance_given_u(self, V: tf.Tensor, L: tf.Tensor, rows: Rows) -> tf.Tensor:
        Vt = _in_blocks(tf.transpose(V), rows.Kff)
        D = rows.Kff - symmetric_product(Vt, Vt)
        D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(rows.Kff), L)
        return rows.scale[..., None, None] * D

    @override
    def _variance_given_u(self, D: tf.Tensor, rows: Rows) -> tf.Tensor:
        return tf.reshape(tf.nn.relu(tf.linalg.diag_part(D)) / rows.scale[..., None], [-1])


class BlockSites(_SitesOfBlocks):
    """The sites and the penalty of :class:`Powers`, one for each block, for one latent function."""

    @override
    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        factor = self._factor_of_noise(D, rows, powers)  # [G, b, b]
        U = _flat(tf.linalg.triangular_solve(factor, _in_blocks(tf.transpose(V), D)))  # [n, M]
        rho = _flat(tf.linalg.triangular_solve(factor, _in_blocks(rows.residual, D)))  # [n, P]
        unit = tf.ones(tf.shape(U)[:1], U.dtype)
        sums = weighted_sums(tf.transpose(U), unit, rho, self.penalty(D, rows, powers))
        return sums._replace(log_noise=tf.reduce_sum(log_det(factor)))

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
    def leave_one_out_terms(
        self, L: tf.Tensor, rows: Rows, powers: Powers
    ) -> tuple[tf.Tensor, ...]:
        """Leaving row n out subtracts p_n p_n' / p_nn from Sigma^-1 = [..., p_n, ...]."""
        V, D = given_u(self, L, rows)
        precision = inverse_of_product(self._factor_of_noise(D, rows, powers))  # [G, b, b]
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

    def _factor_of_noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        """Cholesky factor of Sigma, [G, b, b]."""
        return cholesky(
            self.noise(D, rows, powers), name="a block of the site noise", advice=ADVICE
        )


class StructuredBlockSites(_SitesOfBlocks):
    """
    Sites of single rows, v = s, and the penalty of blocks, the sum of weight log|I + X|: powers 0
    and 1.
    """

    @override
    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return rows.noise

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(
            powers.weight * log_det(penalty_factor(powers.penalty_power, _relative(D, rows)))
        )


class SphericalBlockSites(StructuredBlockSites):
    """
    Blocks of b rows with one m each, at its optimum: the penalty is the sum of weight b log(1 + tr
    X / b).
    """

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        size = tf.cast(tf.shape(D)[-1], D.dtype)
        traces = tf.linalg.trace(_relative(D, rows))
        return tf.reduce_sum(powers.weight * log1p_ratio(powers.penalty_power / size, traces))


class SharedBlockSites(StructuredBlockSites):
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

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.zeros([], D.dtype)


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
