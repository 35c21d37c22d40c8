"""
Power EP with one site for each block of rows (JMLR 18(104), sec. 3.7, for any likelihood).

A block of d rows has f = w + m(x) + N(0, D), w = V'v [d], with D the covariance of f given u times
the scale of T-PEP. Its site is exp(h'w - w'T w/2) with h [d] and a symmetric T [d, d], which are
stacked as [1 + d, d]; smaller blocks are padded by zeros. The formulas are those of `sweep.py` and
`energy.py`, with matrices in place of variances.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf
from typing_extensions import override

from ..engine import (
    Chunk,
    InducingPosterior,
    conditional_covariance_of_f,
    log1p_ratio,
    with_checked_variance,
)
from ..maths.linalg import cholesky_adjoint, plus_identity, symmetric_product
from ..runtime import Tensors, derivatives, watching
from ..tilted.blocks import BlockCavity, BlockObservations, BlockRule, symmetric_root
from .inference import Sites
from .sweep import Iterate, LatentRows, Problem, Sweep


class SitesOfBlocks(Sites):
    """The sites of B blocks: `precision` T [B, d, d] and `linear` h [B, d]."""

    @override
    def stacked(self) -> tf.Tensor:
        return tf.concat([self.linear[:, None], self.precision], axis=1)

    @override
    def assign_stacked(self, values: tf.Tensor) -> None:
        self.precision.assign(values[:, 1:])
        self.linear.assign(values[:, 0])


@dataclass(frozen=True, kw_only=True)
class BlockRows(LatentRows):
    """Blocks of rows; a chunk's data are row numbers [G, d] and a mask, 0 for padding, [G, d]."""

    data: Sequence[tf.Tensor]  # X [N, D] and Y [N, P]
    rule: BlockRule

    def block(self, chunk: Chunk) -> BlockObservations:
        """Return the observations of a chunk's blocks."""
        numbers, mask = chunk.data
        X, Y = (tf.gather(values, numbers) for values in self.data)
        return BlockObservations(X, Y, mask)


class _GivenU(NamedTuple):
    """Blocks given u = L v: f = w + mean + N(0, D)."""

    V: tf.Tensor  # L^-1 Kuf, [M, n]
    D: tf.Tensor  # [G, d, d]; the identity times the scale for padding
    mean: tf.Tensor  # m(x), [G, d]

    def blocks(self, values: tf.Tensor) -> tf.Tensor:
        """Return values [M, n], as V, in blocks, [G, d, M]."""
        return tf.reshape(tf.transpose(values), [-1, self.mean.shape[1], values.shape[0]])


class _Cavities(NamedTuple):
    """q without the fraction α of a site; κ are the eigenvalues of S^1/2 T S^1/2."""

    marginal_mean: tf.Tensor  # μ, [G, d]
    root: tf.Tensor  # S^1/2, [G, d, d]
    kappa: tf.Tensor  # [G, d]
    ratio: tf.Tensor  # The smallest 1 - α κ; the cavity is proper if it is positive, [G]
    factor: tf.Tensor  # F F' is the covariance of w, under q if it is improper, [G, d, d]
    mean: tf.Tensor  # of w, [G, d]
    of_f: BlockCavity
    residual: tf.Tensor  # T μ - h, [G, d]


class BlockSweep(Sweep):
    """A sweep over B blocks: sites [B, 1 + d, d], `mean` μ [B, d], `variance` S^1/2 [B, d, d]."""

    @override
    def normalized(self, change: tf.Tensor) -> tf.Tensor:
        """Return S^1/2 ΔT S^1/2 and S^1/2 (Δh - ΔT μ), [..., B, 1 + d, d]."""
        root = self.variance
        linear = change[..., 0, :] - tf.linalg.matvec(change[..., 1:, :], self.mean)
        scaled = tf.matmul(root, tf.matmul(change[..., 1:, :], root))
        return tf.concat([tf.linalg.matvec(root, linear)[..., None, :], scaled], axis=-2)


@dataclass(frozen=True, kw_only=True)
class BlockProblem(Problem):
    """The quantities that sites of blocks and their energy depend on; `scale` is [] or [B]."""

    rows: BlockRows

    def given_u(self, chunk: Chunk, L: tf.Tensor, scale: tf.Tensor, *inputs: tf.Tensor) -> _GivenU:
        """Condition the blocks of a chunk on u."""
        X, _, mask = self.rows.block(chunk)
        d = X.shape[1]
        X_of_rows = tf.reshape(X, [-1, X.shape[2]])
        Kuf = self.rows.prior.Kuf(X_of_rows, *inputs) * tf.reshape(mask, [-1])
        V = tf.linalg.triangular_solve(L, Kuf)
        pairs = mask[:, :, None] * mask[:, None, :]
        Kff = pairs * self.rows.prior.Kff(X, *inputs) + tf.linalg.diag(1.0 - mask)
        mean = tf.reshape(self.rows.mean(chunk._replace(data=(X_of_rows,))), [-1, d]) * mask
        here = _GivenU(V, Kff, mean)
        D = conditional_covariance_of_f(Kff, here.blocks(V))
        D = with_checked_variance(D, tf.linalg.diag_part(D), tf.linalg.diag_part(Kff), L)
        return here._replace(D=tf.reshape(chunk.take_blocks(scale), [-1, 1, 1]) * D)

    def _here(self, chunk: Chunk) -> _GivenU:
        return self.given_u(chunk, self.L, self.scale, *self.rows.prior.inputs)

    def alpha(self, chunk: Chunk) -> tf.Tensor:
        """Return the power of each block of a chunk, [G]."""
        return self.rows.alpha(chunk) + tf.zeros_like(chunk.data[1][:, 0])  # [G]

    @override
    def no_sweep(self, sites: tf.Tensor) -> Sweep:
        return BlockSweep(*super().no_sweep(sites)._replace(variance=sites[:, 1:]))

    @override
    def sum_sites(self, sites: tf.Tensor) -> Tensors:
        def part(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
            here = self._here(chunk)
            sites_here = chunk.take(sites)
            TV = tf.matmul(sites_here[:, 1:], here.blocks(here.V))  # [G, d, M]
            flat = tf.transpose(tf.reshape(TV, [-1, TV.shape[2]]))  # [M, n]
            c = tf.linalg.matvec(here.V, tf.reshape(sites_here[:, 0], [-1]))
            return symmetric_product(flat, here.V)[None], c[None, :, None]

        zero = tf.zeros_like(self.L)[None]
        return self.rows.sum_over_chunks(part, (zero, zero[..., :1]))

    def cavities(
        self, q: InducingPosterior, here: _GivenU, sites: tf.Tensor, alpha: tf.Tensor
    ) -> _Cavities:
        """Return the cavities of blocks with sites [G, 1 + d, d]."""
        mu, S = marginals(q, here)
        T = sites[:, 1:]
        root = symmetric_root(S)
        kappa, U = tf.linalg.eigh(tf.matmul(root, tf.matmul(T, root)))
        ratios = 1.0 - alpha[:, None] * kappa
        smallest = tf.reduce_min(ratios, axis=1)
        proper = (smallest > 0.0)[:, None]
        factor = tf.matmul(root, U) * tf.math.rsqrt(tf.where(proper, ratios, 1.0))[:, None, :]
        covariance = tf.matmul(factor, factor, transpose_b=True)
        residual = tf.linalg.matvec(T, mu) - sites[:, 0]
        shift = alpha[:, None] * tf.linalg.matvec(covariance, residual)
        mean = mu + tf.where(proper, shift, 0.0)
        of_f = BlockCavity(mean + here.mean, covariance + here.D)
        return _Cavities(mu, root, kappa, smallest, factor, mean, of_f, residual)

    @override
    def sweep(
        self,
        sites: tf.Tensor,
        q: InducingPosterior,
        *,
        least_power: tf.Tensor | float = 0.0,
        negligible: tf.Tensor | float = 0.0,
        shift: tf.Tensor | None = None,
    ) -> Sweep:
        """Sweep over all blocks; `negligible` and `shift`, which save time for rows, have no effect."""

        def part(chunk: Chunk) -> Tensors:
            here = self._here(chunk)
            before = chunk.take(sites)
            alpha = tf.maximum(self.alpha(chunk), least_power)
            w = self.cavities(q, here, before, alpha)
            tilted = self.rows.rule.moments(w.of_f, self.rows.block(chunk), alpha)
            by_block = tf.concat([tilted.slope[:, None], tilted.curvature], axis=1)
            change = tf.where(
                (w.ratio > 0.0)[:, None, None], _matching(w, by_block, alpha) - before, 0.0
            )
            quadratic = tf.reduce_sum((w.residual - before[:, 0]) * w.marginal_mean, axis=1)
            pulled = tf.linalg.matvec(w.factor, w.residual, transpose_a=True)
            quadratic += alpha * tf.reduce_sum(tf.square(pulled), axis=1)
            log_ratio = tf.reduce_sum(log1p_ratio(alpha[:, None], -w.kappa), axis=1)
            terms = tilted.log_partition + 0.5 * (quadratic - log_ratio)
            return change, by_block, w.marginal_mean, w.root, terms, w.ratio

        d = sites.shape[2]
        of_sites = [None, 1 + d, d]
        shapes = (of_sites, of_sites, [None, d], [None, d, d], [None], [None])
        update, tilted, mean, root, terms, ratio = self.rows.chunked.concatenate(
            part, q.L.dtype, shapes
        )
        return BlockSweep(
            sites, update, tilted, mean, root, tf.reduce_sum(terms), tf.reduce_min(ratio)
        )


def marginals(q: InducingPosterior, here: _GivenU) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute mean μ [G, d] and covariance S [G, d, d] of w = V'v under q(v)."""
    T = here.blocks(tf.linalg.triangular_solve(q.LB[0], here.V))  # [G, d, M]
    mean = tf.linalg.matvec(here.blocks(here.V), q.b[0, :, 0])
    return mean, tf.matmul(T, T, transpose_b=True)


def _matching(w: _Cavities, tilted: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """
    Return the site whose power α times the cavity of w has the moments of w under the tilted
    distribution with g and H, `tilted` [G, 1 + d, d].

        T = -(I + α H C)^-1 H,    h = (I + α H C)^-1 g + T m,    C = F F', m of the cavity of w,

    with (I + α H F F')^-1 = I - α H F (I + α F'H F)^-1 F', of which the terms do not cancel for
    H < 0.
    """
    a = alpha[:, None, None]
    F = w.factor
    HF = tf.matmul(tilted[:, 1:], F)
    inner = tf.linalg.cholesky(plus_identity(a * tf.matmul(F, HF, transpose_a=True)))
    columns = tf.linalg.matrix_transpose(tilted)  # [g, H]
    solved = tf.linalg.cholesky_solve(inner, tf.matmul(F, columns, transpose_a=True))
    columns -= a * tf.matmul(HF, solved)
    T = -0.5 * (columns[..., 1:] + tf.linalg.matrix_transpose(columns[..., 1:]))
    h = columns[..., 0] + tf.linalg.matvec(T, w.mean)
    return tf.concat([h[:, None], T], axis=1)


def block_energy_derivatives(
    problem: BlockProblem, tape: tf.GradientTape, iterate: Iterate
) -> list[tf.Tensor]:
    """
    Compute the derivatives of the energy at converged sites in the problem's variables; `tape`
    recorded the problem.

    They are those of the sum over blocks, with q, sites and cavities of w held fixed, of

        h'μ - tr(T (S + μ μ'))/2 + log Z / α,    in D: (H + α g g')/2,  in m(x): g.
    """
    rows = problem.rows
    L = problem.L
    q = problem.total(iterate.A, iterate.c).posterior()
    variables = problem.variables
    tensors = [L, problem.scale, *rows.prior.inputs]
    sources = [*tensors, *variables]

    def part(chunk: Chunk) -> Tensors:
        sites = chunk.take(iterate.swept.sites)
        tilted = chunk.take(iterate.swept.tilted_derivatives)
        alpha = problem.alpha(chunk)
        g = tilted[:, 0]
        outer = g[:, :, None] * g[:, None, :]
        D_bar = 0.5 * (tilted[:, 1:] + alpha[:, None, None] * outer)
        with watching(sources) as inner:
            here = problem.given_u(chunk, *tensors)
            mu, S = marginals(q, here)
            second = S + mu[:, :, None] * mu[:, None, :]
            value = tf.reduce_sum(sites[:, 0] * mu) - 0.5 * tf.reduce_sum(sites[:, 1:] * second)
            value += tf.reduce_sum(D_bar * here.D) + tf.reduce_sum(g * here.mean)
        pulled = derivatives(inner, value, sources)
        own = problem.likelihood_variables
        if not own:
            return pulled
        w = problem.cavities(q, here, sites, alpha)
        slopes = rows.rule.in_likelihood(w.of_f, rows.block(chunk), alpha, own)
        of_tensors, of_variables = pulled[: len(tensors)], pulled[len(tensors) :]
        return *of_tensors, *problem.plus_in_likelihood(of_variables, slopes)

    L_bar, *direct = rows.sum_over_chunks(part, tuple(map(tf.zeros_like, sources)))
    others = direct[: len(tensors) - 1]
    Kuu_bar = cholesky_adjoint(L, tf.matmul(L, L_bar, transpose_a=True))
    indirect = derivatives(
        tape,
        [problem.Kuu, *tensors[1:], problem.terms],
        variables,
        [Kuu_bar, *others, tf.ones_like(problem.terms)],
    )
    return list(map(tf.add, indirect, direct[len(others) :]))
