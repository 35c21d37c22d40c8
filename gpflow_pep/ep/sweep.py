"""One sweep over all rows under a fixed q: updates of the sites, and both parts of the energy; O(N M²)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..engine import InducingPosterior, OldPosteriorSite, SiteSums, log1p_ratio, precision_B
from ..maths.linalg import symmetric_product
from ..tilted import Observations, Tilted, TiltedRule
from .rows import (
    CavityOfW,
    LatentRows,
    Marginals,
    ProjectedRows,
    Site,
    accumulate_linear,
    cavity_of_f,
    cavity_of_w,
    marginals,
    matching_site,
    take_pair,
)

PRELIMINARY_POWER = 0.5
"""The least power of preliminary sweeps: at 0 derivatives may be huge, or infinite, under the prior."""
# Tilted distributions are integrated to 1e-8 of themselves, or of this: 1e-12 of log Z, a mean or a variance.
_NEGLIGIBLE = 1e-4
# Rounding may lower a bound by these fractions of its value and of the terms that cancel in it; but at least by this
# many eps, which is more in single precision only.
_SLACK, _ROUNDING = 1e-9, 1e-12
_SLACK_IN_EPS, _ROUNDING_IN_EPS = 100.0, 10.0


@dataclass(frozen=True)
class Problem:
    """The model quantities that sites and energy depend on; differentiable in the parameters."""

    rows: LatentRows
    rule: TiltedRule
    Kuu: tf.Tensor
    L: tf.Tensor  # Cholesky factor of Kuu
    scale: tf.Tensor  # m of T-PEP, []
    old: OldPosteriorSite | None  # the site of the old posterior in a stream
    terms: tf.Tensor  # scale_terms, []
    is_bound: tf.Tensor  # the energy is a lower bound on the log evidence, []
    keep: bool  # keep V of all rows in memory
    variables: Sequence[tf.Variable] | None = None  # the energy will be differentiated in these

    @cached_property
    def projected(self) -> ProjectedRows:
        """The rows given u; must be read before a loop is traced that reads it."""
        return ProjectedRows(self.rows, self.L, self.scale, keep=self.keep, variables=self.variables)


class Iterate(NamedTuple):
    """Sites, and the results of a sweep at them."""

    sites: tf.Tensor  # [N, 2, C]
    update: tf.Tensor  # the undamped update, [N, 2, C]
    tilted_derivatives: tf.Tensor  # d1 and d2 of the tilted distributions, [N, 2, C]
    A: tf.Tensor  # V diag(τ) V', [C, M, M]
    c: tf.Tensor  # V h, [C, M, 1]
    mean: tf.Tensor  # μ of the marginals of w, [N, C]
    variance: tf.Tensor  # s of the marginals of w, [N, C]
    change: tf.Tensor  # the largest change of a marginal by the update of its own site, []
    log_evidence: tf.Tensor  # the energy, []
    canceling: tf.Tensor  # the size of the terms that cancel in it, []

    def normalized(self, change: tf.Tensor) -> tf.Tensor:
        """Express changes of the sites [..., N, 2, C] as changes of their own marginals, without unit."""
        return normalized(change, self.mean, self.variance)

    def rounding(self) -> tf.Tensor:
        """By how much rounding may change the energy."""
        eps = float(np.finfo(self.log_evidence.dtype.as_numpy_dtype).eps)
        slack, rounding = max(_SLACK, _SLACK_IN_EPS * eps), max(_ROUNDING, _ROUNDING_IN_EPS * eps)
        return slack * tf.abs(self.log_evidence) + rounding * self.canceling


def choose(condition: tf.Tensor, one: Any, two: Any) -> Any:
    """
    Return one of two tensors of the same shape, or of two structures of them, by a scalar condition.

    `tf.where` gives the same; but it broadcasts the condition to [N, 2, C], which takes 200 times as long.
    """
    return tf.nest.map_structure(
        lambda x, y: x if x is y else tf.raw_ops.Select(condition=condition, x=x, y=y), one, two
    )


class Sweep(NamedTuple):
    """The result of a sweep over N rows of C latent functions."""

    sites: tf.Tensor  # the given sites after the shift, [N, 2, C]
    update: tf.Tensor  # the undamped change of the sites' natural parameters τ and h, [N, 2, C]
    tilted_derivatives: tf.Tensor  # d1 and d2 of the tilted distributions, [N, 2, C]
    mean: tf.Tensor  # μ of the marginals of w, [N, C]
    variance: tf.Tensor  # s of the marginals of w, [N, C]
    terms: tf.Tensor  # the rows' part of the energy (row_terms), []
    cavity_ratio: tf.Tensor  # the smallest r = 1 - α τ s of a cavity, []; sites with r <= 0 are not updated


def normalized(change: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    Express changes of the sites [..., N, 2, C] as changes of their own marginals N(w; μ, s), without unit.

    They are Δτ s and (Δh - μ Δτ) sqrt(s): of the variance, as a fraction, and of the mean, in standard deviations.
    """
    precision, linear = tf.unstack(change, axis=-2)
    return tf.stack([precision * variance, (linear - mean * precision) * tf.sqrt(variance)], axis=-2)


def sum_sites(problem: Problem, sites: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute A = V diag(τ) V' [C, M, M] and c = V h [C, M, 1] of all sites [N, 2, C]."""
    C, projected = problem.rows.num_latent_gps, problem.projected

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        V, (precision, linear) = projected(chunk).V, take_pair(sites, chunk)
        Vt = V * tf.expand_dims(precision, 1)  # [C, M, n]
        each = V if V.shape.rank == 3 else tf.expand_dims(V, 0) if C == 1 else tf.broadcast_to(V, tf.shape(Vt))
        return symmetric_product(Vt, each), tf.expand_dims(accumulate_linear(V, linear), -1)

    zero = tf.zeros_like(problem.L) + tf.zeros([C, 1, 1], problem.L.dtype)
    A, c = problem.rows.sum_over_chunks(part, (zero, zero[..., :1]))
    return A, c


def sweep(
    problem: Problem,
    sites: tf.Tensor,
    q: InducingPosterior,
    *,
    least_power: tf.Tensor | float = 0.0,
    negligible: tf.Tensor | float = 0.0,
    shift: tf.Tensor | None = None,
) -> Sweep:
    """
    Sweep over all rows, all under the same q.

    :param sites: [N, 2, C].
    :param least_power: smaller powers are raised to it.
    :param shift: e [M]: the means of all sites of a row, h/τ, are first shifted by V'e.
    :param negligible: see :meth:`~gpflow_pep.tilted.TiltedRule.moments`.
    """
    rows, projected, rule = problem.rows, problem.projected, problem.rule

    def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        here, site = projected(chunk), Site(*take_pair(sites, chunk))
        alpha = tf.maximum(rows.alpha(chunk), least_power)
        if shift is not None:
            shifted = site.linear + site.precision * tf.linalg.matvec(here.V, shift, transpose_a=True)
            site = site._replace(linear=shifted)
        marginal = marginals(q, here.V)
        w = cavity_of_w(marginal, site, alpha)
        tilted = rule.moments(cavity_of_f(w, here), Observations(*chunk.data), alpha, negligible)
        target = matching_site(w, here.conditional_variance, tilted)
        # Without a proper cavity there is nothing to match.
        proper = w.ratio > 0.0
        update = (tf.where(proper, new - old, tf.zeros_like(old)) for new, old in zip(target, site, strict=True))
        by_row = tf.stack([*update, tilted.d1, tilted.d2, *marginal, w.ratio, site.linear])  # [8, C, n]
        terms = row_terms(marginal, site, w, tilted, alpha)
        return tf.transpose(by_row, [2, 0, 1]), tf.expand_dims(terms, 0)

    shapes = ([None, 8, rows.num_latent_gps], [None])
    by_row, terms = rows.chunked.concatenate(part, q.L.dtype, shapes)
    mean, variance, ratio, linear = tf.unstack(by_row[:, 4:], axis=1)
    sites = sites if shift is None else tf.stack([sites[:, 0], linear], axis=1)
    over = rows.all_workers
    row_terms_of_all, least = over.sum(tf.reduce_sum(terms)), -over.largest(-tf.reduce_min(ratio))
    return Sweep(sites, by_row[:, :2], by_row[:, 2:4], mean, variance, row_terms_of_all, least)


def row_terms(marginal: Marginals, site: Site, w: CavityOfW, tilted: Tilted, alpha: tf.Tensor) -> tf.Tensor:
    """
    Compute the rows' part of the energy (JMLR 18(104), eq. 38), summed over rows and latent functions, [].

        log Z / α - log(r)/2α + (τ μ² - 2 h μ + α h² s)/2r
    """
    (t, h), (mu, s) = site, marginal
    quadratic = (t * mu - 2.0 * h) * mu + alpha * tf.square(h) * s
    of_sites = 0.5 * (quadratic / w.ratio - log1p_ratio(alpha, -t * s))
    return tf.reduce_sum(tilted.log_partition) + tf.reduce_sum(of_sites)


def log_integral(q: InducingPosterior, c: tf.Tensor) -> tf.Tensor:
    """Compute the other part, the integral over v: c'B^-1 c/2 - log|B|/2, summed over latent functions, []."""
    return 0.5 * tf.reduce_sum(c * q.b) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(q.LB)))


def evaluate(
    problem: Problem, sites: tf.Tensor, preliminary: tf.Tensor, may_shift: tf.Tensor
) -> tuple[Iterate, tf.Tensor]:
    """
    Sweep at the given sites. The log evidence is NaN if B is not positive definite.

    :return: the iterate, and the smallest ratio of a marginal's and a cavity's variance.
    """
    A, c = sum_sites(problem, sites)
    total = SiteSums(problem.L, A, c).with_old(problem.old)
    factor = tf.linalg.cholesky(precision_B(total.A))
    workers = problem.rows.all_workers
    is_proper = ~workers.any(tf.reduce_any(~tf.math.is_finite(factor)))
    LB = tf.where(is_proper, factor, precision_B(tf.zeros_like(factor)))  # the prior's: what follows is rejected
    q, shift = InducingPosterior(problem.L, LB, tf.linalg.cholesky_solve(LB, total.c)), None
    if problem.rule.is_shift_invariant and problem.old is None and problem.L.shape.rank == 2:
        q, c, shift = _without_common_shift(q, A, c, may_shift)
        total = total._replace(c=c)
    least = tf.where(preliminary, tf.constant(PRELIMINARY_POWER, LB.dtype), 0.0)
    negligible = tf.where(preliminary, tf.constant(np.inf, LB.dtype), _NEGLIGIBLE)
    swept = sweep(problem, sites, q, least_power=least, negligible=negligible, shift=shift)
    terms = swept.terms if problem.old is None else swept.terms + problem.old.terms
    integral = workers.from_chief([tf.where(is_proper, log_integral(q, total.c), np.nan)])[0]
    of_marginals = swept.mean, swept.variance
    change = workers.largest(tf.reduce_max(tf.abs(normalized(swept.update, *of_marginals))))
    energy = integral + terms, tf.abs(integral) + tf.abs(terms)
    iterate = Iterate(swept.sites, swept.update, swept.tilted_derivatives, A, c, *of_marginals, change, *energy)
    return iterate, swept.cavity_ratio


def _without_common_shift(
    q: InducingPosterior, A: tf.Tensor, c: tf.Tensor, allowed: tf.Tensor
) -> tuple[InducingPosterior, tf.Tensor, tf.Tensor]:
    """
    Shift the means of all sites of a row by V'e, so that c becomes c + A e and b becomes b + e - B^-1 e.

    The likelihood does not change if all latent functions are shifted alike. Then d1 sums to 0 over them, and so does
    b = V d1 at converged sites. Only the prior opposes a common shift, and the sites' precisions resist its decay: the
    number of sweeps grows with the ratio of the prior's and q's variance. With P the mean of B^-1, shifting by
    e = -(I - P) (mean of b) leaves 2 P - P² of that mean: little if q is narrow, all of it if q is as wide as the
    prior. If q is much wider, that would be more than before, and nothing is shifted.
    """

    def narrowed(b: tf.Tensor) -> tf.Tensor:
        """b - B^-1 b of every latent function, [C, M, 1]."""
        return b - tf.linalg.cholesky_solve(q.LB, tf.broadcast_to(b, tf.shape(q.b)))

    common = tf.reduce_mean(q.b, axis=0)  # [M, 1]
    e = -tf.reduce_mean(narrowed(common), axis=0)
    b = q.b + narrowed(e)
    helps = allowed & (tf.norm(tf.reduce_mean(b, axis=0)) < tf.norm(common))
    e = choose(helps, e, tf.zeros_like(e))
    return q._replace(b=choose(helps, b, q.b)), c + A @ e, e[:, 0]
