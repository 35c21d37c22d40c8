"""The PEP energy, an approximation to log p(y), and its derivatives where the sites have converged.

    log Z = c'B^-1 c/2 - log|B|/2 + Σ_n row_terms(n),        B = I + V diag(τ) V',  c = V h

plus, in streams, the old posterior's parts of B and c and its terms (JMLR 18(104), eq. 38). Where the sites match
their tilted distributions the energy is stationary in the sites and in the marginals of q (app. G), so that its
derivatives are those of

    Σ_n { h μ - τ (s + μ²)/2 + log Z(m, v)/α },      s = V'B^-1 V,  μ = V'b,

with B, b, sites and cavities of w held fixed; log Z depends on d, m(x) and the likelihood. At α = 0 they are the
derivatives of SVGP's bound at q.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from ..engine import InducingPosterior, OldPosteriorSite, SiteSums
from ..maths.linalg import cholesky_adjoint, inverse_of_product, symmetric_product
from ..runtime.checks import asserted
from ..runtime.custom_gradients import derivatives
from ..tilted import TiltedRule
from .cavity import Site, cavity_of_f, cavity_of_w, marginals, project_mean
from .rows import LatentRows, PriorRows, ProjectedRows
from .solution import Iterate


class EnergyInputs(NamedTuple):
    """What the energy depends on besides sites and likelihood; differentiable in the parameters."""

    rows: LatentRows
    Kuu: tf.Tensor
    L: tf.Tensor  # Its Cholesky factor
    scale: tf.Tensor  # m of T-PEP, []
    old: OldPosteriorSite | None  # The site of the old posterior in a stream; None in other models
    terms: tf.Tensor  # scale_terms, []


def energy_derivatives(
    inputs: EnergyInputs,
    tape: tf.GradientTape,
    projected: ProjectedRows,
    rule: TiltedRule,
    iterate: Iterate,
    variables: Sequence[tf.Variable],
    likelihood_variables: Sequence[tf.Variable],
) -> list[tf.Tensor]:
    """
    Compute the derivatives of the energy at converged sites, one for each of `variables`.

    With P = B^-1 and b = B^-1 c those in V, d and m(x) of a row are

        V_bar = -τ P V + (h - τ μ) b - 2 d_bar V,    d_bar = (d2 + α d1²)/2,    m_bar = d1,

    and V_bar V' of all rows together is -P A + b (c - A b)' - 2 V diag(d_bar) V'.

    :param tape: what recorded the inputs.
    :param projected: the rows, to be differentiated in `variables`.
    :param iterate: the converged sites, and what was computed at them.
    :param likelihood_variables: those of `variables` that belong to the likelihood.
    """
    (rows, Kuu, L, scale, old, terms), A, c = inputs, iterate.A, iterate.c
    q = SiteSums(L, A, c).with_old(old).posterior()
    b, P = tf.squeeze(q.b, -1), inverse_of_product(q.LB)
    sources = [*rows.inputs, *variables]
    own = [number for number, variable in enumerate(variables) if _is_one_of(variable, likelihood_variables)]

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        here, pull_back = projected.watched(chunk)
        V, d, mean = here
        site, alpha = Site(*rows.take_pair(iterate.sites, chunk)), rows.alpha(chunk)
        d1, d2 = rows.take_pair(iterate.tilted_derivatives, chunk)  # [C, n]
        d_bar = _shared(0.5 * (d2 + alpha * tf.square(d1)), L)
        d_bar = tf.where(d > 0.0, d_bar, tf.zeros_like(d_bar))
        Vd = V * tf.expand_dims(scale * d_bar, -2)
        residual = site.linear - site.precision * project_mean(V, b)  # h - τ μ
        Vt = V * tf.expand_dims(site.precision, 1)
        half_V_bar = 0.5 * (q.b * tf.expand_dims(residual, 1) - P @ Vt)
        Kuf_bar = tf.linalg.triangular_solve(0.5 * L, _shared(half_V_bar, L) - Vd, adjoint=True)
        pulled = list(pull_back(PriorRows(Kuf_bar, scale * d_bar, d1)))
        if own:
            w = cavity_of_w(marginals(q, V), site, alpha)
            one = tf.ones_like(mean[:1])
            by_likelihood = rule.log_partition_vjp(
                cavity_of_f(w, here), rows.observations(chunk), alpha, one, [variables[number] for number in own]
            )
            for number, slope in zip(own, by_likelihood, strict=True):
                pulled[len(rows.inputs) + number] += slope
        return symmetric_product(Vd, V), tf.reduce_sum(d_bar * d) / scale, *pulled

    zeros = tuple(map(tf.zeros_like, sources))
    VdV, scale_bar, *direct = rows.sum_over_chunks(part, (tf.zeros_like(L), tf.zeros_like(scale), *zeros))
    VV = tf.matmul(q.b, c - A @ q.b, transpose_b=True) - P @ A
    Kuu_bar = cholesky_adjoint(L, 2.0 * VdV - _shared(VV, L))
    num_inputs = len(rows.inputs)
    values = [Kuu, *rows.inputs, scale, terms]
    bars = [Kuu_bar, *direct[:num_inputs], scale_bar, tf.ones_like(terms)]
    if old is not None:
        A_bar = -0.5 * (P + tf.matmul(q.b, q.b, transpose_b=True))
        values += old
        bars += OldPosteriorSite(A_bar, q.b, tf.ones_like(old.terms))
    indirect = derivatives(tape, values, variables, bars)
    return [one + other for one, other in zip(indirect, direct[num_inputs:], strict=True)]


def _is_one_of(variable: tf.Variable, variables: Sequence[tf.Variable]) -> bool:
    return any(variable is other for other in variables)


def _shared(values: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """[C, ...] summed over the latent functions where they share one Kuu."""
    return tf.reduce_sum(values, axis=0) if L.shape.rank == 2 else values


# Leave-one-out predictive densities from the cavities: q without the whole site, for any alpha.


def leave_one_out(
    rows: LatentRows, projected: ProjectedRows, rule: TiltedRule, sites: tf.Tensor, q: InducingPosterior
) -> tf.Tensor:
    """
    Compute log ∫ q_-n(f_n) p(y_n|f_n) df_n of every row, summed over latent functions, [N].

    :param sites: [N, 2, C].
    :raises tf.errors.InvalidArgumentError: if q without a site is not proper.
    """
    one = tf.ones([], q.L.dtype)

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, ...]:
        here = projected(chunk)
        w = cavity_of_w(marginals(q, here.V), Site(*rows.take_pair(sites, chunk)), one)
        message = "q without the site of an observation is not proper. Try: a smaller alpha. The smallest 1 - τ s is"
        ratio = asserted(w.ratio, w.ratio > 0.0, message, tf.reduce_min(w.ratio))
        density = rule.moments(cavity_of_f(w._replace(ratio=ratio), here), rows.observations(chunk), one).log_partition
        return (tf.reduce_sum(density, axis=0),)

    return rows.concatenate(part, q.L.dtype, [[None]])[0]
