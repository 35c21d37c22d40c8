"""Sites of the structured bounds in blocks: those of SGPR, v = s, and a penalty on D = Kff - V'V, block by block.

Notation, G blocks of b rows, n in all, in a chunk: V = L^-1 Kuf [M, n], S = diag(s), X = S^-1/2 D S^-1/2 [G, b, b].
A trailing _bar is the derivative of the objective with respect to that quantity.
"""

from typing import NamedTuple

import tensorflow as tf
from typing_extensions import override

from ..linalg import inverse_of_product, symmetric_product
from .conditional_variance import with_checked_variance
from .independent import weighted, weighted_adjoint, weighted_sums
from .penalty import penalty_factor
from .rows import Rows
from .site_algebra import ChunkAdjoint, ChunkSums, LeaveOneOutTerms, Powers, SiteAlgebra


class _Quantities(NamedTuple):
    V: tf.Tensor  # [M, n]
    Vt: tf.Tensor  # [G, b, M]
    D: tf.Tensor  # [G, b, b]
    root: tf.Tensor  # S^-1/2, [G, b]


def _quantities(L: tf.Tensor, rows: Rows) -> _Quantities:
    V = tf.linalg.triangular_solve(L, rows.Kuf)
    blocks = tf.shape(rows.Kff)[:2]
    Vt = tf.reshape(tf.transpose(V), tf.concat([blocks, tf.shape(V)[:1]], 0))
    D = rows.Kff - symmetric_product(Vt, Vt)
    D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(rows.Kff), L)
    return _Quantities(V, Vt, D, tf.reshape(tf.math.rsqrt(rows.noise), blocks))


def _scaled(root: tf.Tensor, D: tf.Tensor) -> tf.Tensor:
    """S^-1/2 D S^-1/2."""
    return root[:, :, None] * D * root[:, None, :]


class StructuredBlockSites(SiteAlgebra):
    """The penalty is the sum of weight log|I + X|; the noise power is 0, the penalty's and the scale m are 1."""

    @override
    def quantities(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> _Quantities:
        return _quantities(L, rows)

    @override
    def forward(self, quantities: _Quantities, rows: Rows, powers: Powers, scale: tf.Tensor) -> ChunkSums:
        V, _, D, root = quantities
        w = 1.0 / rows.noise
        return weighted_sums(V, weighted(V, w), w, rows.residual, self._penalty(_scaled(root, D), powers.weight))

    @override
    def adjoint(
        self, L: tf.Tensor, quantities: _Quantities, rows: Rows, powers: Powers, scale: tf.Tensor, bar: ChunkSums
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
        V, _, D, _ = _quantities(L, rows)
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
