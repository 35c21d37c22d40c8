"""Rows -> sums in chunks, forward and backward: compiled, in memory that does not depend on the number of rows.

The objective is a function of the sums, and the sums are differentiated here by hand, chunk by chunk: what a chunk
needs is computed again on the way back rather than kept, and only the derivatives of its rows with respect to kernel,
inducing variable, likelihood and mean function are left to automatic differentiation.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..maths.linalg import cholesky_adjoint, column_products
from ..runtime.custom_gradients import once_differentiable
from .chunks import AllRows, Chunks
from .gaussian import SiteSums
from .rows import RegressionRows, Rows, RowSource, watched
from .sites import ChunkSums, EvidenceTerms, IndependentSites, LinearAdjoint, Powers, SiteAlgebra

# When a chunk of rows may be computed in single precision, while sums over chunks are in double precision.

# Estimated relative change of the site noise. Of 576 settings (four kernels, six lengthscales, four noises, alpha 0,
# 0.5 and 1; N = 6,000, M = 100, D = 4 and 8) 294 are below this value; there the objective errs by 2e-6 of itself at
# most, the gradient in each parameter by 2e-3 of itself, and the gradient as a whole by 1e-4.
_MAX_ERROR = 0.02
# Below this condition number the rounding of Kff - diag(V'V) itself, about eps k, is what counts.
_LEAST_CONDITION = 200.0
_LARGEST = 1e8  # of residuals, variances and precisions, whose products must not overflow


class SinglePrecision(NamedTuple):
    """Estimate of how much rounding V = L^-1 Kuf to single precision changes the site noise."""

    variance: tf.Tensor  # Largest prior variance of u, []
    inverse_trace: tf.Tensor  # tr Kuu^-1, []
    scale: tf.Tensor  # m of the structured conditional, []

    @classmethod
    def of_factor(cls, L: tf.Tensor, scale: tf.Tensor) -> "SinglePrecision":
        """
        Return the estimate for inducing variables of covariance Kuu = L L', L [..., M, M].

        :param scale: m, [].
        """
        inverse = tf.linalg.triangular_solve(L, tf.eye(tf.shape(L)[-1], batch_shape=tf.shape(L)[:-2], dtype=L.dtype))
        return cls(
            tf.reduce_max(tf.reduce_sum(tf.square(L), axis=-1)),  # of the diagonal of Kuu
            tf.reduce_max(tf.reduce_sum(tf.square(inverse), axis=[-2, -1])),
            scale,
        )

    def suffices(self, rows: Rows) -> tf.Tensor:
        """
        Whether single precision changes the site noise s + m diag(Kff - V'V) of a chunk of rows little, [].

        Rounding errors are those of the largest prior variance k of u and of the rows. Those of V are amplified by the
        condition of Kuu, which k tr Kuu^-1 estimates. Single precision does not suffice for numbers that may overflow.
        """
        k = tf.maximum(self.variance, tf.reduce_max(rows.Kff))
        noise, largest_noise = tf.reduce_min(rows.noise), tf.reduce_max(rows.noise)
        condition = tf.maximum(k * self.inverse_trace, _LEAST_CONDITION)
        error = np.finfo(np.float32).eps * condition * k * tf.maximum(self.scale, 1.0) / noise
        in_range = (
            (tf.reduce_max(tf.abs(rows.residual)) < _LARGEST)
            & (tf.maximum(k, largest_noise) < _LARGEST)
            & (_LARGEST * noise > 1.0)
        )
        return (error < _MAX_ERROR) & in_range


# LinearAdjoint uses one product up to this value of (largest / smallest diagonal entry of L)^2 max diag A, a measure of
# cond(Kuu) times the precision of the sites. Its relative error was never above machine epsilon times that: 1e-7 here.
_WELL_CONDITIONED = 5e8


def accumulate_sums(
    rows: RowSource,
    chunks: Chunks,
    sites: SiteAlgebra,
    powers: Powers,
    *,
    Kuu: tf.Tensor,
    scale: tf.Tensor,
    factorize: Callable[[tf.Tensor], tf.Tensor],
    mixed_precision: bool = False,
) -> tuple[SiteSums, EvidenceTerms]:
    """
    The sums over all rows and what the evidence needs besides them.

    Both are differentiable, once, in `Kuu`, `scale`, ``rows.inputs`` and ``rows.variables``.

    :param rows: where rows come from, chunk by chunk.
    :param chunks: how the rows are partitioned.
    :param sites: the algebra of the sites.
    :param powers: which sites and which penalty; not differentiated.
    :param Kuu: covariance of the inducing variables, [..., M, M].
    :param scale: m of the structured conditional M = m I, [].
    :param factorize: Cholesky factorization of Kuu.
    :param mixed_precision: compute with the rows of a chunk in single precision, and add up in double precision, where
        that is accurate enough (:class:`SinglePrecision`), if rows are blocks of their own and not all in one chunk.
    """
    factor = factorize(Kuu)  # differentiable by itself, for those who use it
    L = tf.stop_gradient(factor)
    passes = _passes(rows, chunks, sites, powers, L, tf.stop_gradient(scale), mixed_precision)

    @tf.custom_gradient
    def summed(Kuu: tf.Tensor, scale: tf.Tensor, *sources: tf.Tensor) -> Any:
        sums, pull_back = passes.forward(scale, sources)

        def gradient(*sums_bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            bar = ChunkSums(*sums_bar)
            bar = bar._replace(A=0.5 * (bar.A + tf.linalg.matrix_transpose(bar.A)))  # A is symmetric
            VDV, scale_bar, *sources_bar = pull_back(bar, variables)
            # V = L^-1 Kuf makes the derivative in L: -L^-T sum V_bar V', of which L' is taken next.
            LtL_bar = 2.0 * (VDV - tf.matmul(bar.A, sums.A)) - tf.matmul(bar.c, sums.c, transpose_b=True)
            Kuu_bar, *sources_bar = once_differentiable(cholesky_adjoint(L, LtL_bar), *sources_bar)
            (scale_bar,) = once_differentiable(tf.reduce_sum(scale_bar))  # by itself: nobody may ask for it
            return (Kuu_bar, scale_bar, *sources_bar[: len(sources)]), list(sources_bar[len(sources) :])

        return tuple(sums), gradient

    A, c, *terms = summed(Kuu, scale, *passes.sources())
    return SiteSums(factor, A, c), EvidenceTerms(*terms)


def _passes(
    rows: RowSource,
    chunks: Chunks,
    sites: SiteAlgebra,
    powers: Powers,
    L: tf.Tensor,
    scale: tf.Tensor,
    mixed_precision: bool,
) -> "_OneChunk | _ManyChunks":
    if isinstance(chunks, AllRows):
        return _OneChunk(rows, chunks, sites, powers, L)
    mixed = mixed_precision and isinstance(sites, IndependentSites) and L.dtype == tf.float64
    return _ManyChunks(rows, chunks, sites, powers, L, SinglePrecision.of_factor(L, scale) if mixed else None)


PullBack = Callable[[ChunkSums, Sequence[tf.Variable]], tuple[tf.Tensor, ...]]


class _OneChunk(NamedTuple):
    """All rows in one chunk: ordinary differentiation, which stores what the backward pass needs."""

    rows: RowSource
    chunks: Chunks
    sites: SiteAlgebra
    powers: Powers
    L: tf.Tensor

    def sources(self) -> tuple[tf.Tensor, ...]:
        """The rows."""
        return tuple(self.rows(tf.constant(0), *self.rows.inputs))

    def forward(self, scale: tf.Tensor, sources: Sequence[tf.Tensor]) -> tuple[ChunkSums, PullBack]:
        """The sums, and a function from the derivatives in them to VDV and those in the scale and the rows."""
        rows = Rows(*sources)
        quantities = self.sites.quantities(self.L, rows, self.powers, scale)

        def pull_back(bar: ChunkSums, _: Sequence[tf.Variable]) -> tuple[tf.Tensor, ...]:
            adjoint = self.sites.adjoint(self.L, quantities, rows, self.powers, scale, bar)
            return adjoint.VDV, adjoint.scale, *adjoint.rows

        return self.sites.forward(quantities, rows, self.powers, scale), pull_back


class _ManyChunks(NamedTuple):
    """A forward pass that sums over the chunks, and a backward pass that recomputes each chunk."""

    rows: RowSource
    chunks: Chunks
    sites: SiteAlgebra
    powers: Powers
    L: tf.Tensor
    single: SinglePrecision | None  # Where chunks may be computed in single precision

    def sources(self) -> tuple[tf.Tensor, ...]:
        """
        The inputs of the rows and the variables that are not trainable.

        TensorFlow hands the trainable ones to the gradient; the others must be arguments, or a tape that watches one
        of them would get the derivative through Kuu alone.
        """
        return (*self.rows.inputs, *map(tf.convert_to_tensor, self._fixed()))

    def _fixed(self) -> list[tf.Variable]:
        return [variable for variable in self.rows.variables if not variable.trainable]

    def forward(self, scale: tf.Tensor, sources: Sequence[tf.Tensor]) -> tuple[ChunkSums, PullBack]:
        """The sums, and a function from the derivatives in them to VDV and those in the scale, sources, variables."""
        inputs = sources[: len(self.rows.inputs)]

        def part(chunk: Any) -> tuple[tf.Tensor, ...]:
            def in_precision(dtype: tf.DType) -> tuple[tf.Tensor, ...]:
                rows = self._rows(dtype)(chunk, *inputs)
                L, powers, m = _cast((self.L, self._powers(chunk), scale), dtype)
                values = self.sites.forward(self.sites.quantities(L, rows, powers, m), rows, powers, m)
                is_single = () if self.single is None else (tf.constant(float(dtype == tf.float32)),)
                return tuple(_cast((*values, *is_single), self.L.dtype))

            return self._evaluated(in_precision, chunk, inputs)

        zero: tuple[tf.Tensor, ...] = self.sites.zero(self.L, self.rows.num_outputs)
        zero = tuple(zero) if self.single is None else (*zero, tf.zeros([], self.L.dtype))
        total = self.rows.sum_over_chunks(part, zero)
        num_single = None if self.single is None else total[-1]
        sums = ChunkSums(*total[: len(ChunkSums._fields)])

        def pull_back(bar: ChunkSums, variables: Sequence[tf.Variable]) -> tuple[tf.Tensor, ...]:
            return self._backward(scale, [*inputs, *self._fixed(), *variables], sums, num_single, bar)

        return sums, pull_back

    def _backward(
        self,
        scale: tf.Tensor,
        sources: Sequence[tf.Tensor | tf.Variable],
        sums: ChunkSums,
        num_single: tf.Tensor | None,
        bar: ChunkSums,
    ) -> tuple[tf.Tensor, ...]:
        inputs = sources[: len(self.rows.inputs)]
        zeros = [tf.zeros_like(source) for source in sources]

        def general() -> tuple[tf.Tensor, ...]:
            def part(chunk: Any) -> tuple[tf.Tensor, ...]:
                def in_precision(dtype: tf.DType) -> tuple[tf.Tensor, ...]:
                    rows, pull_back = watched(self._rows(dtype), chunk, inputs, sources)
                    L, powers, m, bars = _cast((self.L, self._powers(chunk), scale, bar), dtype)
                    adjoint = self.sites.adjoint(L, self.sites.quantities(L, rows, powers, m), rows, powers, m, bars)
                    return *_cast((adjoint.VDV, adjoint.scale), self.L.dtype), *pull_back(adjoint.rows)

                return self._evaluated(in_precision, chunk, inputs)

            zero = (tf.zeros_like(self.L), tf.zeros_like(self.L[..., 0, 0]), *zeros)
            return self.rows.sum_over_chunks(part, zero)

        def linear() -> tuple[tf.Tensor, ...]:
            well_conditioned = self._is_well_conditioned(sums.A, num_single)
            in_single = self.single is not None
            adjoint = LinearAdjoint.of(self.L, self.powers, bar, well_conditioned, in_single=in_single)

            def part(chunk: Any) -> tuple[tf.Tensor, ...]:
                def in_precision(dtype: tf.DType) -> tuple[tf.Tensor, ...]:
                    rows, pull_back = watched(self._rows(dtype), chunk, inputs, sources)
                    return pull_back(_cast(adjoint, dtype).of_rows(rows))

                return self._evaluated(in_precision, chunk, inputs)

            return (
                adjoint.VDV(sums.A),
                tf.zeros_like(bar.penalty),
                *self.rows.sum_over_chunks(part, zeros),
            )

        if isinstance(self.sites, IndependentSites) and all(power.shape.rank == 0 for power in self.powers):
            is_linear = (self.powers.noise_power == 0.0) & (self.powers.penalty_power == 0.0)
            return tuple(tf.cond(is_linear, linear, general))
        return general()

    def _is_well_conditioned(self, A: tf.Tensor, num_single: tf.Tensor | None) -> tf.Tensor:
        """Whether the linear adjoint may do with one product, []."""
        diagonal = tf.linalg.diag_part(self.L)
        spread = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
        precision = tf.reduce_max(tf.linalg.diag_part(A), axis=-1)
        accurate = tf.reduce_max(spread * precision) < _WELL_CONDITIONED
        # Derivatives through A and the rows cancel where Kuu is ill-conditioned: both need V of one precision.
        return accurate if num_single is None else accurate & (num_single == 0.0)

    def _powers(self, chunk: Any) -> Powers:
        return Powers(*(self.chunks.take_blocks(power, chunk) for power in self.powers))

    def _rows(self, dtype: tf.DType) -> Callable[..., Rows]:
        """The row source, with all that it returns in one precision."""
        return lambda chunk, *inputs: _cast(self.rows(chunk, *inputs, dtype=dtype), dtype)

    def _evaluated(
        self, in_precision: Callable[[tf.DType], tuple[tf.Tensor, ...]], chunk: Any, inputs: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        """Return what a function computes of a chunk in single precision, where that suffices, or in double."""
        if self.single is None:
            return in_precision(self.L.dtype)
        suffices = self.single.suffices(self.rows(chunk, *inputs))  # without Kuf, which a graph therefore leaves out
        return tuple(tf.cond(suffices, lambda: in_precision(tf.float32), lambda: in_precision(self.L.dtype)))


def _cast(values: Any, dtype: tf.DType) -> Any:
    """The floating point tensors of a structure in another precision."""
    return tf.nest.map_structure(lambda value: tf.cast(value, dtype) if value.dtype.is_floating else value, values)


# Leave-one-out predictions of collapsed regression models, without refitting.


def collapsed_leave_one_out(
    rows: RegressionRows,
    chunks: Chunks,
    sites: SiteAlgebra,
    powers: Powers,
    sums: SiteSums,
    scale: tf.Tensor,
) -> tf.Tensor:
    """
    log N(y_n; mean, variance) of every row given the others, hyperparameters held, summed over outputs, [N].

    Without row n, B is less by e e'/v and c by e r/v (:class:`LeaveOneOutTerms`). With s_VV = V'B^-1 V and so on

        mean = V'b - s_Ve (r - e'b)/(v - s_ee),    variance = d + s_VV + s_Ve²/(v - s_ee) + noise.
    """
    L, LB, b = sums.posterior()

    def part(chunk: Any) -> tuple[tf.Tensor]:
        values = rows(chunk, *rows.inputs)
        V, d, e, v, r = sites.leave_one_out_terms(L, values, _of_chunk(powers, chunks, chunk), scale)
        TV, Te = tf.linalg.triangular_solve(LB, V), tf.linalg.triangular_solve(LB, e)  # [M, n]
        cavity_variance = v - column_products(Te, Te)
        cross = column_products(TV, Te)
        surprise = (r - tf.matmul(e, b, transpose_a=True)) / cavity_variance[:, None]  # [n, P]
        mean = tf.matmul(V, b, transpose_a=True) - cross[:, None] * surprise
        variance = d + column_products(TV, TV) + tf.square(cross) / cavity_variance + values.noise
        squares = tf.square(values.residual - mean) / variance[:, None]
        return (-0.5 * tf.reduce_sum(tf.math.log(2.0 * np.pi * variance)[:, None] + squares, axis=-1),)

    return chunks.in_order_of_data(rows.concatenate(part, L.dtype, [[None]])[0])


def _of_chunk(powers: Powers, chunks: Chunks, chunk: Any) -> Powers:
    return Powers(*(chunks.take_blocks(power, chunk) for power in powers))
