"""The PEP energy, an approximation to log p(y), and its derivatives while the sites stay as they are.

    log Z = c'B^-1 c/2 - log|B|/2 + Σ_n row_terms(n),        B = I + V diag(τ) V',  c = V h

and in streams what the old posterior adds to B and c (and its own terms).

(JMLR 18(104), eq. 38). Where the sites have converged under the KL projection the energy is stationary in them, so
that its derivatives at fixed sites are those of the converged energy.

Notation: a trailing _bar is a derivative of the objective; q(v) = N(b, B^-1), w = V'v has moments μ, s.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..derivatives import first_only
from ..linalg import cholesky_adjoint, inverse_of_product, symmetric_product
from ..statistics import CHUNKS_IN_FLIGHT, OldSite, add_up, watched
from .gaussian import CavityOfW, Marginals, Posterior, Site, cavity_of_f, cavity_of_w, marginals, proper
from .latent import Latent, LatentRows
from .sweep import Sites, look, no_sums, row_terms, sums_of
from .tilted import Tilted, TiltedRule


def log_integral(q: Posterior, c: tf.Tensor) -> tf.Tensor:
    """c'B^-1 c/2 - log|B|/2 of the integral over v, summed over latent functions, []."""
    return 0.5 * tf.reduce_sum(c * q.b) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(q.LB)))


def energy(
    rows: LatentRows,
    rule: TiltedRule,
    sites: Sites,
    alpha: tf.Tensor,
    *,
    likelihood_variables: Sequence[tf.Variable],
    Kuu: tf.Tensor,
    factorise: Callable[[tf.Tensor], tf.Tensor],
    old_site: Callable[[tf.Tensor], OldSite],
) -> tf.Tensor:
    """
    log Z [], differentiable once in Kuu, ``rows.inputs``, ``rows.variables`` and the likelihood's variables.

    :param old_site: of the Cholesky factor of Kuu; differentiable by itself.
    :raises tf.errors.InvalidArgumentError: where a cavity or B is not proper.
    """
    factor = factorise(Kuu)
    L = tf.stop_gradient(factor)
    old = old_site(factor)
    parts = {variable.ref(): variable for variable in (*rows.variables, *likelihood_variables)}
    # TensorFlow hands the trainable variables to `gradient`; the others must be arguments.
    fixed = [variable for variable in parts.values() if not variable.trainable]

    @tf.custom_gradient
    def value(Kuu: tf.Tensor, old_A: tf.Tensor, old_c: tf.Tensor, *inputs_and_fixed: tf.Tensor) -> Any:
        inputs = inputs_and_fixed[: len(rows.inputs)]
        A, c = sites.sums(rows, L)
        q = Posterior.of(L, A + old_A, c + old_c)
        terms, bars = _terms(rows, rule, sites, q, alpha)

        def gradient(bar: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            adjoint = _Adjoint(rows, rule, sites, q, alpha, bars)
            derivatives = adjoint(A, c, [*inputs, *fixed, *variables], bool(likelihood_variables))
            scaled = first_only(*(bar * derivative for derivative in derivatives))
            num_inputs = 3 + len(inputs_and_fixed)
            return scaled[:num_inputs], list(scaled[num_inputs:])

        return log_integral(q, c + old_c) + terms, gradient

    zero_A, zero_c = no_sums(L, rows.num_latent_gps)
    beside = zero_A + old.A, zero_c + old.c[..., 0]
    return value(Kuu, *beside, *rows.inputs, *map(tf.convert_to_tensor, fixed)) + old.terms


class _RowBars(NamedTuple):
    """Derivatives of the row terms of n rows, [C, n] each."""

    mean: tf.Tensor
    """in μ"""
    variance: tf.Tensor
    """in s"""
    rest: tf.Tensor
    """in d; those of latent functions that share it add up"""
    offset: tf.Tensor
    """in m(x)"""


class _Bars(NamedTuple):
    """Derivatives of all row terms, and the sums over rows that further derivatives are made of."""

    rows: _RowBars
    """[N, C] each."""
    VsV: tf.Tensor
    """V diag(s_bar) V', [C, M, M]."""
    VdV: tf.Tensor
    """V diag(d_bar) V', [M, M] or [C, M, M]."""
    Vm: tf.Tensor
    """V μ_bar, [C, M]."""


def _row_bars(marginal: Marginals, site: Site, w: CavityOfW, tilted: Tilted, alpha: tf.Tensor) -> _RowBars:
    """
    Derivatives of :func:`row_terms`.

    With e = (τ μ - h)/r and d log_normaliser / dv = (d2 + α d1²)/2:

        μ: d1/r + e,   s: α d1 e/r + (d2 + α d1²)/2r² + τ/2r + α e²/2,   d: (d2 + α d1²)/2,   m: d1
    """
    _, d1, d2, _ = tilted
    r = w.remaining
    e = (site.precision * marginal.mean - site.linear) / r
    in_v = 0.5 * (d2 + alpha * tf.square(d1))
    in_s = alpha * d1 * e / r + in_v / tf.square(r) + 0.5 * site.precision / r + 0.5 * alpha * tf.square(e)
    return _RowBars(d1 / r + e, in_s, in_v, d1)


def _terms(rows: LatentRows, rule: TiltedRule, sites: Sites, q: Posterior, alpha: tf.Tensor) -> tuple[tf.Tensor, _Bars]:
    """The sum of the row terms, [], and its derivatives while q stays."""
    dtype, C = q.L.dtype, rows.num_latent_gps
    VsV, Vm = no_sums(q.L, C)
    arrays = tuple(tf.TensorArray(dtype, rows.num_chunks(), infer_shape=False) for _ in _RowBars._fields)

    def step(
        chunk: tf.Tensor, total: tf.Tensor, VsV: tf.Tensor, VdV: tf.Tensor, Vm: tf.Tensor, *arrays: tf.TensorArray
    ) -> tuple[Any, ...]:
        site = sites.take(rows, chunk)
        marginal, w, tilted = look(rows, rule, q, site, alpha, chunk, rows(chunk, *rows.inputs))
        w = proper(w)
        total += row_terms(marginal, site, w, tilted, alpha)
        bars = _row_bars(marginal, site, w, tilted, alpha)
        bars = bars._replace(rest=tf.where(marginal.rest > 0.0, bars.rest, tf.zeros_like(bars.rest)))
        added_VsV, added_Vm = sums_of(marginal.V, Site(bars.variance, bars.mean))
        Vd = marginal.V * _shared(bars.rest, q)[..., None, :]
        written = (array.write(chunk, tf.transpose(value)) for array, value in zip(arrays, bars, strict=True))
        return chunk + 1, total, VsV + added_VsV, VdV + symmetric_product(Vd, marginal.V), Vm + added_Vm, *written

    _, total, VsV, VdV, Vm, *arrays = tf.while_loop(
        lambda chunk, *_: chunk < rows.num_chunks(),
        step,
        (tf.constant(0), tf.zeros([], dtype), VsV, tf.zeros_like(q.L), Vm, *arrays),
        parallel_iterations=CHUNKS_IN_FLIGHT,
    )
    by_row = _RowBars(*(tf.ensure_shape(array.concat(), [None, C]) for array in arrays))
    return total, _Bars(by_row, VsV, VdV, Vm)


class _Adjoint(NamedTuple):
    """The way back: from the derivatives of the row terms to those in Kuu and in the sources."""

    rows: LatentRows
    rule: TiltedRule
    sites: Sites
    q: Posterior
    alpha: tf.Tensor
    bars: _Bars

    def __call__(
        self, A: tf.Tensor, c: tf.Tensor, sources: Sequence[Any], with_likelihood: bool
    ) -> tuple[tf.Tensor, ...]:
        """
        The derivatives in Kuu, in the A and c of an old posterior, and in the sources.

        With P = B^-1: A_bar = -(P + b b')/2 - P VsV P - sym(b (P Vm)'), c_bar = b + P Vm; then V_bar of a row is

            2 τ A_bar V + h c_bar + 2 s_bar P V + μ_bar b - 2 d_bar V.
        """
        q, bars = self.q, self.bars
        P = inverse_of_product(q.LB)  # [C, M, M], the derivative of log|B|
        PVm = tf.linalg.matvec(P, bars.Vm)
        A_bar = -0.5 * (P + _outer(q.b, q.b)) - P @ bars.VsV @ P - 0.5 * (_outer(q.b, PVm) + _outer(PVm, q.b))
        c_bar = q.b + PVm
        VV = 2.0 * (A_bar @ A + P @ bars.VsV) + _outer(c_bar, c) + _outer(q.b, bars.Vm)  # sum of V_bar V', [C, M, M]
        Kuu_bar = cholesky_adjoint(q.L, 2.0 * bars.VdV - _shared(VV, q))

        def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
            site = self.sites.take(self.rows, chunk)
            bar = _RowBars(*(tf.transpose(self.rows.chunks.take(value, chunk)) for value in bars.rows))
            rest = _shared(bar.rest, q)  # [n] or [C, n]
            latent, pull_back = watched(self.rows, chunk, sources[: len(self.rows.inputs)], sources)
            V = tf.linalg.triangular_solve(q.L, latent.Kuf)
            each = A_bar @ (V * site.precision[:, None, :]) + P @ (V * bar.variance[:, None, :])
            each += 0.5 * (c_bar[..., None] * site.linear[:, None, :] + q.b[..., None] * bar.mean[:, None, :])
            half_V_bar = _shared(each, q) - V * rest[..., None, :]
            Kuf_bar = tf.linalg.triangular_solve(0.5 * q.L, half_V_bar, adjoint=True)
            pulled = pull_back(Latent(Kuf_bar, rest, bar.offset))
            if not with_likelihood:
                return pulled
            marginal = marginals(q, latent)
            cavity = cavity_of_f(cavity_of_w(marginal, site, self.alpha), marginal, latent)
            one = tf.ones_like(cavity.mean[:1])
            tilts = self.rule.sensitivity(cavity, self.rows.observed(chunk), self.alpha, one, sources)
            return tuple(one + other for one, other in zip(pulled, tilts, strict=True))

        return Kuu_bar, A_bar, c_bar, *add_up(self.rows.num_chunks(), part, tuple(map(tf.zeros_like, sources)))


def _shared(values: tf.Tensor, q: Posterior) -> tf.Tensor:
    """[C, ...] summed over the latent functions where they share one Kuu."""
    return tf.reduce_sum(values, axis=0) if q.L.shape.rank == 2 else values


def _outer(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """[C, M] and [C, M] -> [C, M, M]."""
    return left[..., None] * right[:, None, :]
