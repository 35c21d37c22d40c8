"""The PEP energy, an approximation to log p(y), and its derivatives at converged sites.

    log Z = c'B^-1 c/2 - log|B|/2 + Σ_n row_terms(n),        B = I + V diag(τ) V',  c = V h

plus, in streams, the old posterior's parts of B and c and its terms (JMLR 18(104), eq. 38). If the
sites match their tilted distributions, the energy is stationary in the sites and in the marginals
of q (app. G). Its derivatives then equal the derivatives of

    Σ_n { h μ - τ (s + μ²)/2 + log Z(m, v)/α },      s = V'B^-1 V,  μ = V'b,

with B, b, sites and cavities of w held fixed (at α = 0, of SVGP's bound at q); log Z depends on d,
m(x), likelihood. Other projections than KL add derivatives in s and μ, which then are not 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..engine import Chunk, InducingPosterior, OldPosteriorSite
from ..maths.linalg import cholesky_adjoint, inverse_of_product, symmetric_product
from ..runtime import Tensors, asserted, derivatives
from ..tilted import Cavity, Observations, log_partition
from . import sweep
from .sweep import Iterate, LatentRows, PriorRows, Problem, Projected, Site


class RowBars(NamedTuple):
    """Derivatives of the rows' part of an energy at given sites and q."""

    of_marginals: tf.Tensor  # In the moments s and μ of w, [N, 2, C]
    of_prior: tf.Tensor  # In d and m(x), [N, 2, C]
    of_variables: Sequence[tf.Tensor]  # In the problem's variables, besides these of log Z


def energy_derivatives(
    problem: Problem, tape: tf.GradientTape, iterate: Iterate, bars: RowBars | None = None
) -> list[tf.Tensor]:
    """
    Compute the derivatives of the energy at converged sites in the problem's variables; `tape`
    recorded the problem.

    With P = B^-1 and b = B^-1 c, the derivatives in V, d and m(x) of a row are

        V_bar = -τ P V + (h - τ μ) b - 2 d_bar V,    d_bar = (d2 + α d1²)/2,    m_bar = d1,

    and V_bar V' of all rows together is -P A + b (c - A b)' - 2 V diag(d_bar) V'.

    Derivatives s_bar and μ_bar in the marginals, `bars`, act also through B and c. With R = V
    diag(s_bar) V' and e = P V μ_bar they add to V_bar

        2 P (s_bar V - τ R P V) + (μ_bar - τ V'e) b + (h - τ μ) e.
    """
    rows = problem.rows
    L = problem.L
    scale = problem.scale
    old = problem.old
    A = iterate.A
    q = problem.total(A, iterate.c).posterior()
    P = inverse_of_product(q.LB)
    of_prior = _moments_match(iterate, rows.powers) if bars is None else bars.of_prior
    if bars is not None:
        R, r = problem.sum_sites(bars.of_marginals)  # V diag(s_bar) V' and V μ_bar
        e = P @ r
    inputs = rows.prior.inputs
    variables = problem.variables

    def part(chunk: Chunk) -> Tensors:
        here, pull_back = problem.watched(chunk)
        V, d, _ = here
        site = Site(*sweep.take_pair(iterate.swept.sites, chunk))
        d_bar, m_bar = sweep.take_pair(of_prior, chunk)  # [C, n]
        d_bar = tf.where(d > 0.0, _shared(d_bar, L), 0.0)
        Vd = V * tf.expand_dims(scale * d_bar, -2)
        residual = site.linear - site.precision * sweep.project_mean(V, tf.squeeze(q.b, -1))
        PVt = P @ (V * tf.expand_dims(site.precision, 1))
        V_bar = q.b * tf.expand_dims(residual, 1) - PVt
        product = tf.zeros_like(L)
        if bars is not None:
            s_bar, mu_bar = sweep.take_pair(bars.of_marginals, chunk)
            change = mu_bar - site.precision * sweep.project_mean(V, tf.squeeze(e, -1))
            more = q.b * tf.expand_dims(change, 1) + e * tf.expand_dims(residual, 1)
            more += 2.0 * P @ (V * tf.expand_dims(s_bar, 1) - R @ PVt)
            product = _shared(tf.matmul(more, V, transpose_b=True), L)
            V_bar += more
        Kuf_bar = tf.linalg.triangular_solve(0.5 * L, _shared(0.5 * V_bar, L) - Vd, adjoint=True)
        pulled = pull_back(PriorRows(Kuf_bar, scale * d_bar, m_bar))
        of_inputs, of_variables = pulled[: len(inputs)], pulled[len(inputs) :]
        if problem.likelihood_variables:
            slopes = _in_likelihood(problem, q, chunk, here, site)
            of_variables = problem.plus_in_likelihood(of_variables, slopes)
        scale_bar = tf.reduce_sum(d_bar * d) / scale
        return symmetric_product(Vd, V), product, scale_bar, *of_inputs, *of_variables

    zeros = map(tf.zeros_like, [L, L, scale, *inputs, *variables])
    VdV, product, scale_bar, *direct = rows.sum_over_chunks(part, tuple(zeros))
    VV = tf.matmul(q.b, iterate.c - A @ q.b, transpose_b=True) - P @ A
    Kuu_bar = cholesky_adjoint(L, 2.0 * VdV - _shared(VV, L) - product)
    values = [problem.Kuu, *inputs, scale, problem.terms]
    value_bars = [Kuu_bar, *direct[: len(inputs)], scale_bar, tf.ones_like(problem.terms)]
    if old is not None:
        A_bar = -0.5 * (P + tf.matmul(q.b, q.b, transpose_b=True))
        c_bar = q.b
        if bars is not None:
            A_bar -= P @ R @ P + tf.matmul(e, q.b, transpose_b=True)
            c_bar += e
        values += old
        value_bars += OldPosteriorSite(A_bar, c_bar, tf.ones_like(old.terms))
    summands = [derivatives(tape, values, variables, value_bars), direct[len(inputs) :]]
    if bars is not None:
        summands.append(bars.of_variables)
    return [tf.add_n(parts) for parts in zip(*summands, strict=True)]


def _in_likelihood(
    problem: Problem, q: InducingPosterior, chunk: Chunk, here: Projected, site: Site
) -> Tensors:
    """Differentiate log Z / α, summed over a chunk, in variables of the likelihood."""
    alpha = problem.rows.alpha(chunk)
    w = sweep.cavity_of_w(sweep.marginals(q, here.V), site, alpha)
    one = tf.ones_like(here.mean[:1])
    at = sweep.cavity_of_f(w, here), Observations(*chunk.data), alpha
    return problem.rule.log_partition_vjp(*at, one, problem.likelihood_variables)


def _moments_match(iterate: Iterate, powers: tf.Tensor) -> tf.Tensor:
    """Return the derivatives in d and m(x) if the sites match moments, [N, 2, C]."""
    d1, d2 = tf.unstack(iterate.swept.tilted_derivatives, axis=1)
    return tf.stack([0.5 * (d2 + powers[..., None] * tf.square(d1)), d1], axis=1)


def _shared(values: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """Sum [C, ...] over the latent functions if they share one Kuu."""
    if L.shape.rank == 2:
        return tf.reduce_sum(values, axis=0)
    return values


def leave_one_out(problem: Problem, sites: tf.Tensor, q: InducingPosterior) -> tf.Tensor:
    """
    Compute Σ_C log ∫ q_-n(f_n) p(y_n|f_n) df_n, [N], q_-n without a site of [N, 2, C]; an error if
    improper.
    """
    one = tf.ones([], q.L.dtype)
    _ = problem.projected  # computed outside of the loop

    def part(chunk: Chunk) -> Tensors:
        f = _without_sites(problem, q, sites, chunk)
        density = problem.rule.moments(f, Observations(*chunk.data), one).log_partition
        return (tf.reduce_sum(density, axis=0),)

    return problem.rows.chunked.concatenate(part, q.L.dtype, [[None]])[0]


def leave_one_out_moments(problem: Problem, sites: tf.Tensor, q: InducingPosterior) -> Tensors:
    """Compute mean and variance [N, C] of every q_-n(f_n); an error if improper."""
    _ = problem.projected  # computed outside of the loop

    def part(chunk: Chunk) -> Tensors:
        f = _without_sites(problem, q, sites, chunk)
        return tf.transpose(f.mean), tf.transpose(f.variance)

    return problem.rows.chunked.concatenate(part, q.L.dtype, [[None, None]] * 2)


def _without_sites(
    problem: Problem, q: InducingPosterior, sites: tf.Tensor, chunk: Chunk
) -> Cavity:
    """Return every q_-n(f_n) of a chunk; an error if improper."""
    here = problem.projected(chunk)
    # Predictions have the variance given u without the scale, which is a setting of the sites.
    predicted = here._replace(conditional_variance=here.conditional_variance / problem.scale)
    site = Site(*sweep.take_pair(sites, chunk))
    w = sweep.cavity_of_w(sweep.marginals(q, here.V), site, tf.ones([], q.L.dtype))
    ratio = asserted(
        w.ratio,
        w.ratio > 0.0,
        "q without the site of an observation is not proper. Try: a smaller alpha. The smallest "
        "1 - τ s is",
        tf.reduce_min(w.ratio),
    )
    return sweep.cavity_of_f(w._replace(ratio=ratio), predicted)


def minibatch_objective(
    problem: Problem, batch: LatentRows, site: Site, q: InducingPosterior, num_data: tf.Tensor
) -> tf.Tensor:
    """
    Return a scalar whose gradient estimates the gradient of the energy, []. Its value is not
    meaningful.

    Hyperparameters may change before the sites have converged (JMLR 18(104), sec. 3.9). If the
    sites match their tilted distributions, the derivatives are a sum over rows, which a minibatch
    estimates without bias. Marginals replace improper cavities. `batch`: the minibatch, in one
    chunk, with sites `site`; `q`: the posterior, held fixed.
    """
    chunk: Any = batch.chunked.only_chunk
    projected = sweep.project(problem.L, batch(chunk, *batch.prior.inputs), problem.scale)
    alpha = batch.alpha(chunk)
    marginal = sweep.marginals(q, projected.V)
    w = sweep.cavity_of_w(marginal, site, alpha)
    w = w._replace(mean=tf.stop_gradient(w.mean), variance=tf.stop_gradient(w.variance))
    log_Z = log_partition(
        problem.rule, sweep.cavity_of_f(w, projected), Observations(*chunk.data), alpha
    )
    bilinear = site.linear * marginal.mean - 0.5 * site.precision * (
        marginal.variance + tf.square(marginal.mean)
    )
    weight = tf.cast(num_data, bilinear.dtype) / tf.cast(tf.shape(bilinear)[1], bilinear.dtype)
    objective = weight * (tf.reduce_sum(bilinear) + tf.reduce_sum(log_Z)) + problem.terms
    if problem.old is None:
        return objective
    # The old posterior's part: E_q[c'v - v'Av/2] + terms
    A, c, terms = problem.old
    second = inverse_of_product(q.LB) + tf.matmul(q.b, q.b, transpose_b=True)  # E[v v']
    linear = tf.reduce_sum(c * tf.stop_gradient(q.b))
    return objective + linear - 0.5 * tf.reduce_sum(A * tf.stop_gradient(second)) + terms
