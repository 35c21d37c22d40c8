"""
Sums over rows in chunks, forward and backward, in memory that does not depend on the number of
rows.

The backward pass recomputes each chunk: the sites give the derivatives in its rows, automatic
differentiation the rest.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from ..maths.linalg import (
    by_products,
    cholesky_adjoint,
    column_products,
    condition,
    plus_identity,
    symmetrized,
    triangular_solve,
)
from ..runtime import Tensors, WithGradient, once_differentiable, repeated
from .chunks import Chunk, Part
from .gaussian import RowSums, SiteSums
from .rows import RegressionRows, Rows, cast, watched
from .sites import IndependentSites, Powers, SiteRule, adjoint, given_u, linear_adjoint

# Estimated relative change of the site noise. Among 576 settings (four kernels, six lengthscales,
# four noises, alpha 0, 0.5 and 1; N = 6,000, M = 100, D = 4 and 8) 294 are below this value; their
# relative errors are at most 2e-6 in the objective, 2e-3 in the gradient of each parameter, and
# 1e-4 in the norm of the gradient.
_MAX_ERROR = 0.02
# LinearAdjoint uses one product up to this value of (largest / smallest diagonal entry of L)^2 max
# diag A, a measure of cond(Kuu) times the precision of the sites. Its relative error was never
# above machine epsilon times that: 1e-7 here.
_WELL_CONDITIONED = 5e8
# From the derivatives in the sums to L' L_bar, its lower triangle, and the derivatives in sources
# and variables.
PullBack = Callable[[RowSums, Sequence[tf.Variable]], Tensors]


def accumulate_sums(
    rows: RegressionRows,
    sites: SiteRule,
    powers: Powers,
    *,
    Kuu: tf.Tensor,
    factorize: Callable[[tf.Tensor], tf.Tensor],
    mixed_precision: bool = False,
) -> tuple[SiteSums, RowSums]:
    """
    Compute the sums over all rows, and the terms that only the evidence needs; both are
    differentiable once in `Kuu` [M, M], ``rows.inputs`` and ``rows.variables``.

    :param powers: define sites and penalty; not differentiated.
    :param factorize: Cholesky factorization of Kuu.
    :param mixed_precision: compute chunks in single precision, and add them up in double precision,
        if that is accurate enough (:class:`MixedPrecisionRows`), every row is a block and there are
        several chunks.
    """
    factor = factorize(Kuu)  # returned with its own gradient; the sums below treat it as constant
    L = tf.stop_gradient(factor)
    chunk = rows.only_chunk
    if chunk is not None:
        sources = tuple(rows(chunk))
        forward = partial(_one_chunk, sites, powers, L)
    else:
        if mixed_precision and type(sites) is IndependentSites and L.dtype == tf.float64:
            rows = MixedPrecisionRows(rows, L)
        fixed = tuple(variable for variable in rows.variables if not variable.trainable)
        # TensorFlow passes trainable variables to the gradient. Fixed variables must be arguments:
        # otherwise a tape that watches them would get the derivative through Kuu only.
        sources = (*rows.inputs, *map(tf.convert_to_tensor, fixed))
        forward = partial(_many_chunks, sites, powers, L, rows, fixed)

    @tf.custom_gradient
    def summed(Kuu: tf.Tensor, *sources: tf.Tensor) -> WithGradient:
        sums, pull_back = forward(sources)

        def gradient(*sums_bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            bar = RowSums(*sums_bar)
            bar = bar._replace(A=symmetrized(bar.A))  # as A is
            # With V = L^-1 Kuf the derivative in L is -L^-T sum V_bar V'; here it is multiplied by
            # L'.
            LtL_bar, *sources_bar = pull_back(bar, variables)
            Kuu_bar, *sources_bar = once_differentiable(cholesky_adjoint(L, LtL_bar), *sources_bar)
            return (Kuu_bar, *sources_bar[: len(sources)]), list(sources_bar[len(sources) :])

        return tuple(sums), gradient

    sums = RowSums(*summed(Kuu, *sources))
    return SiteSums(factor, sums.A, sums.c), sums


def _one_chunk(
    sites: SiteRule, powers: Powers, L: tf.Tensor, sources: Sequence[tf.Tensor]
) -> tuple[RowSums, PullBack]:
    """Sum all rows, `sources`, at once; V is stored for the backward pass."""
    rows = Rows(*sources)
    V, D = given_u(sites, L, rows)
    sums = sites.forward(V, D, rows, powers)

    def pull_back(bar: RowSums, variables: Sequence[tf.Variable]) -> Tensors:
        def general() -> Tensors:
            with repeated():
                product, rows_bar, own_bar = adjoint(sites, L, V, rows, powers, bar, variables)
            return product, *rows_bar, *own_bar

        if not (by_products(L) and _may_be_linear(sites, powers, rows.scale)):
            return general()
        # Outside of tf.cond, so that it shares the inverse of L with V.
        linear, LtL_bar, scale_bar = linear_adjoint(L, sums, powers, rows.scale, bar)
        return tuple(
            tf.cond(
                _is_linear(powers) & _is_well_conditioned(L, sums.A),
                lambda: (LtL_bar, *linear.from_product(rows)._replace(scale=scale_bar)),
                general,
            )
        )

    return sums, pull_back


def _may_be_linear(sites: SiteRule, powers: Powers, scale: tf.Tensor) -> bool:
    """Return whether :class:`LinearAdjoint` applies if the powers are 0."""
    return type(sites) is IndependentSites and all(
        value.shape.rank == 0 for value in (scale, *powers)
    )


def _is_linear(powers: Powers) -> tf.Tensor:
    return (powers.noise_power == 0.0) & (powers.penalty_power == 0.0)


def _is_well_conditioned(L: tf.Tensor, A: tf.Tensor) -> tf.Tensor:
    return condition(L) * tf.reduce_max(tf.linalg.diag_part(A)) < _WELL_CONDITIONED


def _many_chunks(
    sites: SiteRule,
    powers: Powers,
    L: tf.Tensor,
    rows: RegressionRows,
    fixed: Sequence[tf.Variable],
    sources: Sequence[tf.Tensor],
) -> tuple[RowSums, PullBack]:
    """Sum chunk after chunk; `sources`: ``rows.inputs`` and the values of the `fixed` variables."""
    inputs = sources[: len(rows.inputs)]

    def part(chunk: Chunk) -> Tensors:
        values = rows(chunk, *inputs)
        L_, powers_ = cast((L, chunk.take_blocks(powers)), chunk.dtype)
        sums = sites.forward(*given_u(sites, L_, values), values, powers_)
        return *sums, tf.constant(float(values.Kuf.dtype != L.dtype), values.Kuf.dtype)

    *total, num_single = rows.sum_over_chunks(
        part, (*sites.zero(L, rows.num_outputs), tf.zeros([], L.dtype))
    )
    sums = RowSums(*total)

    def pull_back(bar: RowSums, variables: Sequence[tf.Variable]) -> Tensors:
        watched_sources = [*inputs, *fixed, *variables]
        zeros = [tf.zeros_like(source) for source in watched_sources]

        def general() -> Tensors:
            def part(chunk: Chunk) -> Tensors:
                with repeated():
                    values, pull_back = watched(rows, chunk, inputs, watched_sources)
                    L_, powers_, bar_ = cast((L, chunk.take_blocks(powers), bar), chunk.dtype)
                    V = triangular_solve(L_, values.Kuf)
                    product, rows_bar, own_bar = adjoint(
                        sites, L_, V, values, powers_, bar_, variables
                    )
                sources_bar = pull_back(rows_bar)
                first = len(sources_bar) - len(variables)
                return product, *sources_bar[:first], *map(tf.add, sources_bar[first:], own_bar)

            return rows.sum_over_chunks(part, (tf.zeros_like(L), *zeros))

        def linear() -> Tensors:
            # Derivatives through A and the rows cancel if Kuu is ill-conditioned: both need V of
            # one precision.
            by_one_product = _is_well_conditioned(L, sums.A) & (num_single == 0.0)
            in_single = isinstance(rows, MixedPrecisionRows)
            by_hand, LtL_bar, own_scale_bar = linear_adjoint(
                L, sums, powers, scale, bar, by_one_product, in_single=in_single
            )

            def part(chunk: Chunk) -> Tensors:
                with repeated():
                    values, pull_back = watched(rows, chunk, inputs, watched_sources)
                return pull_back(cast(by_hand, chunk.dtype).of_rows(values, in_single=in_single))

            scale_bar, *others_bar = rows.sum_over_chunks(part, zeros)
            return LtL_bar, scale_bar + own_scale_bar, *others_bar

        scale = inputs[0]
        if _may_be_linear(sites, powers, scale):
            return tuple(tf.cond(_is_linear(powers), linear, general))
        return general()

    return sums, pull_back


class MixedPrecisionRows(RegressionRows):
    """
    Rows in single precision, in chunks in which rounding V = L^-1 Kuf hardly changes the site
    noise.
    """

    def __init__(self, rows: RegressionRows, L: tf.Tensor):
        """Take the Cholesky factor L of Kuu, [M, M]."""
        vars(self).update(vars(rows))  # a copy of `rows`, with its tensors
        self._dtype = L.dtype
        # Largest prior variance of u, [].
        self._variance = tf.reduce_max(tf.reduce_sum(tf.square(L), axis=-1))
        # tr Kuu^-1, [].
        inverse = triangular_solve(L, plus_identity(tf.zeros_like(L)))
        self._inverse_trace = tf.reduce_sum(tf.square(inverse))
        self._largest = tf.stop_gradient(self._largest_residual())

    @override
    def sum_over_chunks(self, part: Part, zero: Sequence[tf.Tensor]) -> Tensors:
        def in_precision(chunk: Chunk) -> Tensors:
            rows = self(chunk)  # a graph prunes the unused Kuf
            suffices = self.suffices(rows)
            single = chunk._replace(dtype=tf.float32)
            return tuple(
                tf.cond(
                    suffices,
                    lambda: cast(tuple(part(single)), self._dtype),
                    lambda: tuple(part(chunk)),
                )
            )

        return super().sum_over_chunks(in_precision, zero)

    def _largest_residual(self) -> tf.Tensor:
        """
        Return nearly the largest |r|/σ of all rows, []: the norm of order 8, which chunks and
        workers add up.
        """

        def part(chunk: Chunk) -> tuple[tf.Tensor]:
            noise, residual = self.noise_and_residual(chunk, self.inputs[1])
            return (tf.reduce_sum(tf.square(tf.square(tf.square(residual) / noise[:, None]))),)

        return super().sum_over_chunks(part, (tf.zeros([], self._dtype),))[0] ** 0.125

    def suffices(self, rows: Rows) -> tf.Tensor:
        """
        Return whether single precision hardly changes site noise and posterior mean, and does not
        overflow, [].
        """
        # Rounding errors are relative to the largest prior variance; V amplifies them by cond(Kuu),
        # about k tr Kuu^-1.
        k = tf.maximum(self._variance, tf.reduce_max(rows.Kff))
        noise = tf.reduce_min(rows.noise)
        # Below a condition number of 200 the rounding error of Kff - diag(V'V) dominates, about eps
        # k.
        condition = tf.maximum(k * self._inverse_trace, 200.0)
        is_short = (
            tf.config.get_visible_devices("GPU")
            and tf.config.experimental.tensor_float_32_execution_enabled()
        )
        # TensorFloat-32 has 10 bits.
        eps = 2.0**-10 if is_short else float(np.finfo(np.float32).eps)
        error = eps * condition * k * tf.maximum(tf.reduce_max(rows.scale), 1.0) / noise
        # Rows at one place add n equal terms to A and c: the sums have relative errors of about
        # sqrt(n) eps, the mean |r| times as much, and its standard deviation is sqrt(noise/n).
        squares = tf.reduce_mean(tf.square(rows.residual) / rows.noise[:, None], axis=0)
        of_sums = (
            eps * tf.cast(tf.shape(rows.residual)[0], k.dtype) * tf.sqrt(tf.reduce_max(squares))
        )
        # The row of any chunk with the largest |r|/σ moves the mean by as many standard deviations.
        # Rounding of A, through V, changes that.
        of_mean = eps * tf.sqrt(condition * k / noise) * self._largest
        proper = (noise > 1e-8) & (tf.reduce_min(rows.scale) > 1e-30)
        sizes = tf.stack([k, tf.reduce_max(rows.noise), tf.reduce_max(tf.abs(rows.residual))])
        # Products of variances, residuals and precisions up to 1e8 do not overflow.
        worst = tf.reduce_max(tf.stack([error, of_sums, of_mean]))
        return (worst < _MAX_ERROR) & tf.reduce_all(sizes < 1e8) & proper


def collapsed_leave_one_out(
    rows: RegressionRows, sites: SiteRule, powers: Powers, sums: SiteSums
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Compute y_n - mean [N, P] and variance [N] of the prediction of each row given the others, at
    fixed parameters.

    Leaving row n out subtracts e e'/v from B and e r/v from c (`SiteRule.leave_one_out_terms`).
    With s_VV = V'B^-1 V, s_Ve = V'B^-1 e and s_ee = e'B^-1 e,

        mean = V'b - s_Ve (r - e'b)/(v - s_ee),    variance = d + s_VV + s_Ve²/(v - s_ee) + noise.
    """
    L, LB, b = sums.posterior()

    def part(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
        values = rows(chunk)
        V, d, e, v, r = sites.leave_one_out_terms(L, values, chunk.take_blocks(powers))
        TV, Te = tf.linalg.triangular_solve(LB, V), tf.linalg.triangular_solve(LB, e)  # [M, n]
        cavity_variance = v - column_products(Te, Te)
        cross = column_products(TV, Te)
        surprise = (r - tf.matmul(e, b, transpose_a=True)) / cavity_variance[:, None]  # [n, P]
        mean = tf.matmul(V, b, transpose_a=True) - cross[:, None] * surprise
        variance = d + column_products(TV, TV) + tf.square(cross) / cavity_variance + values.noise
        return values.residual - mean, variance

    found = rows.chunked.concatenate(part, L.dtype, [[None, b.shape[1]], [None]])
    errors, variances = map(rows.chunked.in_order_of_data, found)
    return errors, variances
