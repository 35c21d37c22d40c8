"""Rows -> sums in chunks, forward and backward: compiled, in memory that does not depend on the number of rows.

The objective is a function of the sums, and the sums are differentiated here by hand, chunk by chunk: what a chunk
needs is computed again on the way back rather than kept, and only the derivatives of its rows with respect to kernel,
inducing variable, likelihood and mean function are left to automatic differentiation.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..derivatives import first_only
from ..linalg import cholesky_adjoint
from .chunks import Chunks, add_up
from .independent import IndependentSites, LinearAdjoint
from .rows import RowSource, watched
from .sites import ChunkSums, EvidenceTerms, Powers, Sites
from .sums import SiteSums

# LinearAdjoint is used up to this value of (largest / smallest diagonal entry of L)^2 max diag A, a measure of
# cond(Kuu) times the precision of the sites. Its relative error was never above machine epsilon times that: 1e-7 here.
_WELL_CONDITIONED = 5e8


def collect(
    rows: RowSource,
    chunks: Chunks,
    sites: Sites,
    powers: Powers,
    *,
    Kuu: tf.Tensor,
    scale: tf.Tensor,
    factorise: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[SiteSums, EvidenceTerms]:
    """
    The sums over all rows and what the evidence needs beside them.

    Both are differentiable, once, in `Kuu`, `scale`, ``rows.inputs`` and ``rows.variables``.

    :param rows: where rows come from, chunk by chunk.
    :param chunks: how the rows are partitioned.
    :param sites: the algebra of the sites.
    :param powers: which sites and which penalty; not differentiated.
    :param Kuu: covariance of the inducing variables, [..., M, M].
    :param scale: m of the structured conditional M = m I, [].
    :param factorise: Cholesky factorisation of Kuu.
    """
    factor = factorise(Kuu)  # differentiable by itself, for those who use it
    L = tf.stop_gradient(factor)
    passes = _Passes(rows, chunks, sites, powers, L)
    # TensorFlow hands the trainable variables to `gradient`; the others must be arguments, or who watches one of them
    # would get the derivative through Kuu alone.
    fixed = [variable for variable in rows.variables if not variable.trainable]

    @tf.custom_gradient
    def summed(Kuu: tf.Tensor, scale: tf.Tensor, *inputs_and_fixed: tf.Tensor) -> Any:
        inputs = inputs_and_fixed[: len(rows.inputs)]
        sums = passes.forward(scale, inputs)

        def gradient(*sums_bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            bar = ChunkSums(*sums_bar)
            bar = bar._replace(A=0.5 * (bar.A + tf.linalg.matrix_transpose(bar.A)))  # A is symmetric
            VDV, scale_bar, *sources_bar = passes.backward(scale, [*inputs, *fixed, *variables], sums, bar)
            # V = L^-1 Kuf makes the derivative in L: -L^-T sum V_bar V', of which L' is taken next.
            VV = 2.0 * (tf.matmul(bar.A, sums.A) - VDV) + tf.matmul(bar.c, sums.c, transpose_b=True)
            bars = first_only(cholesky_adjoint(L, -VV), tf.reduce_sum(scale_bar), *sources_bar)
            num_inputs = 2 + len(inputs_and_fixed)
            return bars[:num_inputs], list(bars[num_inputs:])

        return tuple(sums), gradient

    A, c, *terms = summed(Kuu, scale, *rows.inputs, *map(tf.convert_to_tensor, fixed))
    return SiteSums(factor, A, c), EvidenceTerms(*terms)


class _Passes(NamedTuple):
    """The pass over the chunks that adds up, and the one that goes back."""

    rows: RowSource
    chunks: Chunks
    sites: Sites
    powers: Powers
    L: tf.Tensor

    def forward(self, scale: tf.Tensor, inputs: Sequence[tf.Tensor]) -> ChunkSums:
        def part(chunk: tf.Tensor) -> ChunkSums:
            return self.sites.forward(self.L, self.rows(chunk, *inputs), self._powers(chunk), scale)

        return ChunkSums(*add_up(self.rows.num_chunks(), part, self.sites.zero(self.L, self.rows.num_outputs)))

    def backward(
        self,
        scale: tf.Tensor,
        sources: Sequence[tf.Tensor | tf.Variable],
        sums: ChunkSums,
        bar: ChunkSums,
    ) -> tuple[tf.Tensor, ...]:
        """V D_bar V' and the derivatives in the scale and in the sources: the rows' inputs, then variables."""
        inputs = sources[: len(self.rows.inputs)]
        zeros = [tf.zeros_like(source) for source in sources]

        def general() -> tuple[tf.Tensor, ...]:
            def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
                values, pull_back = watched(self.rows, chunk, inputs, sources)
                adjoint = self.sites.adjoint(self.L, values, self._powers(chunk), scale, bar)
                return adjoint.VDV, adjoint.scale, *pull_back(adjoint.rows)

            return add_up(
                self.rows.num_chunks(), part, (tf.zeros_like(self.L), tf.zeros_like(self.L[..., 0, 0]), *zeros)
            )

        def linear() -> tuple[tf.Tensor, ...]:
            adjoint = LinearAdjoint(self.L, self.powers, bar)

            def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
                values, pull_back = watched(self.rows, chunk, inputs, sources)
                return pull_back(adjoint(values))

            return adjoint.VDV(sums.A), tf.zeros_like(bar.penalty), *add_up(self.rows.num_chunks(), part, tuple(zeros))

        if isinstance(self.sites, IndependentSites) and all(power.shape.rank == 0 for power in self.powers):
            return tuple(tf.cond(self._is_linear(sums.A), linear, general))
        return general()

    def _is_linear(self, A: tf.Tensor) -> tf.Tensor:
        diagonal = tf.linalg.diag_part(self.L)
        spread = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
        precision = tf.reduce_max(tf.linalg.diag_part(A), axis=-1)
        well_conditioned = tf.reduce_max(spread * precision) < _WELL_CONDITIONED
        return (self.powers.noise == 0.0) & (self.powers.penalty == 0.0) & well_conditioned

    def _powers(self, chunk: tf.Tensor) -> Powers:
        return Powers(*(self.chunks.take_blocks(power, chunk) for power in self.powers))
