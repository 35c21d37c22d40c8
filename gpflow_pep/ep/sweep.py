"""
Rows, cavities, sites, and one sweep over all rows under a fixed q: updates of the sites, and the
energy; O(N M²).

Whitened, u = L v and w = V'v, V = L^-1 Kuf, is the part of f that u determines: f = w + m(x) + N(0,
d), with d the variance of f given u (times the scale of T-PEP). A site is exp(h w - τ w²/2) (JMLR
18(104), sec. 3.8 and app. F). Its precision τ may be negative, if all cavities and B = I + V
diag(τ) V' are proper. C latent functions lead: [C, ...].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.mean_functions import MeanFunction

from ..engine import (
    Chunk,
    ChunkedData,
    InducingPosterior,
    OldPosteriorSite,
    Prior,
    SiteSums,
    SummedRows,
    conditional_variance_of_f,
    log1p_ratio,
    mean_at,
    watched,
)
from ..maths.linalg import column_products, epsilon, plus_identity, symmetric_product
from ..runtime import ONE_PROCESS, Tensors, Workers
from ..tilted import Cavity, Observations, Tilted, TiltedRule

# Smallest variance of a cavity, even if the prior variance is 0: over it the likelihood is nearly
# constant.
_SMALLEST_VARIANCE = 1e-30
# The least in preliminary sweeps: at 0, derivatives under the prior may be huge or infinite.
PRELIMINARY_POWER = 0.5
# Rounding may lower a bound by these fractions of its value and of the terms that cancel in it, and
# by at least this many eps (larger in single precision only).
_SLACK = 1e-9
_ROUNDING = 1e-12
_SLACK_IN_EPS = 100.0
_ROUNDING_IN_EPS = 10.0


class PriorRows(NamedTuple):
    """The prior of n rows; their C latent functions may share one covariance."""

    Kuf: tf.Tensor  # Covariance of u with f, [M, n] or [C, M, n]
    Kff_diag: tf.Tensor  # Prior variances of f, [n] or [C, n]
    mean: tf.Tensor  # Mean function m(x), [C, n]


class Projected(NamedTuple):
    """n rows given u = L v: f = w + m(x) + N(0, d), w = V'v."""

    V: tf.Tensor  # L^-1 Kuf, [M, n] or [C, M, n]
    # d, the variance of f given u times the scale of T-PEP, [n] or [C, n].
    conditional_variance: tf.Tensor
    mean: tf.Tensor  # m(x), [C, n]


# From derivatives in the rows' prior to derivatives in the inputs of all rows and in variables.
PullBack = Callable[[PriorRows], Tensors]


@dataclass(frozen=True)
class LatentRows(SummedRows):
    """The rows of a model, chunk by chunk."""

    chunked: ChunkedData
    powers: tf.Tensor  # α of all rows [], or one for each row [N]
    prior: Prior
    mean_function: MeanFunction
    num_latent_gps: int
    all_workers: Workers = ONE_PROCESS  # among which the rows are divided

    def __call__(self, chunk: Chunk, *inputs: tf.Tensor) -> PriorRows:
        """Compute the prior of one chunk from `inputs`."""
        X, _ = chunk.data  # [n, D]
        return PriorRows(
            self.prior.Kuf(X, *inputs),
            self.prior.variances(X, *inputs),
            tf.transpose(self.mean(chunk)),
        )

    def mean(self, chunk: Chunk) -> tf.Tensor:
        """Compute m(x) of one chunk's rows, [n, C]."""
        return mean_at(self.mean_function, chunk.data[0], self.num_latent_gps)

    def alpha(self, chunk: Chunk) -> tf.Tensor:
        """Return the power of one chunk's rows, [] or [n]."""
        return chunk.take_blocks(self.powers)


def take_pair(values: tf.Tensor, chunk: Chunk) -> Tensors:
    """Return a chunk of `values` [N, 2, C] as two tensors [C, n]."""
    return tuple(tf.unstack(tf.transpose(chunk.take(values), [1, 2, 0])))


def project(L: tf.Tensor, prior: PriorRows, scale: tf.Tensor) -> Projected:
    """Condition the rows on u, Kuu = L L'; the conditional variance is multiplied by `scale`."""
    V = tf.linalg.triangular_solve(L, prior.Kuf)
    return Projected(V, scale * conditional_variance_of_f(prior.Kff_diag, V, L), prior.mean)


class Site(NamedTuple):
    """Natural parameters of the sites of n rows, [C, n] each."""

    precision: tf.Tensor  # τ
    linear: tf.Tensor  # h, precision times mean


class Marginals(NamedTuple):
    """Moments of w under q, [C, n] each."""

    mean: tf.Tensor  # μ
    variance: tf.Tensor  # s


class CavityOfW(NamedTuple):
    """Moments of w under q without the fraction α of a site, [C, n] each."""

    # r = 1 - α τ s, the marginal's variance over the cavity's; the cavity is proper if r > 0.
    ratio: tf.Tensor
    mean: tf.Tensor
    variance: tf.Tensor


def marginals(q: InducingPosterior, V: tf.Tensor) -> Marginals:
    """Compute mean and variance of w = V'v under q(v)."""
    T = tf.linalg.triangular_solve(q.LB, V)  # [C, M, n]
    return Marginals(project_mean(V, tf.squeeze(q.b, -1)), column_products(T, T))


def project_mean(V: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """
    Compute V'b of every latent function, [C, n]; V is [M, n] if they share it or [C, M, n], b is
    [C, M].
    """
    if V.shape.rank == 2:
        return tf.matmul(b, V)
    return tf.linalg.matvec(V, b, transpose_a=True)


def cavity_of_w(marginal: Marginals, site: Site, alpha: tf.Tensor) -> CavityOfW:
    """Compute N(w; (μ - α h s)/r, s/r); if r is not positive, return the marginal itself."""
    ratio = 1.0 - alpha * site.precision * marginal.variance
    improper = ratio <= 0.0
    safe = tf.where(improper, tf.ones_like(ratio), ratio)
    linear = tf.where(improper, tf.zeros_like(ratio), alpha * site.linear)
    return CavityOfW(
        ratio, (marginal.mean - linear * marginal.variance) / safe, marginal.variance / safe
    )


def cavity_of_f(w: CavityOfW, rows: Projected) -> Cavity:
    """Add the variance given u: N(f; m(x) + mean, d + variance), [C, n]."""
    return Cavity(
        w.mean + rows.mean, tf.maximum(w.variance + rows.conditional_variance, _SMALLEST_VARIANCE)
    )


def matching_site(w: CavityOfW, conditional_variance: tf.Tensor, tilted: Tilted) -> Site:
    """
    Return the site whose power α times the cavity of w has the moments of w under the tilted
    distribution.

        τ = -d2 / (1 + α s d2),    h = (d1 - m d2) / (1 + α s d2),    s, m of the cavity of w.

    The denominator, the tilted variance of w over s, is (d + s ratio)/(d + s), without
    cancellation.
    """
    _, d1, d2, ratio = tilted
    total = tf.maximum(conditional_variance + w.variance, _SMALLEST_VARIANCE)
    factor = total / tf.maximum(
        conditional_variance + w.variance * ratio, _SMALLEST_VARIANCE * ratio
    )
    return Site(-d2 * factor, (d1 - w.mean * d2) * factor)


class Sweep(NamedTuple):
    """The result of a sweep over N rows of C latent functions."""

    sites: tf.Tensor  # the given sites after the shift, [N, 2, C]
    update: tf.Tensor  # the undamped change of the sites' natural parameters τ and h, [N, 2, C]
    tilted_derivatives: tf.Tensor  # d1 and d2 of the tilted distributions, [N, 2, C]
    mean: tf.Tensor  # μ of the marginals of w, [N, C]
    variance: tf.Tensor  # s of the marginals of w, [N, C]
    terms: tf.Tensor  # the rows' part of the energy (row_terms), []
    # The smallest r = 1 - α τ s of a cavity, []; sites with r <= 0 are not updated.
    cavity_ratio: tf.Tensor

    def normalized(self, change: tf.Tensor) -> tf.Tensor:
        """
        Return the relative change Δτ s of a marginal's variance, and (Δh - μ Δτ) √s of its mean,
        [..., N, 2, C].
        """
        precision, linear = tf.unstack(change, axis=-2)
        of_mean = (linear - self.mean * precision) * tf.sqrt(self.variance)
        return tf.stack([precision * self.variance, of_mean], axis=-2)


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
    variables: Sequence[tf.Variable] = ()  # the energy will be differentiated in these
    likelihood_variables: Sequence[tf.Variable] = ()  # those of them that the likelihood has

    @cached_property
    def projected(self) -> Callable[[Any], Projected]:
        """
        Map a chunk to its rows given u, stored or recomputed; access it before tracing a loop that
        uses it.
        """
        only = self._only
        if only is not None:
            return lambda _: only[0]
        if not self.keep:
            return self._project
        kept = self.rows.chunked.keep(self._project, self.L.dtype, len(Projected._fields))
        return lambda chunk: Projected(*kept(chunk))

    def total(self, A: tf.Tensor, c: tf.Tensor) -> SiteSums:
        """Return the sums A and c of the sites, with the site of the old posterior, if any."""
        return SiteSums(self.L, A, c).with_old(self.old)

    def _project(self, chunk: Chunk) -> Projected:
        return project(self.L, self.rows(chunk, *self.rows.prior.inputs), self.scale)

    def watched(self, chunk: Chunk) -> tuple[Projected, PullBack]:
        """
        Return the rows of one chunk given u, and how to differentiate them once, also in the
        variables.
        """
        return self._only or self._watch(chunk)

    @cached_property
    def _only(self) -> tuple[Projected, PullBack] | None:
        """The rows of a single chunk that will be differentiated, computed once."""
        chunk = self.rows.chunked.only_chunk
        if chunk is None or not self.variables:
            return None
        return self._watch(chunk)

    def _watch(self, chunk: Chunk) -> tuple[Projected, PullBack]:
        inputs = self.rows.prior.inputs
        prior, pull_back = watched(self.rows, chunk, inputs, [*inputs, *self.variables])
        is_kept = self.keep and self.rows.chunked.only_chunk is None
        projected = self.projected(chunk) if is_kept else project(self.L, prior, self.scale)
        return projected, pull_back

    def plus_in_likelihood(self, derivatives: Tensors, slopes: Tensors) -> Tensors:
        """Add slopes in the likelihood's variables to derivatives in all variables."""
        keys = [variable.ref() for variable in self.likelihood_variables]
        slope_of = dict(zip(keys, slopes, strict=True))
        pairs = zip(self.variables, derivatives, strict=True)
        return tuple(each + slope_of.get(variable.ref(), 0.0) for variable, each in pairs)

    def no_sweep(self, sites: tf.Tensor) -> Sweep:
        """Return a placeholder for the sweep before the first one."""
        nothing = tf.zeros_like(sites)
        zero = tf.zeros([], sites.dtype)
        return Sweep(sites, nothing, nothing, sites[:, 0], sites[:, 0], zero, zero)

    def sum_sites(self, sites: tf.Tensor) -> Tensors:
        """Compute A = V diag(τ) V' [C, M, M] and c = V h [C, M, 1] of all sites [N, 2, C]."""
        C = self.rows.num_latent_gps
        projected = self.projected

        def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            V, (precision, linear) = projected(chunk).V, take_pair(sites, chunk)
            Vt = V * tf.expand_dims(precision, 1)  # [C, M, n]
            if V.shape.rank == 2:  # all latent functions share V
                c = tf.matmul(linear, V, transpose_b=True)  # [C, M]
                V = tf.expand_dims(V, 0)
                if C > 1:
                    V = tf.broadcast_to(V, tf.shape(Vt))
            else:
                c = tf.linalg.matvec(V, linear)
            return symmetric_product(Vt, V), tf.expand_dims(c, -1)

        zero = tf.zeros_like(self.L) + tf.zeros([C, 1, 1], self.L.dtype)
        return self.rows.sum_over_chunks(part, (zero, zero[..., :1]))

    def sweep(
        self,
        sites: tf.Tensor,
        q: InducingPosterior,
        *,
        least_power: tf.Tensor | float = 0.0,
        negligible: tf.Tensor | float = 0.0,
        shift: tf.Tensor | None = None,
    ) -> Sweep:
        """
        Sweep over all rows under the same q; sites [N, 2, C].

        :param least_power: smaller powers are raised to this value.
        :param negligible: see :meth:`~gpflow_pep.tilted.TiltedRule.moments`.
        :param shift: e [M]; the means h/τ of all sites of a row are first shifted by V'e.
        """
        rows = self.rows
        projected = self.projected

        def part(chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            here = projected(chunk)
            site = Site(*take_pair(sites, chunk))
            alpha = tf.maximum(rows.alpha(chunk), least_power)
            if shift is not None:
                shifted = site.linear + site.precision * tf.linalg.matvec(
                    here.V, shift, transpose_a=True
                )
                site = site._replace(linear=shifted)
            marginal = marginals(q, here.V)
            w = cavity_of_w(marginal, site, alpha)
            tilted = self.rule.moments(
                cavity_of_f(w, here), Observations(*chunk.data), alpha, negligible
            )
            target = matching_site(w, here.conditional_variance, tilted)
            # Sites with an improper cavity are not updated.
            proper = w.ratio > 0.0
            update = (
                tf.where(proper, new - old, 0.0) for new, old in zip(target, site, strict=True)
            )
            by_row = tf.stack(
                [*update, tilted.d1, tilted.d2, *marginal, w.ratio, site.linear]
            )  # [8, C, n]
            terms = row_terms(marginal, site, w, tilted, alpha)
            return tf.transpose(by_row, [2, 0, 1]), terms[None]

        shapes = ([None, 8, rows.num_latent_gps], [None])
        by_row, terms = rows.chunked.concatenate(part, q.L.dtype, shapes)
        mean, variance, ratio, linear = tf.unstack(by_row[:, 4:], axis=1)
        if shift is not None:
            sites = tf.stack([sites[:, 0], linear], axis=1)
        over = rows.all_workers
        row_terms_of_all = over.sum(tf.reduce_sum(terms))
        least = -over.largest(-tf.reduce_min(ratio))
        return Sweep(sites, by_row[:, :2], by_row[:, 2:4], mean, variance, row_terms_of_all, least)


class Iterate(NamedTuple):
    """A sweep, and the sums and the energy at its sites."""

    swept: Sweep
    A: tf.Tensor  # V diag(τ) V', [C, M, M]
    c: tf.Tensor  # V h, [C, M, 1]
    change: tf.Tensor  # the largest change of a marginal by the update of its site, []
    log_evidence: tf.Tensor  # the energy; NaN if B is not positive definite, []
    canceling: tf.Tensor  # the size of the terms that cancel in it, []

    def rounding(self) -> tf.Tensor:
        """Return a bound on the rounding error of the energy."""
        eps = epsilon(self.log_evidence.dtype)
        slack = max(_SLACK, _SLACK_IN_EPS * eps)
        rounding = max(_ROUNDING, _ROUNDING_IN_EPS * eps)
        return slack * tf.abs(self.log_evidence) + rounding * self.canceling


def choose(condition: tf.Tensor, one: object, two: object) -> Any:
    """
    Select a structure by a scalar; `tf.where` would broadcast it to [N, 2, C], which takes 200
    times as long.
    """
    return tf.nest.map_structure(
        lambda x, y: x if x is y else tf.raw_ops.Select(condition=condition, x=x, y=y), one, two
    )


def row_terms(
    marginal: Marginals, site: Site, w: CavityOfW, tilted: Tilted, alpha: tf.Tensor
) -> tf.Tensor:
    """
    Compute the rows' part of the energy (JMLR 18(104), eq. 38), summed over rows and latent
    functions, [].

        log Z / α - log(r)/2α + (τ μ² - 2 h μ + α h² s)/2r
    """
    (t, h), (mu, s) = site, marginal
    quadratic = (t * mu - 2.0 * h) * mu + alpha * tf.square(h) * s
    of_sites = 0.5 * (quadratic / w.ratio - log1p_ratio(alpha, -t * s))
    return tf.reduce_sum(tilted.log_partition) + tf.reduce_sum(of_sites)


def log_integral(q: InducingPosterior, c: tf.Tensor) -> tf.Tensor:
    """
    Compute the Gaussian integral over v: c'B^-1 c/2 - log|B|/2, summed over latent functions, [].
    """
    return 0.5 * tf.reduce_sum(c * q.b) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(q.LB)))


def evaluate(
    problem: Problem,
    sites: tf.Tensor,
    preliminary: tf.Tensor,
    may_shift: tf.Tensor,
    negligible: tf.Tensor,
) -> Iterate:
    """
    Compute sums, q and energy at the sites, and sweep.

    :param preliminary: raise small powers.
    :param may_shift: shift all sites by a common shift.
    :param negligible: see :meth:`~gpflow_pep.tilted.TiltedRule.moments`.
    """
    A, c = problem.sum_sites(sites)
    total = problem.total(A, c)
    factor = tf.linalg.cholesky(plus_identity(total.A))
    workers = problem.rows.all_workers
    is_proper = ~workers.any(tf.reduce_any(~tf.math.is_finite(factor)))
    LB = tf.where(
        is_proper, factor, plus_identity(tf.zeros_like(factor))
    )  # the prior's: NaN as energy rejects it
    q = InducingPosterior(problem.L, LB, tf.linalg.cholesky_solve(LB, total.c))
    shift = None
    if problem.rule.is_shift_invariant and problem.old is None and problem.L.shape.rank == 2:
        q, c, shift = _without_common_shift(q, A, c, may_shift)
        total = total._replace(c=c)
    least = tf.where(preliminary, tf.constant(PRELIMINARY_POWER, LB.dtype), 0.0)
    swept = problem.sweep(sites, q, least_power=least, negligible=negligible, shift=shift)
    terms = swept.terms if problem.old is None else swept.terms + problem.old.terms
    integral = workers.from_chief([tf.where(is_proper, log_integral(q, total.c), np.nan)])[0]
    change = workers.largest(tf.reduce_max(tf.abs(swept.normalized(swept.update))))
    return Iterate(swept, A, c, change, integral + terms, tf.abs(integral) + tf.abs(terms))


def _without_common_shift(
    q: InducingPosterior, A: tf.Tensor, c: tf.Tensor, allowed: tf.Tensor
) -> tuple[InducingPosterior, tf.Tensor, tf.Tensor]:
    """
    Shift the means of all sites of a row by V'e, so that c becomes c + A e and b becomes b + e -
    B^-1 e.

    If the likelihood is invariant to it, b = V d1 sums to 0 over the latent functions at converged
    sites, but only the prior reduces a common shift: the number of sweeps grows with the ratio of
    the variances of prior and q. With P the mean of B^-1, e = -(I - P) (mean of b) leaves 2 P - P²
    of that mean: little if q is narrow, all of it if q is as wide as the prior. If q is much wider,
    the shift would increase the mean, so none is applied.
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
