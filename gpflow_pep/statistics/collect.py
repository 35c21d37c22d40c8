"""Rows -> sums in chunks, forward and backward, in memory that does not depend on the number of rows.

The objective is a function of the sums, and the sums are differentiated here by hand, chunk by chunk: what a chunk
needs is computed again on the way back rather than kept, and only the derivatives of its rows with respect to kernel,
inducing variable, likelihood and mean function are left to automatic differentiation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .chunks import Chunks
from .independent import IndependentSites, LinearAdjoint
from .rows import RowSource
from .sites import ChunkSums, Powers, Sites, Sums

# Chunks whose rows may be in work at the same time: a triangular solve keeps one core busy, so a second one helps.
_CHUNKS_IN_FLIGHT = 3
# (largest / smallest diagonal entry of L)^2, a lower bound of cond(Kuu), up to which LinearAdjoint is used.
_WELL_CONDITIONED = 1e9


def collect(
    rows: RowSource,
    chunks: Chunks,
    sites: Sites,
    powers: Powers,
    *,
    Kuu: tf.Tensor,
    scale: tf.Tensor,
    factorise: Callable[[tf.Tensor], tf.Tensor],
) -> Sums:
    """
    The sums over all rows, differentiable once with respect to `Kuu`, `scale`, ``rows.inputs`` and every trainable
    variable that the rows read.

    :param Kuu: covariance of the inducing variables, [..., M, M].
    :param scale: m of the structured conditional M = m I, [].
    :param factorise: Cholesky factorisation of Kuu.
    """

    factor = factorise(Kuu)  # differentiable on its own, for those who use the factor itself
    L = tf.stop_gradient(factor)

    @tf.custom_gradient
    def summed(Kuu: tf.Tensor, scale: tf.Tensor, *inputs: tf.Tensor) -> Any:
        def forward(chunk: tf.Tensor) -> ChunkSums:
            return sites.forward(L, rows(chunk, *inputs), _of_chunk(powers, chunks, chunk), scale)

        sums = _add_up(rows.num_chunks(), forward, sites.zero(L, rows.num_outputs))

        def gradient(*sums_bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            bar = ChunkSums(*sums_bar)
            sources = [*inputs, *variables]
            zeros = [tf.zeros_like(source) for source in sources]

            def general() -> tuple[tf.Tensor, ...]:
                def adjoint(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
                    with tf.GradientTape(watch_accessed_variables=False) as tape:
                        tape.watch(sources)
                        values = rows(chunk, *inputs)
                    part = sites.adjoint(L, values, _of_chunk(powers, chunks, chunk), scale, bar)
                    return part.VDV, part.scale, *_pull_back(tape, values, part.rows, sources)

                start = (tf.zeros_like(L), tf.zeros_like(L[..., 0, 0]), *zeros)
                return _add_up(rows.num_chunks(), adjoint, start)

            def linear() -> tuple[tf.Tensor, ...]:
                rows_adjoint = LinearAdjoint(L, powers, bar)

                def adjoint(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
                    with tf.GradientTape(watch_accessed_variables=False) as tape:
                        tape.watch(sources)
                        values = rows(chunk, *inputs)
                    return _pull_back(tape, values, rows_adjoint(values), sources)

                VDV = (powers.weight * bar.penalty)[..., None, None] * sums.A
                return VDV, tf.zeros_like(bar.penalty), *_add_up(rows.num_chunks(), adjoint, tuple(zeros))

            if isinstance(sites, IndependentSites) and all(power.shape.rank == 0 for power in powers):
                VDV, scale_bar, *source_bars = tf.cond(_is_linear(L, powers), linear, general)
            else:
                VDV, scale_bar, *source_bars = general()

            # V = L^-1 Kuf makes the derivative in L: -L^-T sum V_bar V', of which L' is taken next.
            VV = 2.0 * (tf.matmul(bar.A, sums.A) - VDV) + tf.matmul(bar.c, sums.c, transpose_b=True)
            Kuu_bar = _cholesky_adjoint(L, -VV)
            return (Kuu_bar, tf.reduce_sum(scale_bar), *source_bars[: len(inputs)]), source_bars[len(inputs) :]

        return tuple(sums), gradient

    return Sums(factor, *summed(Kuu, scale, *rows.inputs))


def _is_linear(L: tf.Tensor, powers: Powers) -> tf.Tensor:
    diagonal = tf.linalg.diag_part(L)
    spread = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
    well_conditioned = tf.reduce_max(spread) < _WELL_CONDITIONED
    return (powers.noise == 0.0) & (powers.penalty == 0.0) & well_conditioned


def _cholesky_adjoint(L: tf.Tensor, middle: tf.Tensor) -> tf.Tensor:
    """
    Derivative in K = L L' from L' L_bar: sym(L^-T Phi(L' L_bar) L^-1), Phi the lower triangle with half the diagonal
    (Murray 2016, eq. 10). The upper triangle of L_bar never matters, since L' times it is strictly upper triangular.
    """
    Phi = tf.linalg.band_part(middle, -1, 0)
    Phi = tf.linalg.set_diag(Phi, 0.5 * tf.linalg.diag_part(Phi))
    Phi = 0.5 * (Phi + tf.linalg.matrix_transpose(Phi))
    half = tf.linalg.triangular_solve(L, Phi, adjoint=True)  # L^-T Phi
    return tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True)


def _of_chunk(powers: Powers, chunks: Chunks, chunk: tf.Tensor) -> Powers:
    return Powers(*(chunks.take_blocks(power, chunk) for power in powers))


def _pull_back(
    tape: tf.GradientTape, values: Any, values_bar: Any, sources: Sequence[tf.Tensor | tf.Variable]
) -> tuple[tf.Tensor, ...]:
    """Derivatives in `sources` of what the tape saw computed, given those in the values."""
    pulled = tape.gradient(tuple(values), sources, tuple(values_bar), tf.UnconnectedGradients.ZERO)
    return tuple(tf.convert_to_tensor(gradient) for gradient in pulled)


def _add_up(count: tf.Tensor, part: Callable[[tf.Tensor], Any], zero: Any) -> Any:
    """Sum of part(0), ..., part(count - 1)."""

    def step(chunk: tf.Tensor, total: Any) -> tuple[tf.Tensor, Any]:
        return chunk + 1, tf.nest.map_structure(lambda a, b: tf.ensure_shape(a + b, a.shape), total, part(chunk))

    start = (tf.constant(0), zero)
    return tf.while_loop(lambda chunk, _: chunk < count, step, start, parallel_iterations=_CHUNKS_IN_FLIGHT)[1]
