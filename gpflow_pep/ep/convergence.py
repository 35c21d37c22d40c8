"""Sweeps until the sites have converged, in one compiled loop; nothing improper is ever accepted.

All sites are updated from the same q, by a fraction that adapts, in Anderson's direction (:mod:`.acceleration`) where
there is one. A candidate is rejected where B or a cavity is not positive definite or, if the energy is a lower bound
(an update is then a natural gradient of it), where it lowers that bound.

Fixed points may be unstable at any fraction: if labels contradict each other, say. If sweeps stop approaching one,
Newton's method continues from the best sites (:mod:`.newton`).
"""

from functools import partial

import numpy as np
import tensorflow as tf

from ..engine import InducingPosterior, SiteSums, precision_B
from ..runtime.checks import asserted
from ..runtime.distribution import Workers
from ..runtime.tracing import in_xla, on_demand
from .anderson import Secants, Step, choose
from .newton import follow, halve, is_nearer, probe_on, returns_to_best
from .solution import (
    ATTEMPT_DAMPING,
    CONVERGED,
    IMPROPER,
    LIMIT,
    NEWTON_STEP,
    PROBING,
    RUNNING,
    STUCK,
    SWEEPING,
    ConvergenceOptions,
    Iterate,
    Loop,
    LoopResult,
    SitesProblem,
    largest_fraction,
    rounding,
)
from .sweep import log_integral, normalized, sum_sites, sweep

# The first sweeps from empty sites where a power is small: down to this change, and so many of them at most. Tilted
# distributions may be inaccurate then, and powers are 1/2: at 0 derivatives may be huge, or infinite, under the prior.
_PRELIMINARY, _MAX_PRELIMINARY, _PRELIMINARY_POWER = 0.02, 5, 0.5
# Tilted distributions are integrated to 1e-8 of themselves, or of this: 1e-12 of log Z, a mean or a variance.
_NEGLIGIBLE = 1e-4
_MAY_LOWER = 1e-3  # updates by at most this fraction can lower a bound by rounding only
_FORGET_ABOVE, _FORGET_GROWTH = 0.2, 2.0  # after changes this large, or growing this much, forget earlier secants
_SMALLEST_FRACTION = 1e-4  # of the damping; where a smaller update is rejected the loop is stuck
_LEAST_DAMPED = 0.02  # of the damping; oscillation does not make the fraction of an update smaller than this
_MAX_HALVINGS = 12  # of sites that are improper from the start; then they are dropped
_PATIENCE = 30  # sweeps that do not halve the change before Newton's method goes on; twice as many where it failed
_NEWTON_DEPTH = 5  # the least number of secants for it
_FEW_SWEEPS = 10  # sweeps at a time, which need not converge, but must go on: the change may grow before it falls
_DEPTHS = {20_000: 15, 100_000: 5}  # secants remembered, where there are no more sites than this


def converge(
    problem: SitesProblem,
    sites: tf.Tensor,
    options: ConvergenceOptions,
    *,
    num_data: int,
    fraction: tf.Tensor | None = None,
    interrupt_after: int | None = None,
) -> LoopResult:
    """
    Update sites [N, 2, C] until no update would change a site's own marginal by more than `tol`.

    :param num_data: N when this is traced, which decides whether secants are remembered.
    :param fraction: the largest fraction of the first update to take; None: the damping. After a loop that ended at
        its limit pass its last fraction: with few sweeps at a time, the same step would otherwise be repeated.
    :param interrupt_after: sweeps after which the loop is left as it is, RUNNING; None: never.
    """
    fraction = options.damping if fraction is None else fraction
    fraction = tf.clip_by_value(fraction, _LEAST_DAMPED * options.damping, options.damping)
    C, dtype = problem.rows.num_latent_gps, problem.L.dtype
    zero, inf = tf.zeros([], dtype), tf.constant(np.inf, dtype)
    A = tf.zeros_like(problem.L) + tf.zeros([C, 1, 1], dtype)
    nothing = tf.zeros_like(sites)
    rows, workers = problem.rows, problem.rows.all_workers
    is_empty = ~workers.any(tf.reduce_any(tf.not_equal(sites, 0.0)))
    is_empty &= options.max_sweeps > 1  # otherwise they would stay empty
    is_preliminary = is_empty & workers.any(tf.reduce_any(rows.alpha_of_all < _PRELIMINARY_POWER))
    first = Loop(
        iterate=Iterate(sites, nothing, nothing, A, A[..., :1], sites[:, 0], sites[:, 0], inf, -inf, zero),
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
        change_at_progress=inf,
        stalled=tf.constant(0),
        patience=tf.constant(_PATIENCE),
        preliminary=is_preliminary,
        attempt=tf.where(is_preliminary, 1, tf.where(is_empty, 2, 0)),
        halvings=tf.constant(0),
        sweeps=tf.constant(-1),
        final_status=tf.constant(RUNNING),
        status=tf.constant(RUNNING),
    )
    last: Loop = tf.while_loop(
        lambda loop: tf.equal(loop.status, RUNNING),
        lambda loop: [_step(problem, options, loop)],
        [first],
        parallel_iterations=1,
        maximum_iterations=interrupt_after,
    )[0]
    return LoopResult(last.iterate, last.sweeps, last.fraction, last.status)


def _step(problem: SitesProblem, options: ConvergenceOptions, loop: Loop) -> Loop:
    """Sweep at the candidate, accept or reject it, and choose the next one."""
    # Sites that are given or returned to are evaluated as they are: converged ones stay so to the last digit.
    may_shift = (loop.sweeps >= 0) & tf.equal(loop.final_status, RUNNING) & ~returns_to_best(loop)
    evaluated, cavity_ratio = _evaluate(problem, loop.candidate, loop.preliminary, may_shift)
    sweeping, probing = tf.equal(loop.kind, SWEEPING), tf.equal(loop.kind, PROBING)
    accepted = tf.math.is_finite(evaluated.log_evidence) & tf.math.is_finite(evaluated.change) & (cavity_ratio > 0.0)
    # What few loops ever do is compiled when it first runs.
    nearer = on_demand(partial(is_nearer, problem.rows.all_workers))
    serves = tf.cond(sweeping | probing, lambda: tf.constant(True), lambda: nearer(problem.is_bound, loop, evaluated))
    accepted &= probing | (_keeps_bound(problem, options, loop, evaluated) & serves)
    loop = loop._replace(sweeps=loop.sweeps + 1)
    converged = accepted & ~probing & ~loop.preliminary & (evaluated.change <= options.tol)
    following: Loop = tf.cond(
        converged,
        lambda: loop._replace(iterate=evaluated, status=tf.constant(CONVERGED)),
        lambda: _go_on(problem, options, loop, evaluated, accepted),
    )
    return following


def _go_on(
    problem: SitesProblem, options: ConvergenceOptions, loop: Loop, evaluated: Iterate, accepted: tf.Tensor
) -> Loop:
    """Choose the next candidate after one that has not converged."""
    last, sweeping, probing = loop.iterate, tf.equal(loop.kind, SWEEPING), tf.equal(loop.kind, PROBING)
    workers = problem.rows.all_workers
    recover = on_demand(partial(_recover, workers))
    preliminary_ends = _preliminary_ends(options, loop, evaluated)

    moves = accepted & ~probing
    limit = tf.minimum(tf.constant(_FORGET_ABOVE, last.change.dtype), _FORGET_GROWTH * last.change)
    secants = loop.secants.updated(
        evaluated.sites - last.sites,
        evaluated.update - last.update,
        add=accepted & (probing | (sweeping & loop.comparable)),
        forget=tf.where(sweeping, ~accepted | (evaluated.change > limit) | preliminary_ends, moves),
    )
    iterate: Iterate = choose(moves, evaluated, last)
    step = secants.step(iterate.update, iterate.normalized, workers.sum)
    better = tf.where(problem.is_bound, iterate.log_evidence >= loop.best_evidence, iterate.change < loop.best_change)
    is_best = moves & ~loop.preliminary & better
    loop = loop._replace(
        iterate=iterate,
        secants=secants,
        best=choose(is_best, iterate.sites, loop.best),
        best_change=tf.where(is_best, iterate.change, loop.best_change),
        best_evidence=tf.where(is_best, iterate.log_evidence, loop.best_evidence),
    )
    goes_on = tf.equal(loop.final_status, RUNNING) & (loop.sweeps < options.max_sweeps)
    followed = _accept(problem, options, loop, last, step, preliminary_ends)
    following: Loop = tf.cond(
        sweeping & accepted & goes_on,
        lambda: followed,
        lambda: recover(options, loop, followed, step, accepted),
    )
    return following


def _recover(
    workers: Workers,
    options: ConvergenceOptions,
    loop: Loop,
    followed: Loop,
    step: Step,
    accepted: tf.Tensor,
) -> Loop:
    """
    Go on from sites that were rejected, from a probe or from a Newton step; or end, after `max_sweeps` say.

    :param followed: the state after a sweep that was accepted.
    """
    sweeping, probing = tf.equal(loop.kind, SWEEPING), tf.equal(loop.kind, PROBING)
    moves = accepted & ~probing
    tried = choose(accepted, follow(workers, loop, step), halve(options, loop))
    swept = choose(accepted, followed, _reject(options, loop))
    loop = choose(sweeping, swept, choose(probing, probe_on(workers, loop, accepted, step), tried))
    return _end(options, loop._replace(status=tf.where(moves, loop.final_status, loop.status)))


def _evaluate(
    problem: SitesProblem, sites: tf.Tensor, preliminary: tf.Tensor, may_shift: tf.Tensor
) -> tuple[Iterate, tf.Tensor]:
    """
    Sweep at the given sites. The log evidence is NaN where B is not positive definite.

    :return: the iterate, and the smallest ratio of a marginal's and a cavity's variance.
    """
    A, c = sum_sites(problem.rows, problem.projected, sites, problem.L)
    total = SiteSums(problem.L, A, c).with_old(problem.old)
    factor = tf.linalg.cholesky(precision_B(total.A))
    workers = problem.rows.all_workers
    is_proper = ~workers.any(tf.reduce_any(~tf.math.is_finite(factor)))
    LB = tf.where(is_proper, factor, precision_B(tf.zeros_like(factor)))  # the prior's: what follows is rejected
    q, shift = InducingPosterior(problem.L, LB, tf.linalg.cholesky_solve(LB, total.c)), None
    if problem.rule.is_shift_invariant and problem.old is None and problem.L.shape.rank == 2:
        q, c, shift = _without_common_shift(q, A, c, may_shift)
        total = total._replace(c=c)
    least = tf.where(preliminary, tf.constant(_PRELIMINARY_POWER, LB.dtype), 0.0)
    rows = problem.rows.with_alpha(lambda alpha: tf.maximum(alpha, least))
    negligible = tf.where(preliminary, tf.constant(np.inf, LB.dtype), _NEGLIGIBLE)
    swept = sweep(rows, problem.projected, problem.rule, sites, q, negligible=negligible, shift=shift)
    terms = swept.terms if problem.old is None else swept.terms + problem.old.terms
    integral = workers.from_chief([tf.where(is_proper, log_integral(q, total.c), np.nan)])[0]
    of_marginals = swept.mean, swept.variance
    changes = tf.abs(normalized(swept.update, *of_marginals))
    change = workers.largest(tf.reduce_max(changes))
    if in_xla():  # where the largest one of numbers and NaN is a number
        change = asserted(change, tf.math.is_finite(changes))
    energy = integral + terms, tf.abs(integral) + tf.abs(terms)
    iterate = Iterate(swept.sites, swept.update, swept.tilted_derivatives, A, c, *of_marginals, change, *energy)
    return iterate, swept.cavity_ratio


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
    e = choose(helps, e, tf.zeros_like(e))
    return q._replace(b=choose(helps, b, q.b)), c + A @ e, e[:, 0]


def _keeps_bound(problem: SitesProblem, options: ConvergenceOptions, loop: Loop, iterate: Iterate) -> tf.Tensor:
    """Return whether a bound has not decreased by more than rounding."""
    applies = problem.is_bound & loop.is_valid & ~loop.preliminary & tf.equal(loop.final_status, RUNNING)
    applies &= (loop.fraction > _MAY_LOWER * options.damping) & ~returns_to_best(loop)
    return ~applies | (iterate.log_evidence >= loop.iterate.log_evidence - rounding(loop.iterate))


def _preliminary_ends(options: ConvergenceOptions, loop: Loop, iterate: Iterate) -> tf.Tensor:
    small = tf.maximum(tf.constant(_PRELIMINARY, iterate.change.dtype), options.tol)
    ends = (iterate.change < small) | (iterate.change > loop.iterate.change)
    return loop.preliminary & (ends | (loop.sweeps >= _MAX_PRELIMINARY) | (loop.sweeps >= options.max_sweeps - 1))


def _accept(
    problem: SitesProblem,
    options: ConvergenceOptions,
    loop: Loop,
    last: Iterate,
    step: Step,
    preliminary_ends: tf.Tensor,
) -> Loop:
    """Go on from the iterate, where the last one was followed at once or not; or leave sweeps that do not help."""
    iterate = loop.iterate
    adapted = _adapted(problem, loop, last, largest_fraction(options, loop.attempt))
    fraction = tf.where(loop.comparable, adapted, loop.fraction)
    progress = iterate.change < 0.5 * loop.change_at_progress
    stalled = tf.where(progress, 0, loop.stalled + 1)
    enters = (stalled >= loop.patience) & (loop.secants.depth >= _NEWTON_DEPTH) & (loop.sweeps < options.max_sweeps - 1)
    following = choose(preliminary_ends, iterate.sites, iterate.sites + step.move(fraction))
    return loop._replace(
        is_valid=~preliminary_ends,  # the sites are evaluated again
        candidate=choose(enters, loop.best, following),
        kind=tf.where(enters, NEWTON_STEP, SWEEPING),
        is_plain=tf.equal(loop.secants.count, 0),
        fraction=fraction,
        comparable=~preliminary_ends,
        step_size=tf.zeros_like(fraction),
        change_at_progress=tf.where(progress, iterate.change, loop.change_at_progress),
        stalled=stalled,
        preliminary=loop.preliminary & ~preliminary_ends,
    )


def _adapted(problem: SitesProblem, loop: Loop, last: Iterate, largest: tf.Tensor) -> tf.Tensor:
    """
    Adapt the fraction of an update to take. It is halved when an update undid much of the one before, or made the
    remaining change larger (twice as large, where both went the same way), and otherwise grows by a fifth.
    """
    iterate = loop.iterate
    before, now = iterate.normalized(last.update), iterate.normalized(iterate.update)
    workers = problem.rows.all_workers
    norms = workers.norm(before) * workers.norm(now)
    cosine = workers.sum(tf.reduce_sum(before * now)) / tf.where(norms > 0.0, norms, tf.ones_like(norms))
    tolerated = tf.where(cosine > 0.5, 2.0 * last.change, last.change)
    halve = (cosine < -0.3) | (iterate.change > tolerated)
    least = tf.minimum(tf.constant(_LEAST_DAMPED, largest.dtype), largest)
    return tf.where(halve, tf.maximum(0.5 * loop.fraction, least), tf.minimum(1.2 * loop.fraction, largest))


def _reject(options: ConvergenceOptions, loop: Loop) -> Loop:
    """Take a plain update instead of an accelerated one, then a smaller fraction; scale down improper initial sites."""
    fraction = tf.where(loop.is_plain & loop.is_valid, 0.5 * loop.fraction, loop.fraction)
    halvings = loop.halvings + tf.cast(~loop.is_valid, tf.int32)
    kept = tf.where(halvings > _MAX_HALVINGS, tf.zeros_like(fraction), tf.constant(0.5, fraction.dtype))
    update = loop.iterate.sites + fraction * loop.iterate.update
    improper = tf.where(halvings > _MAX_HALVINGS + 1, IMPROPER, loop.final_status)
    stuck = loop.is_valid & (fraction < _SMALLEST_FRACTION * options.damping)
    return loop._replace(
        candidate=choose(loop.is_valid, update, kept * loop.candidate),
        is_plain=tf.constant(True),
        fraction=fraction,
        comparable=tf.constant(False),
        stalled=loop.stalled + 1,
        halvings=halvings,
        status=tf.where(stuck & tf.equal(improper, RUNNING), STUCK, improper),
    )


def _end(options: ConvergenceOptions, loop: Loop) -> Loop:
    """
    Start again from empty sites where no update is proper; end after `max_sweeps`.

    Where the sites have not converged, end at the best sites seen, unless `max_sweeps` is small. If none were proper,
    evaluate empty sites in the end; if only preliminary ones were, evaluate these.
    """
    has_best = loop.best_change < np.inf
    is_accurate = loop.is_valid & ~loop.preliminary
    out = tf.equal(loop.status, RUNNING) & (loop.sweeps >= options.max_sweeps)
    status = tf.where(out, LIMIT, loop.status)
    status = tf.where(has_best & tf.equal(status, IMPROPER), STUCK, status)
    is_last = ~tf.equal(loop.final_status, RUNNING)
    fails = (status > CONVERGED) & ~is_last
    restarts = fails & ~out & (loop.attempt < len(ATTEMPT_DAMPING) - 1)
    goes_on = tf.equal(status, LIMIT) & (options.max_sweeps <= _FEW_SWEEPS) & is_accurate
    is_worse = ~is_accurate | (loop.best_change < loop.iterate.change)
    returns = fails & ~restarts & ~goes_on & is_worse & ~tf.equal(status, IMPROPER)
    # The last evaluation is of sites that were proper before, unless none were.
    status = tf.where(is_last & ~has_best, IMPROPER, status)
    empty = tf.zeros_like(loop.candidate)
    last = choose(has_best, loop.best, choose(loop.preliminary, loop.iterate.sites, empty))
    candidate = choose(returns, last, loop.candidate)
    attempt = loop.attempt + tf.cast(restarts, tf.int32)
    inf = tf.constant(np.inf, loop.change_at_progress.dtype)
    return loop._replace(
        iterate=loop.iterate._replace(change=tf.where(restarts, inf, loop.iterate.change)),
        candidate=choose(restarts, empty, candidate),
        kind=tf.where(restarts | returns, SWEEPING, loop.kind),
        stalled=tf.where(restarts, 0, loop.stalled),
        patience=tf.where(restarts, _PATIENCE, loop.patience),
        change_at_progress=tf.where(restarts, inf, loop.change_at_progress),
        comparable=loop.comparable & ~restarts & ~returns,
        is_valid=loop.is_valid & ~restarts,
        fraction=tf.where(restarts, largest_fraction(options, attempt), loop.fraction),
        preliminary=tf.where(restarts, tf.equal(attempt, 1), loop.preliminary & ~returns),
        attempt=attempt,
        halvings=tf.where(restarts, 0, loop.halvings),
        final_status=tf.where(returns, status, loop.final_status),
        status=tf.where(returns | restarts, RUNNING, status),
    )
