"""The PEP energy, an approximation to log p(y), and its derivatives at converged sites.

    log Z = c'B^-1 c/2 - log|B|/2 + Σ_n row_terms(n),        B = I + V diag(τ) V',  c = V h

plus, in streams, the old posterior's parts of B and c and its terms (JMLR 18(104), eq. 38). If the
sites match their tilted distributions, the energy is stationary in the sites and in the marginals
of q (app. G). Its derivatives then equal the derivatives of

    Σ_n { h μ - τ (s + μ²)/2 + log Z(m, v)/α },      s = V'B^-1 V,  μ = V'b,

with B, b, sites and cavities of w held fixed (at α = 0, of SVGP's bound at q); log Z depends on d,
m(x), likelihood.
"""

from typing import Any

import tensorflow as tf

from ..engine import InducingPosterior, OldPosteriorSite, SiteSums
from ..maths.linalg import cholesky_adjoint, inverse_of_product, symmetric_product
from ..runtime.checks import asserted
from ..runtime.custom_gradients import derivatives
from ..tilted import Observations, log_partition
from . import sweep
from .sweep import Iterate, LatentRows, PriorRows, Problem, Site


def energy_derivatives(
    problem: Problem, tape: tf.GradientTape, iterate: Iterate
) -> list[tf.Tensor]:
    """
    Compute the derivatives of the energy at converged sites in the problem's variables; `tape`
    recorded the problem.

    With P = B^-1 and b = B^-1 c, the derivatives in V, d and m(x) of a row are

        V_bar = -τ P V + (h - τ μ) b - 2 d_bar V,    d_bar = (d2 + α d1²)/2,    m_bar = d1,

    and V_bar V' of all rows together is -P A + b (c - A b)' - 2 V diag(d_bar) V'.
    """
    rows = problem.rows
    L = problem.L
    scale = problem.scale
    old = problem.old
    A = iterate.A
    c = iterate.c
    q = SiteSums(L, A, c).with_old(old).posterior()
    b = tf.squeeze(q.b, -1)
    P = inverse_of_product(q.LB)
    inputs = rows.prior.inputs
    variables = problem.variables or ()
    of_likelihood = {variable.ref() for variable in problem.likelihood_variables}
    own = [number for number, variable in enumerate(variables) if variable.ref() in of_likelihood]

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        here, pull_back = problem.watched(chunk)
        V, d, mean = here
        site = Site(*sweep.take_pair(iterate.swept.sites, chunk))
        alpha = rows.alpha(chunk)
        d1, d2 = sweep.take_pair(iterate.swept.tilted_derivatives, chunk)  # [C, n]
        d_bar = _shared(0.5 * (d2 + alpha * tf.square(d1)), L)
        d_bar = tf.where(d > 0.0, d_bar, tf.zeros_like(d_bar))
        Vd = V * tf.expand_dims(scale * d_bar, -2)
        residual = site.linear - site.precision * sweep.project_mean(V, b)  # h - τ μ
        half_V_bar = 0.5 * (
            q.b * tf.expand_dims(residual, 1) - P @ (V * tf.expand_dims(site.precision, 1))
        )
        Kuf_bar = tf.linalg.triangular_solve(0.5 * L, _shared(half_V_bar, L) - Vd, adjoint=True)
        pulled = list(pull_back(PriorRows(Kuf_bar, scale * d_bar, d1)))
        if own:
            w = sweep.cavity_of_w(sweep.marginals(q, V), site, alpha)
            cavity = sweep.cavity_of_f(w, here)
            one = tf.ones_like(mean[:1])
            own_variables = [variables[number] for number in own]
            by_likelihood = problem.rule.log_partition_vjp(
                cavity, Observations(*chunk.data), alpha, one, own_variables
            )
            for number, slope in zip(own, by_likelihood, strict=True):
                pulled[len(inputs) + number] += slope
        return symmetric_product(Vd, V), tf.reduce_sum(d_bar * d) / scale, *pulled

    zeros = map(tf.zeros_like, [L, scale, *inputs, *variables])
    VdV, scale_bar, *direct = rows.sum_over_chunks(part, tuple(zeros))
    VV = tf.matmul(q.b, c - A @ q.b, transpose_b=True) - P @ A
    Kuu_bar = cholesky_adjoint(L, 2.0 * VdV - _shared(VV, L))
    values = [problem.Kuu, *inputs, scale, problem.terms]
    bars = [Kuu_bar, *direct[: len(inputs)], scale_bar, tf.ones_like(problem.terms)]
    if old is not None:
        A_bar = -0.5 * (P + tf.matmul(q.b, q.b, transpose_b=True))
        values += old
        bars += OldPosteriorSite(A_bar, q.b, tf.ones_like(old.terms))
    indirect = derivatives(tape, values, variables, bars)
    return [one + other for one, other in zip(indirect, direct[len(inputs) :], strict=True)]


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
    rows = problem.rows
    rule = problem.rule
    projected = problem.projected

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        here = projected(chunk)
        w = sweep.cavity_of_w(sweep.marginals(q, here.V), Site(*sweep.take_pair(sites, chunk)), one)
        message = (
            "q without the site of an observation is not proper. Try: a smaller alpha. The "
            "smallest 1 - τ s is"
        )
        w = w._replace(ratio=asserted(w.ratio, w.ratio > 0.0, message, tf.reduce_min(w.ratio)))
        density = rule.moments(
            sweep.cavity_of_f(w, here), Observations(*chunk.data), one
        ).log_partition
        return (tf.reduce_sum(density, axis=0),)

    return rows.chunked.concatenate(part, q.L.dtype, [[None]])[0]


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
