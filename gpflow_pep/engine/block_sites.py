"""Sites of blocks: the matrix form of independent.py, in which w = 1/v becomes the inverse of Sigma.

Notation, G blocks of b rows in a chunk: V = (L^-1 Kuf)' as [G, b, M], D = Kff - V V' [G, b, b], S the diagonal noise,
Sigma = S + noise m D. A trailing _bar is the derivative of the objective with respect to that quantity.
"""

from typing import NamedTuple

import tensorflow as tf
from typing_extensions import override

from ..maths.linalg import cholesky, inverse_of_product, symmetric_product
from .penalty import ADVICE, log_det_ratio, log_det_ratio_slope, penalty_factor
from .rows import Rows, with_checked_variance
from .sites import (
    ChunkAdjoint,
    ChunkSums,
    LeaveOneOutTerms,
    Powers,
    SiteAlgebra,
    weighted,
    weighted_adjoint,
    weighted_sums,
)


class _Quantities(NamedTuple):
    V: tf.Tensor  # [G, b, M]
    D: tf.Tensor  # [G, b, b]
    s: tf.Tensor  # [G, b]
    r: tf.Tensor  # [G, b, P]
    factor: tf.Tensor  # [G, b, b], Cholesky factor of Sigma


def _quantities(L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> _Quantities:
    groups, size = tf.unstack(tf.shape(rows.Kff)[:2])
    V = tf.linalg.matrix_transpose(tf.linalg.triangular_solve(L, rows.Kuf))  # [n, M]
    V = tf.reshape(V, [groups, size, tf.shape(L)[-1]])
    D = rows.Kff - tf.matmul(V, V, transpose_b=True)
    D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(rows.Kff), L)
    s = tf.reshape(rows.noise, [groups, size])
    r = tf.reshape(rows.residual, [groups, size, rows.residual.shape[-1]])
    Sigma = tf.linalg.diag(s) + (powers.noise_power * scale)[..., None, None] * D
    return _Quantities(V, D, s, r, cholesky(Sigma, name="a block of the site noise", advice=ADVICE))


def _relative(D: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
    """S^-1/2 D S^-1/2, [G, b, b]."""
    root = tf.sqrt(s)
    return D / (root[:, :, None] * root[:, None, :])


def _penalty_adjoint(
    powers: Powers, scale: tf.Tensor, D: tf.Tensor, s: tf.Tensor, bar: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Derivatives of the penalty in D [G, b, b], s [G, b] and the power [G], with Pi = (S + penalty m D)^-1."""
    power = powers.penalty_power * scale
    weight = bar * powers.weight
    factor = cholesky(tf.linalg.diag(s) + power[..., None, None] * D, name="a block of the penalty", advice=ADVICE)
    Pi = inverse_of_product(factor)
    s_bar = -weight[..., None] * tf.reduce_sum(D * Pi, axis=-1) / s
    return weight[..., None, None] * Pi, s_bar, weight * log_det_ratio_slope(power, _relative(D, s))


def _flat(values: tf.Tensor) -> tf.Tensor:
    """[G, b, K] -> [n, K]."""
    return tf.reshape(values, [-1, tf.shape(values)[-1]])


class BlockSites(SiteAlgebra):
    """One site a block; any noise, any penalty, one latent function."""

    @override
    def quantities(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> _Quantities:
        return _quantities(L, rows, powers, scale)

    @override
    def forward(self, quantities: _Quantities, rows: Rows, powers: Powers, scale: tf.Tensor) -> ChunkSums:
        V, D, s, r, factor = quantities
        U = _flat(tf.linalg.triangular_solve(factor, V))  # [n, M]
        rho = _flat(tf.linalg.triangular_solve(factor, r))  # [n, P]
        return ChunkSums(
            A=tf.matmul(U, U, transpose_a=True),
            c=tf.matmul(U, rho, transpose_a=True),
            quadratic=tf.reduce_sum(tf.square(rho)),
            log_noise=2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor))),
            penalty=tf.reduce_sum(powers.weight * log_det_ratio(powers.penalty_power * scale, _relative(D, s))),
        )

    @override
    def adjoint(
        self, L: tf.Tensor, quantities: _Quantities, rows: Rows, powers: Powers, scale: tf.Tensor, bar: ChunkSums
    ) -> ChunkAdjoint:
        V, D, s, r, factor = quantities
        VA = tf.matmul(V, bar.A)  # [G, b, M]
        Vc = tf.matmul(V, bar.c)  # [G, b, P]
        precision = inverse_of_product(factor)
        e = tf.matmul(precision, r)  # [G, b, P]

        W_bar = tf.matmul(VA, V, transpose_b=True) + tf.matmul(Vc + bar.quadratic * r, r, transpose_b=True)
        Sigma_bar = bar.log_noise * precision - tf.matmul(precision, tf.matmul(_symmetric(W_bar), precision))
        D_bar, s_bar, in_power = _penalty_adjoint(powers, scale, D, s, bar.penalty)
        D_bar += (powers.noise_power * scale)[..., None, None] * Sigma_bar
        V_bar = 2.0 * (tf.matmul(precision, VA) - tf.matmul(D_bar, V)) + tf.matmul(e, bar.c, transpose_b=True)
        m_bar = (
            powers.noise_power * tf.reduce_sum(Sigma_bar * D, axis=[-2, -1]) + powers.penalty_power * in_power
        )  # [G]
        return ChunkAdjoint(
            rows=Rows(
                Kuf=tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(_flat(V_bar)), adjoint=True),
                Kff=D_bar,
                noise=tf.reshape(tf.linalg.diag_part(Sigma_bar) + s_bar, [-1]),
                residual=_flat(tf.matmul(precision, Vc) + 2.0 * bar.quadratic * e),
            ),
            VDV=tf.matmul(_flat(V), _flat(tf.matmul(D_bar, V)), transpose_a=True),
            scale=tf.reduce_sum(m_bar),
        )

    @override
    def leave_one_out_terms(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> LeaveOneOutTerms:
        """With Sigma^-1 = [..., p_n, ...], without row n it is less by p_n p_n' / p_nn."""
        V, D, _, r, factor = _quantities(L, rows, powers, scale)
        precision = inverse_of_product(factor)  # [G, b, b]
        noise = 1.0 / tf.linalg.diag_part(precision)  # [G, b]
        e, residual = (_flat(noise[..., None] * tf.matmul(precision, values)) for values in (V, r))
        conditional_variance = tf.reshape(tf.nn.relu(tf.linalg.diag_part(D)), [-1])
        return LeaveOneOutTerms(
            tf.transpose(_flat(V)), conditional_variance, tf.transpose(e), tf.reshape(noise, [-1]), residual
        )


def _symmetric(X: tf.Tensor) -> tf.Tensor:
    return 0.5 * (X + tf.linalg.matrix_transpose(X))


# Sites of the structured bounds in blocks: those of SGPR, v = s, and a penalty on D = Kff - V'V, block by block.
#
# Notation, G blocks of b rows, n in all, in a chunk: V = L^-1 Kuf [M, n], S = diag(s), X = S^-1/2 D S^-1/2 [G, b, b].
# A trailing _bar is the derivative of the objective with respect to that quantity.


class _StructuredQuantities(NamedTuple):
    V: tf.Tensor  # [M, n]
    Vt: tf.Tensor  # [G, b, M]
    D: tf.Tensor  # [G, b, b]
    root: tf.Tensor  # S^-1/2, [G, b]


def _structured_quantities(L: tf.Tensor, rows: Rows) -> _StructuredQuantities:
    V = tf.linalg.triangular_solve(L, rows.Kuf)
    blocks = tf.shape(rows.Kff)[:2]
    Vt = tf.reshape(tf.transpose(V), tf.concat([blocks, tf.shape(V)[:1]], 0))
    D = rows.Kff - symmetric_product(Vt, Vt)
    D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(rows.Kff), L)
    return _StructuredQuantities(V, Vt, D, tf.reshape(tf.math.rsqrt(rows.noise), blocks))


def _scaled(root: tf.Tensor, D: tf.Tensor) -> tf.Tensor:
    """S^-1/2 D S^-1/2."""
    return root[:, :, None] * D * root[:, None, :]


class StructuredBlockSites(SiteAlgebra):
    """The penalty is the sum of weight log|I + X|; the noise power is 0, the penalty's and the scale m are 1."""

    @override
    def quantities(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> _StructuredQuantities:
        return _structured_quantities(L, rows)

    @override
    def forward(self, quantities: _StructuredQuantities, rows: Rows, powers: Powers, scale: tf.Tensor) -> ChunkSums:
        V, _, D, root = quantities
        w = 1.0 / rows.noise
        return weighted_sums(V, weighted(V, w), w, rows.residual, self._penalty(_scaled(root, D), powers.weight))

    @override
    def adjoint(
        self,
        L: tf.Tensor,
        quantities: _StructuredQuantities,
        rows: Rows,
        powers: Powers,
        scale: tf.Tensor,
        bar: ChunkSums,
    ) -> ChunkAdjoint:
        V, Vt, D, root = quantities
        w = 1.0 / rows.noise
        half_V_bar, v_bar, r_bar = weighted_adjoint(V, weighted(V, w), w, rows.residual, bar)
        D_bar = _scaled(root, self._penalty_adjoint(_scaled(root, D), powers.weight, bar.penalty))  # [G, b, b]
        VD = tf.transpose(tf.reshape(tf.matmul(D_bar, Vt), [-1, tf.shape(V)[0]]))  # V D_bar, [M, n]
        of_penalty = tf.reshape(tf.reduce_sum(D_bar * D, axis=-1), [-1])  # minus s times the derivative in s
        return ChunkAdjoint(
            rows=Rows(
                Kuf=tf.linalg.triangular_solve(0.5 * L, half_V_bar - VD, adjoint=True),
                Kff=D_bar,
                noise=v_bar - of_penalty / rows.noise,
                residual=r_bar,
            ),
            VDV=symmetric_product(VD, V),
            scale=tf.zeros_like(scale),
        )

    @override
    def leave_one_out_terms(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> LeaveOneOutTerms:
        V, _, D, _ = _structured_quantities(L, rows)
        conditional_variance = tf.reshape(tf.nn.relu(tf.linalg.diag_part(D)), [-1])
        return LeaveOneOutTerms(V, conditional_variance, V, rows.noise, rows.residual)

    def _penalty(self, X: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        return 2.0 * tf.reduce_sum(weight * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(_factor(X))), axis=-1))

    def _penalty_adjoint(self, X: tf.Tensor, weight: tf.Tensor, bar: tf.Tensor) -> tf.Tensor:
        """The derivative in X, [G, b, b]."""
        return (bar * weight)[..., None, None] * inverse_of_product(_factor(X))


class SharedBlockSites(StructuredBlockSites):
    """
    Blocks of one size b that share one structured conditional M: instead of a penalty a block, the sum of X_b [b, b],
    of which the bound takes one log det.
    """

    def __init__(self, size: int):
        self._size = size

    @override
    def zero(self, L: tf.Tensor, num_outputs: int) -> ChunkSums:
        return super().zero(L, num_outputs)._replace(penalty=tf.zeros([self._size, self._size], L.dtype))

    @override
    def _penalty(self, X: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(X, axis=0)

    @override
    def _penalty_adjoint(self, X: tf.Tensor, weight: tf.Tensor, bar: tf.Tensor) -> tf.Tensor:
        return 0.5 * (bar + tf.linalg.matrix_transpose(bar)) + tf.zeros_like(X)


def _factor(X: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of I + X."""
    return penalty_factor(tf.ones([], X.dtype), X)
