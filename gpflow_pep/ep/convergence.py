"""Sweeps until the sites have converged, in one compiled loop; nothing improper is ever accepted.

All sites are updated from the same q, by a fraction that adapts, in Anderson's direction (:mod:`.acceleration`) where
there is one. A candidate is rejected where B or a cavity is not positive definite or, if the energy is a lower bound
(an update is then a natural gradient of it), where it lowers that bound.

Fixed points may be unstable at any fraction: if labels contradict each other, say. If sweeps stop approaching one,
Newton's method continues from the best sites: it sweeps at sites nearby (probes), which gives derivatives
along the directions that matter (generalized conjugate residuals), then tries the step that follows from them, halved
until it makes the update smaller.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..engine import InducingPosterior, OldSite, SiteSums, precision_B
from ..tilted import TiltedRule
from .acceleration import Secants, Step
from .energy import log_integral
from .rows import LatentRows, ProjectedRows
from .sweep import normalized, sum_sites, sweep

SWEEPING, PROBING, TRYING = range(3)
"""What the candidate is: the next sites of a sweep, sites near the point, or the end of a Newton step from it."""
RUNNING, CONVERGED, LIMIT, STUCK, IMPROPER = range(5)
"""How the loop ended: after max_sweeps (LIMIT), where no update is proper (STUCK), or not even the prior (IMPROPER)."""

# The first sweeps from empty sites where a power is small: down to this change, and so many of them at most. Tilted
# distributions may be inaccurate then, and powers are 1/2: at 0 their slopes may be huge, or infinite, under the prior.
_PRELIMINARY, _MAX_PRELIMINARY, _PRELIMINARY_POWER = 0.02, 5, 0.5
# Tilted distributions are integrated to 1e-8 of themselves, or of this: 1e-12 of log Z, a mean or a variance.
_NEGLIGIBLE = 1e-4
# Rounding may lower a bound by these fractions of its value and of the terms that cancel in it; but at least by this
# many eps, which is more in single precision only.
_SLACK, _ROUNDING = 1e-9, 1e-12
_SLACK_IN_EPS, _ROUNDING_IN_EPS = 100.0, 10.0
_MAY_LOWER = 1e-3  # updates by at most this fraction can lower a bound by rounding only
_FORGET_ABOVE, _FORGET_GROWTH = 0.2, 2.0  # after changes this large, or growing this much, forget earlier secants
_SMALLEST_FRACTION = 1e-4  # of the damping
_LEAST_DAMPED = 0.02  # the fraction below which oscillation does not damp
_MAX_HALVINGS = 12  # of sites that are improper from the start; then they are dropped
_ATTEMPT_DAMPING = (1.0, 1.0, 1.0, 0.3, 0.1)  # of the damping, in one attempt after the other
_PATIENCE = 30  # sweeps that do not halve the change before Newton's method goes on; twice as many where it failed
_SOLVED = 0.1  # what probes may leave of an update, as a fraction
_NEARBY = (1e-5, 1e-3)  # limits of the distance of a probe from the point, which is that of the update
_SMALLEST_STEP = 0.01  # of Newton's steps
_LEAST_DECREASE = 0.01  # of the norm of the update, as a fraction, by a whole Newton step
_NEWTON_DEPTH = 5  # the least number of secants for it
_FEW_SWEEPS = 10  # sweeps at a time, which need not converge, but must go on: the change may grow before it falls
_DEPTHS = {20_000: 15, 100_000: 5}  # secants remembered, where there are no more sites than this


class SitesProblem(NamedTuple):
    """The model quantities that the sites are updated for."""

    rows: LatentRows
    projected: ProjectedRows
    rule: TiltedRule
    L: tf.Tensor
    old: OldSite | None
    is_bound: tf.Tensor
    """Whether the energy is a lower bound of the log evidence, []."""


class Options(NamedTuple):
    """Tolerance, largest number of sweeps, and damping."""

    tol: tf.Tensor
    max_sweeps: tf.Tensor
    damping: tf.Tensor


class Point(NamedTuple):
    """Sites, and the results of a sweep at them."""

    sites: tf.Tensor
    """[N, 2, C]"""
    update: tf.Tensor
    """The undamped update, [N, 2, C]."""
    slopes: tf.Tensor
    """d1 and d2 of the tilted distributions, [N, 2, C]."""
    A: tf.Tensor
    """V diag(τ) V', [C, M, M]."""
    c: tf.Tensor
    """V h, [C, M, 1]."""
    mean: tf.Tensor
    """μ of the marginals of w, [N, C]."""
    variance: tf.Tensor
    """s of the marginals of w, [N, C]."""
    change: tf.Tensor
    """The largest change of a marginal by the update of its own site, []."""
    log_evidence: tf.Tensor
    """The energy, []."""
    canceling: tf.Tensor
    """The size of the terms that cancel in it, []."""

    def normalized(self, change: tf.Tensor) -> tf.Tensor:
        """Express changes of the sites [..., N, 2, C] as those of their own marginals, without unit."""
        return normalized(change, self.mean, self.variance)


class Converged(NamedTuple):
    """The sites at the end of the loop, and how it ended."""

    point: Point
    sweeps: tf.Tensor
    fraction: tf.Tensor
    ending: tf.Tensor


class _Loop(NamedTuple):
    """The state of the loop: the last accepted point, the sites to try next, and how to go on from there."""

    point: Point
    is_valid: tf.Tensor
    """Whether there is an accepted point yet."""
    candidate: tf.Tensor
    kind: tf.Tensor
    """What the candidate is: SWEEPING, PROBING or TRYING."""
    is_plain: tf.Tensor
    """Whether the candidate is not accelerated."""
    fraction: tf.Tensor
    comparable: tf.Tensor
    """Whether the update of the point was followed at once, so that the next one can be compared with it."""
    secants: Secants
    newton: tf.Tensor
    """Newton's step from the point, [N, 2, C]."""
    step_size: tf.Tensor
    """The fraction of it that is tried; 0 to begin with, at the best sites."""
    best: tf.Tensor
    """Sites of the smallest change, or of the largest bound, [N, 2, C]."""
    best_change: tf.Tensor
    """Their change; infinite where no sites have been proper."""
    best_evidence: tf.Tensor
    to_halve: tf.Tensor
    """The change when sweeps last made progress, which they must halve."""
    stalled: tf.Tensor
    """Sweeps since then."""
    patience: tf.Tensor
    """How many of them there may be."""
    preliminary: tf.Tensor
    """Whether these are the first sweeps from empty sites."""
    attempt: tf.Tensor
    """From the sites given (0), from none with preliminary sweeps (1), from none without (2 and more)."""
    halvings: tf.Tensor
    sweeps: tf.Tensor
    final_ending: tf.Tensor
    """How the loop ends once it has swept at the candidate, the best sites; otherwise RUNNING."""
    ending: tf.Tensor


def converge(
    problem: SitesProblem, sites: tf.Tensor, options: Options, *, num_data: int, fraction: tf.Tensor | None = None
) -> Converged:
    """
    Update sites [N, 2, C] until no update would change a site's own marginal by more than `tol`.

    :param num_data: N when this is traced, which decides whether secants are remembered.
    :param fraction: the largest fraction of the first update to take; None: the damping. After a loop that ended at
        its limit pass its last fraction: with few sweeps at a time, the same step would otherwise be repeated.
    """
    fraction = options.damping if fraction is None else fraction
    fraction = tf.clip_by_value(fraction, _LEAST_DAMPED * options.damping, options.damping)
    C, dtype = problem.rows.num_latent_gps, problem.L.dtype
    zero, inf = tf.zeros([], dtype), tf.constant(np.inf, dtype)
    A = tf.zeros_like(problem.L) + tf.zeros([C, 1, 1], dtype)
    nothing = tf.zeros_like(sites)
    is_empty = tf.reduce_all(tf.equal(sites, 0.0)) & (options.max_sweeps > 1)  # otherwise they would stay empty
    is_preliminary = is_empty & tf.reduce_any(problem.rows.alpha_of_all < _PRELIMINARY_POWER)
    first = _Loop(
        point=Point(sites, nothing, nothing, A, A[..., :1], sites[:, 0], sites[:, 0], inf, -inf, zero),
        is_valid=tf.constant(False),
        candidate=sites,
        kind=tf.constant(SWEEPING),
        is_plain=tf.constant(True),
        fraction=fraction,
        comparable=tf.constant(False),
        secants=Secants.none(next((depth for most, depth in _DEPTHS.items() if num_data * C <= most), 1), sites),
        newton=nothing,
        step_size=zero,
        best=sites,
        best_change=inf,
        best_evidence=-inf,
        to_halve=inf,
        stalled=tf.constant(0),
        patience=tf.constant(_PATIENCE),
        preliminary=is_preliminary,
        attempt=tf.where(is_preliminary, 1, tf.where(is_empty, 2, 0)),
        halvings=tf.constant(0),
        sweeps=tf.constant(-1),
        final_ending=tf.constant(RUNNING),
        ending=tf.constant(RUNNING),
    )
    last: _Loop = tf.while_loop(
        lambda loop: tf.equal(loop.ending, RUNNING),
        lambda loop: [_step(problem, options, loop)],
        [first],
        parallel_iterations=1,
    )[0]
    return Converged(last.point, last.sweeps, last.fraction, last.ending)


def _step(problem: SitesProblem, options: Options, loop: _Loop) -> _Loop:
    """Sweep at the candidate, accept or reject it, and choose the next one."""
    # Sites that are given or returned to are evaluated as they are: converged ones stay so to the last digit.
    may_shift = (loop.sweeps >= 0) & tf.equal(loop.final_ending, RUNNING) & ~_returns_to_best(loop)
    found, cavity_ratio = _evaluate(problem, loop.candidate, loop.preliminary, may_shift)
    last, sweeping, probing = loop.point, tf.equal(loop.kind, SWEEPING), tf.equal(loop.kind, PROBING)
    accepted = tf.math.is_finite(found.log_evidence) & tf.math.is_finite(found.change) & (cavity_ratio > 0.0)
    accepted &= probing | (_keeps_bound(problem, options, loop, found) & (sweeping | _is_nearer(problem, loop, found)))
    loop = loop._replace(sweeps=loop.sweeps + 1)
    preliminary_ends = _preliminary_ends(options, loop, found)

    moves = accepted & ~probing
    limit = tf.minimum(tf.constant(_FORGET_ABOVE, last.change.dtype), _FORGET_GROWTH * last.change)
    secants = loop.secants.updated(
        found.sites - last.sites,
        found.update - last.update,
        add=accepted & (probing | (sweeping & loop.comparable)),
        forget=tf.where(sweeping, ~accepted | (found.change > limit) | preliminary_ends, moves),
    )
    point: Point = _select(moves, found, last)
    step = secants.step(point.update, point.normalized)
    better = tf.where(problem.is_bound, point.log_evidence >= loop.best_evidence, point.change < loop.best_change)
    is_best = moves & ~loop.preliminary & better
    loop = loop._replace(
        point=point,
        secants=secants,
        best=tf.where(is_best, point.sites, loop.best),
        best_change=tf.where(is_best, point.change, loop.best_change),
        best_evidence=tf.where(is_best, point.log_evidence, loop.best_evidence),
    )
    converged = moves & ~loop.preliminary & (point.change <= options.tol)

    swept = _select(accepted, _accept(options, loop, last, step, preliminary_ends), _reject(options, loop))
    tried = _select(accepted, _follow(loop, step), _halve(options, loop))
    loop = _select(sweeping, swept, _select(probing, _probe_on(loop, accepted, step), tried))
    ending = tf.where(moves, loop.final_ending, loop.ending)
    return _end(options, loop._replace(ending=tf.where(converged, CONVERGED, ending)))


def _select(condition: tf.Tensor, one: Any, two: Any) -> Any:
    return tf.nest.map_structure(lambda x, y: x if x is y else tf.where(condition, x, y), one, two)


def _evaluate(
    problem: SitesProblem, sites: tf.Tensor, preliminary: tf.Tensor, may_shift: tf.Tensor
) -> tuple[Point, tf.Tensor]:
    """
    Sweep at the given sites. The log evidence is NaN where B is not positive definite.

    :return: what is found, and the smallest ratio of a marginal's and a cavity's variance.
    """
    A, c = sum_sites(problem.rows, problem.projected, sites, problem.L)
    total = SiteSums(problem.L, A, c).with_old(problem.old)
    factor = tf.linalg.cholesky(precision_B(total.A))
    is_proper = tf.reduce_all(tf.math.is_finite(factor))
    LB = tf.where(is_proper, factor, tf.eye(tf.shape(factor)[-1], dtype=factor.dtype))
    q, shift = InducingPosterior(problem.L, LB, tf.linalg.cholesky_solve(LB, total.c)), None
    if problem.rule.is_shift_invariant and problem.old is None and problem.L.shape.rank == 2:
        q, c, shift = _without_common_shift(q, A, c, may_shift)
        total = total._replace(c=c)
    least = tf.where(preliminary, tf.constant(_PRELIMINARY_POWER, LB.dtype), 0.0)
    rows = problem.rows.with_alpha(lambda alpha: tf.maximum(alpha, least))
    negligible = tf.where(preliminary, tf.constant(np.inf, LB.dtype), _NEGLIGIBLE)
    found = sweep(rows, problem.projected, problem.rule, sites, q, negligible=negligible, shift=shift)
    terms = found.terms if problem.old is None else found.terms + problem.old.terms
    integral = tf.where(is_proper, log_integral(q, total.c), np.nan)
    of_marginals = found.mean, found.variance
    change = tf.reduce_max(tf.abs(normalized(found.update, *of_marginals)))
    energy = integral + terms, tf.abs(integral) + tf.abs(terms)
    point = Point(found.sites, found.update, found.slopes, A, c, *of_marginals, change, *energy)
    return point, found.cavity_ratio


def _without_common_shift(
    q: InducingPosterior, A: tf.Tensor, c: tf.Tensor, allowed: tf.Tensor
) -> tuple[InducingPosterior, tf.Tensor, tf.Tensor]:
    """
    Shift the means of all sites of a row by V'e, so that c becomes c + A e and b becomes b + e - B^-1 e.

    What is added to all latent functions does not change their likelihood. Then d1 sums to 0 over them, and so does
    b = V d1 where the sites have converged. The sites' precisions resist a common shift that only the prior opposes: by
    sweeps alone it decays in about as many of them as q is narrower than the prior. With P the mean of B^-1, shifting
    by e = -(I - P) (mean of b) leaves 2 P - P² of that mean: little where q is narrow, and all of it where q is as wide
    as the prior. Where it is much wider that would be more than before, and nothing is shifted.
    """

    def narrowed(b: tf.Tensor) -> tf.Tensor:
        """b - B^-1 b of every latent function, [C, M, 1]."""
        return b - tf.linalg.cholesky_solve(q.LB, tf.broadcast_to(b, tf.shape(q.b)))

    common = tf.reduce_mean(q.b, axis=0)  # [M, 1]
    e = -tf.reduce_mean(narrowed(common), axis=0)
    b = q.b + narrowed(e)
    helps = allowed & (tf.norm(tf.reduce_mean(b, axis=0)) < tf.norm(common))
    e = tf.where(helps, e, tf.zeros_like(e))
    return q._replace(b=tf.where(helps, b, q.b)), c + A @ e, e[:, 0]


def _keeps_bound(problem: SitesProblem, options: Options, loop: _Loop, point: Point) -> tf.Tensor:
    """Return whether a bound has not decreased by more than rounding."""
    applies = problem.is_bound & loop.is_valid & ~loop.preliminary & tf.equal(loop.final_ending, RUNNING)
    applies &= (loop.fraction > _MAY_LOWER * options.damping) & ~_returns_to_best(loop)
    return ~applies | (point.log_evidence >= loop.point.log_evidence - _rounding(loop.point))


def _is_nearer(problem: SitesProblem, loop: _Loop, point: Point) -> tf.Tensor:
    """Return whether a Newton step has made the update smaller, or a bound larger."""
    before, now = (tf.norm(each.normalized(each.update)) for each in (loop.point, point))
    gains = problem.is_bound & (point.log_evidence > loop.point.log_evidence + _rounding(loop.point))
    return (now < (1.0 - _LEAST_DECREASE * loop.step_size) * before) | gains | _returns_to_best(loop)


def _returns_to_best(loop: _Loop) -> tf.Tensor:
    return tf.equal(loop.kind, TRYING) & tf.equal(loop.step_size, 0.0)


def _rounding(point: Point) -> tf.Tensor:
    """By how much rounding may change the energy."""
    eps = float(np.finfo(point.log_evidence.dtype.as_numpy_dtype).eps)
    slack, rounding = max(_SLACK, _SLACK_IN_EPS * eps), max(_ROUNDING, _ROUNDING_IN_EPS * eps)
    return slack * tf.abs(point.log_evidence) + rounding * point.canceling


def _preliminary_ends(options: Options, loop: _Loop, point: Point) -> tf.Tensor:
    small = tf.maximum(tf.constant(_PRELIMINARY, point.change.dtype), options.tol)
    ends = (point.change < small) | (point.change > loop.point.change)
    return loop.preliminary & (ends | (loop.sweeps >= _MAX_PRELIMINARY) | (loop.sweeps >= options.max_sweeps - 1))


def _accept(options: Options, loop: _Loop, last: Point, step: Step, preliminary_ends: tf.Tensor) -> _Loop:
    """Go on from the point, where the last one was followed at once or not; or leave sweeps that do not help."""
    point = loop.point
    fraction = tf.where(loop.comparable, _adapted(loop, last, _largest(options, loop.attempt)), loop.fraction)
    progress = point.change < 0.5 * loop.to_halve
    stalled = tf.where(progress, 0, loop.stalled + 1)
    enters = (stalled >= loop.patience) & (loop.secants.depth >= _NEWTON_DEPTH) & (loop.sweeps < options.max_sweeps - 1)
    following = tf.where(preliminary_ends, point.sites, point.sites + step.move(fraction))
    return loop._replace(
        is_valid=~preliminary_ends,  # the sites are evaluated again
        candidate=tf.where(enters, loop.best, following),
        kind=tf.where(enters, TRYING, SWEEPING),
        is_plain=tf.equal(loop.secants.count, 0),
        fraction=fraction,
        comparable=~preliminary_ends,
        step_size=tf.zeros_like(fraction),
        to_halve=tf.where(progress, point.change, loop.to_halve),
        stalled=stalled,
        preliminary=loop.preliminary & ~preliminary_ends,
    )


def _nearby(point: Point, direction: tf.Tensor) -> tf.Tensor:
    """Return sites near the point, in this direction."""
    size = tf.clip_by_value(point.change, *(tf.constant(limit, direction.dtype) for limit in _NEARBY))
    return point.sites + tf.math.divide_no_nan(size, tf.reduce_max(tf.abs(point.normalized(direction)))) * direction


def _follow(loop: _Loop, step: Step) -> _Loop:
    """Go on from the end of a Newton step: probe in the direction of the update."""
    return loop._replace(candidate=_nearby(loop.point, step.left), kind=tf.constant(PROBING))


def _halve(options: Options, loop: _Loop) -> _Loop:
    """Try half of a Newton step; go back to sweeps where that is too small."""
    size = 0.5 * loop.step_size
    fails = size < _SMALLEST_STEP
    return loop._replace(
        candidate=tf.where(fails, loop.point.sites, loop.point.sites + size * loop.newton),
        kind=tf.where(fails, SWEEPING, TRYING),
        fraction=tf.where(fails, _largest(options, loop.attempt), loop.fraction),
        comparable=loop.comparable & ~fails,
        step_size=size,
        stalled=tf.where(fails, 0, loop.stalled),
        patience=tf.where(fails, 2 * loop.patience, loop.patience),
    )


def _probe_on(loop: _Loop, accepted: tf.Tensor, step: Step) -> _Loop:
    """Probe in the direction of what is left of the update, or try Newton's step if little is."""
    point = loop.point
    left, whole = (tf.norm(point.normalized(change)) for change in (step.left, point.update))
    enough = ~accepted | (loop.secants.count >= loop.secants.depth) | (left < _SOLVED * whole)
    return loop._replace(
        candidate=tf.where(enough, point.sites + step.newton, _nearby(point, step.left)),
        kind=tf.where(enough, TRYING, PROBING),
        newton=step.newton,
        step_size=tf.ones_like(loop.step_size),
    )


def _adapted(loop: _Loop, last: Point, largest: tf.Tensor) -> tf.Tensor:
    """
    Adapt the fraction of an update to take. It is halved when an update undid much of the one before, or made the
    remaining change larger (twice as large, where both went the same way), and otherwise grows by a fifth.
    """
    point = loop.point
    before, now = point.normalized(last.update), point.normalized(point.update)
    norms = tf.norm(before) * tf.norm(now)
    cosine = tf.reduce_sum(before * now) / tf.where(norms > 0.0, norms, tf.ones_like(norms))
    tolerated = tf.where(cosine > 0.5, 2.0 * last.change, last.change)
    halve = (cosine < -0.3) | (point.change > tolerated)
    least = tf.minimum(tf.constant(_LEAST_DAMPED, largest.dtype), largest)
    return tf.where(halve, tf.maximum(0.5 * loop.fraction, least), tf.minimum(1.2 * loop.fraction, largest))


def _largest(options: Options, attempt: tf.Tensor) -> tf.Tensor:
    """Return the largest fraction of an update that is taken."""
    return options.damping * tf.gather(tf.constant(_ATTEMPT_DAMPING, options.damping.dtype), attempt)


def _reject(options: Options, loop: _Loop) -> _Loop:
    """Take a plain update instead of an accelerated one, then a smaller fraction; scale down improper initial sites."""
    fraction = tf.where(loop.is_plain & loop.is_valid, 0.5 * loop.fraction, loop.fraction)
    halvings = loop.halvings + tf.cast(~loop.is_valid, tf.int32)
    kept = tf.where(halvings > _MAX_HALVINGS, tf.zeros_like(fraction), tf.constant(0.5, fraction.dtype))
    update = loop.point.sites + fraction * loop.point.update
    improper = tf.where(halvings > _MAX_HALVINGS + 1, IMPROPER, loop.final_ending)
    stuck = loop.is_valid & (fraction < _SMALLEST_FRACTION * options.damping)
    return loop._replace(
        candidate=tf.where(loop.is_valid, update, kept * loop.candidate),
        is_plain=tf.constant(True),
        fraction=fraction,
        comparable=tf.constant(False),
        stalled=loop.stalled + 1,
        halvings=halvings,
        ending=tf.where(stuck & tf.equal(improper, RUNNING), STUCK, improper),
    )


def _end(options: Options, loop: _Loop) -> _Loop:
    """
    Start again from empty sites where no update is proper; end after `max_sweeps`.

    Where the sites have not converged, end with the best that were seen, but for few sweeps at a time. Where none were
    proper yet, or preliminary ones only, those are evaluated as they are, or else empty ones.
    """
    has_best = loop.best_change < np.inf
    is_accurate = loop.is_valid & ~loop.preliminary
    out = tf.equal(loop.ending, RUNNING) & (loop.sweeps >= options.max_sweeps)
    ending = tf.where(out, LIMIT, loop.ending)
    ending = tf.where(has_best & tf.equal(ending, IMPROPER), STUCK, ending)
    is_last = ~tf.equal(loop.final_ending, RUNNING)
    fails = (ending > CONVERGED) & ~is_last
    restarts = fails & ~out & (loop.attempt < len(_ATTEMPT_DAMPING) - 1)
    goes_on = tf.equal(ending, LIMIT) & (options.max_sweeps <= _FEW_SWEEPS) & is_accurate
    is_worse = ~is_accurate | (loop.best_change < loop.point.change)
    returns = fails & ~restarts & ~goes_on & is_worse & ~tf.equal(ending, IMPROPER)
    # The last evaluation is of sites that were proper before, unless none were.
    ending = tf.where(is_last & ~has_best, IMPROPER, ending)
    empty = tf.zeros_like(loop.candidate)
    last = tf.where(has_best, loop.best, tf.where(loop.preliminary, loop.point.sites, empty))
    candidate = tf.where(returns, last, loop.candidate)
    attempt = loop.attempt + tf.cast(restarts, tf.int32)
    inf = tf.constant(np.inf, loop.to_halve.dtype)
    return loop._replace(
        point=loop.point._replace(change=tf.where(restarts, inf, loop.point.change)),
        candidate=tf.where(restarts, empty, candidate),
        kind=tf.where(restarts | returns, SWEEPING, loop.kind),
        stalled=tf.where(restarts, 0, loop.stalled),
        patience=tf.where(restarts, _PATIENCE, loop.patience),
        to_halve=tf.where(restarts, inf, loop.to_halve),
        comparable=loop.comparable & ~restarts & ~returns,
        is_valid=loop.is_valid & ~restarts,
        fraction=tf.where(restarts, _largest(options, attempt), loop.fraction),
        preliminary=tf.where(restarts, tf.equal(attempt, 1), loop.preliminary & ~returns),
        attempt=attempt,
        halvings=tf.where(restarts, 0, loop.halvings),
        final_ending=tf.where(returns, ending, loop.final_ending),
        ending=tf.where(returns | restarts, RUNNING, ending),
    )
