"""Rows -> sums in chunks, forward and backward: compiled, in memory that does not depend on the number of rows.

The objective is a function of the sums, and the sums are differentiated here by hand, chunk by chunk: what a chunk
needs is computed again on the way back rather than kept, and only the derivatives of its rows with respect to kernel,
inducing variable, likelihood and mean function are left to automatic differentiation.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..derivatives import once_differentiable
from ..linalg import cholesky_adjoint
from .chunks import AllRows, Chunks
from .independent import IndependentSites, LinearAdjoint
from .mixed_precision import single_precision_suffices
from .rows import Rows, RowSource, watched
from .site_algebra import ChunkSums, EvidenceTerms, Powers, SiteAlgebra
from .sums import SiteSums

# LinearAdjoint is used up to this value of (largest / smallest diagonal entry of L)^2 max diag A, a measure of
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
        that is accurate enough (:func:`single_precision_suffices`), if rows are blocks of their own, the noise is
        constant and there are several chunks.
    """
    factor = factorize(Kuu)  # differentiable by itself, for those who use it
    L = tf.stop_gradient(factor)
    passes = _passes(rows, chunks, sites, powers, L, mixed_precision)

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
    rows: RowSource, chunks: Chunks, sites: SiteAlgebra, powers: Powers, L: tf.Tensor, mixed_precision: bool
) -> "_OneChunk | _ManyChunks | _MixedPrecision":
    if isinstance(chunks, AllRows):
        return _OneChunk(rows, chunks, sites, powers, L)
    passes = _ManyChunks(rows, chunks, sites, powers, L, L.dtype)
    one_each = isinstance(sites, IndependentSites)
    if not (mixed_precision and one_each and rows.constant_noise is not None and L.dtype == tf.float64):
        return passes
    suffices = ~rows.any(~single_precision_suffices(L, rows.constant_noise))
    return _MixedPrecision(passes._replace(dtype=tf.float32), passes, suffices)


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
    dtype: tf.DType  # of what is computed from the rows of a chunk; sums have the type of L

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
        sums = self.sums(scale, sources)

        def pull_back(bar: ChunkSums, variables: Sequence[tf.Variable]) -> tuple[tf.Tensor, ...]:
            every = self.differentiated(sources, variables)
            if not self.may_be_linear:
                return self.general(scale, every, bar)
            return tuple(
                tf.cond(
                    self.is_linear(sums.A),
                    lambda: self.linear(every, sums, bar),
                    lambda: self.general(scale, every, bar),
                )
            )

        return sums, pull_back

    def sums(self, scale: tf.Tensor, sources: Sequence[tf.Tensor]) -> ChunkSums:
        """The sums."""
        inputs, L, m = sources[: len(self.rows.inputs)], self._cast(self.L), self._cast(scale)

        def part(chunk: Any) -> ChunkSums:
            rows, powers = self._rows(chunk, *inputs), self._powers(chunk)
            return self.sites.forward(self.sites.quantities(L, rows, powers, m), rows, powers, m)

        return ChunkSums(*self._sum(part, self.sites.zero(self.L, self.rows.num_outputs)))

    def differentiated(
        self, sources: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
    ) -> list[tf.Tensor | tf.Variable]:
        """All that the rows are differentiated in."""
        return [*sources[: len(self.rows.inputs)], *self._fixed(), *variables]

    def general(
        self, scale: tf.Tensor, sources: Sequence[tf.Tensor | tf.Variable], bar: ChunkSums
    ) -> tuple[tf.Tensor, ...]:
        """VDV and the derivatives in the scale and the sources."""
        inputs, L, m, bar = sources[: len(self.rows.inputs)], *map(self._cast, (self.L, scale)), self._cast_all(bar)

        def part(chunk: Any) -> tuple[tf.Tensor, ...]:
            rows, pull_back = watched(self._rows, chunk, inputs, sources)
            powers = self._powers(chunk)
            adjoint = self.sites.adjoint(L, self.sites.quantities(L, rows, powers, m), rows, powers, m, bar)
            return adjoint.VDV, adjoint.scale, *pull_back(adjoint.rows)

        zero = (tf.zeros_like(self.L), tf.zeros_like(self.L[..., 0, 0]), *map(tf.zeros_like, sources))
        return self._sum(part, zero)

    def linear(
        self, sources: Sequence[tf.Tensor | tf.Variable], sums: ChunkSums, bar: ChunkSums
    ) -> tuple[tf.Tensor, ...]:
        """The same by :class:`LinearAdjoint`."""
        inputs, adjoint = sources[: len(self.rows.inputs)], LinearAdjoint(self.L, self.powers, bar)

        def part(chunk: Any) -> tuple[tf.Tensor, ...]:
            rows, pull_back = watched(self._rows, chunk, inputs, sources)
            return pull_back(adjoint(rows))

        derivatives = self._sum(part, [tf.zeros_like(source) for source in sources])
        return adjoint.VDV(sums.A), tf.zeros_like(bar.penalty), *derivatives

    @property
    def may_be_linear(self) -> bool:
        """Whether the sites and the shapes of the powers are those of :class:`LinearAdjoint`."""
        return isinstance(self.sites, IndependentSites) and all(power.shape.rank == 0 for power in self.powers)

    def is_linear(self, A: tf.Tensor) -> tf.Tensor:
        """Whether :class:`LinearAdjoint` applies and is accurate."""
        diagonal = tf.linalg.diag_part(self.L)
        spread = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
        precision = tf.reduce_max(tf.linalg.diag_part(A), axis=-1)
        well_conditioned = tf.reduce_max(spread * precision) < _WELL_CONDITIONED
        is_linear = (self.powers.noise_power == 0.0) & (self.powers.penalty_power == 0.0) & well_conditioned
        return ~self.rows.any(~is_linear)  # workers may differ in the last digit, and must go the same way

    def _rows(self, chunk: Any, *inputs: tf.Tensor) -> Rows:
        return Rows(*map(self._cast, self.rows(chunk, *inputs)))

    def _powers(self, chunk: Any) -> Powers:
        return Powers(*(self._cast(self.chunks.take_blocks(power, chunk)) for power in self.powers))

    def _sum(self, part: Callable[[Any], Any], zero: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        def cast_back(chunk: Any) -> list[tf.Tensor]:
            return [tf.cast(value, start.dtype) for value, start in zip(part(chunk), zero, strict=True)]

        return self.rows.sum_over_chunks(cast_back, zero)

    def _cast(self, value: tf.Tensor) -> tf.Tensor:
        return tf.cast(value, self.dtype)

    def _cast_all(self, bar: ChunkSums) -> ChunkSums:
        return ChunkSums(*map(self._cast, bar))


class _MixedPrecision(NamedTuple):
    """Chunks in single precision where that is accurate enough, and otherwise in double precision."""

    single: _ManyChunks
    double: _ManyChunks
    suffices: tf.Tensor  # Whether single precision does, []

    def sources(self) -> tuple[tf.Tensor, ...]:
        """Those of either."""
        return self.double.sources()

    def forward(self, scale: tf.Tensor, sources: Sequence[tf.Tensor]) -> tuple[ChunkSums, PullBack]:
        """The same as that of :class:`_ManyChunks`."""
        single, double = self.single, self.double
        sums = ChunkSums(
            *tf.cond(
                self.suffices, lambda: tuple(single.sums(scale, sources)), lambda: tuple(double.sums(scale, sources))
            )
        )

        def pull_back(bar: ChunkSums, variables: Sequence[tf.Variable]) -> tuple[tf.Tensor, ...]:
            every = double.differentiated(sources, variables)

            def general() -> tuple[tf.Tensor, ...]:
                return tuple(
                    tf.cond(
                        self.suffices,
                        lambda: single.general(scale, every, bar),
                        lambda: double.general(scale, every, bar),
                    )
                )

            if not double.may_be_linear:
                return general()
            return tuple(tf.cond(double.is_linear(sums.A), lambda: double.linear(every, sums, bar), general))

        return sums, pull_back
