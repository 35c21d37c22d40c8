"""Sweeps until the sites have converged, in one compiled loop; improper sites are always rejected.

All sites are updated from the same q. The loop combines three methods, each with its own small
state.

- Anderson's acceleration (:mod:`.anderson`) chooses the next sites. They are rejected if B or a
  cavity is not positive definite or, if the energy is a lower bound (an update is then a natural
  gradient of it), if they lower that bound.
- Newton's method (:mod:`.newton`) continues from the best sites if sweeps no longer approach a
  fixed point.
- If no update is proper, the loop restarts from empty sites, with smaller fractions.

Each pass of the loop evaluates one candidate; the next one follows from its kind:

    kind         accepted                                           rejected
    SWEEPING     Anderson's move; if sweeps have stalled,           half of the update (STUCK if it is too small);
                 the best sites with NEWTON_STEP                    improper initial sites are halved
    PROBING      another probe; NEWTON_STEP if there are enough     NEWTON_STEP
    NEWTON_STEP  PROBING at the new sites                           half of the step; SWEEPING if it is too small
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..runtime import Workers, on_demand, rarely
from ..tilted.rule import NEGLIGIBLE
from .anderson import Anderson, Step
from .newton import LEAST_DECREASE, LEAST_DEPTH, ends_probing, is_acceptable, probe
from .sweep import PRELIMINARY_POWER, Iterate, Problem, choose, evaluate

# Kinds of candidate: the sites after an update, sites near the iterate, the end of a Newton step.
SWEEPING, PROBING, NEWTON_STEP = range(3)
# Status of the loop. LIMIT: max_sweeps reached; STUCK: no proper update; IMPROPER: even the prior
# is improper.
RUNNING, CONVERGED, LIMIT, STUCK, IMPROPER = range(5)
SMALLEST_FRACTION = 1e-4  # of an update to try: if it is rejected, the sites stay
# Preliminary, inaccurate sweeps (from empty sites, if a power is small) stop below this change or
# after this many.
_PRELIMINARY = 0.02
_MAX_PRELIMINARY = 5
_ATTEMPT_DAMPING = (1.0, 1.0, 1.0, 0.3, 0.1)  # fraction of the damping in each attempt
_MAY_LOWER = 1e-3  # updates by at most this fraction can lower a bound by rounding only
# Several latent functions: from empty sites under a wide prior, the updates of many rows together
# may go much too far, from where a sweep takes long. An update that lowers the energy by more nats
# per site is rejected.
_MOST_LOSS = 20.0
# These sweeps are inaccurate while the change is larger; at most this many.
_ROUGH = 0.2
_MAX_ROUGH = 15
# Smallest tolerance of loose sweeps, whose tilted distributions may be less accurate.
_LOOSE = 1e-3
MAX_HALVINGS = 12  # of improper initial sites, before they are dropped
# Sweeps that do not halve the change before Newton's method starts; doubled after it fails.
_PATIENCE = 30
# A secant across a change this large, or growing this much, no longer approximates the Jacobian:
# drop earlier secants.
_FORGET_ABOVE = 0.2
_FORGET_GROWTH = 2.0
# With max_sweeps at most this, do not return to the best sites: the change may grow before it
# falls.
FEW_SWEEPS = 10


class SolverOptions(NamedTuple):
    """Tolerance, largest number of sweeps, and damping."""

    tol: tf.Tensor
    max_sweeps: tf.Tensor
    damping: tf.Tensor


class Best(NamedTuple):
    """The sites of the smallest change, or of the largest bound."""

    sites: tf.Tensor  # [N, 2, C]
    change: tf.Tensor  # infinite if no sites have been proper, []
    log_evidence: tf.Tensor  # []


class Attempt(NamedTuple):
    """State of an attempt from given or from empty sites."""

    # 0: given sites; 1: empty sites and preliminary sweeps; 2 and more: empty sites.
    number: tf.Tensor
    is_valid: tf.Tensor  # there is an accepted iterate
    preliminary: tf.Tensor  # preliminary sweeps from empty sites
    halvings: tf.Tensor  # of improper initial sites
    change: tf.Tensor  # the change when it was last halved, []
    stalled: tf.Tensor  # sweeps since then
    patience: tf.Tensor  # stalled sweeps allowed before Newton steps start

    @classmethod
    def start(cls, number: tf.Tensor, dtype: tf.DType) -> "Attempt":
        """Start the attempt of this number."""
        inf = tf.constant(np.inf, dtype)
        zero = tf.constant(0)
        return cls(
            number, tf.constant(False), tf.equal(number, 1), zero, inf, zero, tf.constant(_PATIENCE)
        )

    def after(self, change: tf.Tensor) -> "Attempt":
        """Count an accepted sweep."""
        halved = change < 0.5 * self.change
        stalled = tf.where(halved, 0, self.stalled + 1)
        return self._replace(stalled=stalled, change=tf.where(halved, change, self.change))

    def damping(self, options: SolverOptions) -> tf.Tensor:
        """Return the largest fraction of an update to take, []."""
        return options.damping * tf.gather(
            tf.constant(_ATTEMPT_DAMPING, options.damping.dtype), self.number
        )


class SolverState(NamedTuple):
    """
    The state of the loop: the last accepted iterate, the sites to try next, and the states of the
    methods.
    """

    iterate: Iterate
    candidate: tf.Tensor  # [N, 2, C]
    kind: tf.Tensor  # of the candidate: SWEEPING, PROBING or NEWTON_STEP
    anderson: Anderson
    # Fraction of the Newton step being tried; 0 before the first, at the best sites, [].
    newton: tf.Tensor
    best: Best
    attempt: Attempt
    sweeps: tf.Tensor
    # The status to end with after the last sweep, at the best sites; RUNNING before that.
    final_status: tf.Tensor
    status: tf.Tensor

    def returns_to_best(self) -> tf.Tensor:
        """Return whether the candidate is the best sites, from which Newton's method begins."""
        return tf.equal(self.kind, NEWTON_STEP) & tf.equal(self.newton, 0.0)


def solve_fixed_point(
    problem: Problem,
    sites: tf.Tensor,
    options: SolverOptions,
    *,
    num_data: int,
    fraction: tf.Tensor,
    interrupt_after: int | None = None,
) -> SolverState:
    """
    Update sites [N, 2, C] until no update changes the marginal of its site by more than `tol`;
    return the last state.

    :param num_data: N at trace time, which determines how many secants are stored.
    :param fraction: of the first update, at most: the damping or, after a loop that hit max_sweeps,
        its last fraction.
    :param interrupt_after: sweeps after which the loop stops with status RUNNING; None: never.
    """
    rows = problem.rows
    dtype = problem.L.dtype
    C = rows.num_latent_gps
    zero = tf.zeros([], dtype)
    inf = tf.constant(np.inf, dtype)
    A = tf.zeros_like(problem.L) + tf.zeros([C, 1, 1], dtype)
    workers = rows.all_workers
    _ = problem.projected  # computed outside of the loop
    sites = tf.where(tf.math.is_finite(sites), sites, 0.0)  # 0 · NaN is not 0
    is_empty = ~workers.any(tf.reduce_any(tf.not_equal(sites, 0.0)))
    is_empty &= options.max_sweeps > 1  # otherwise they would stay empty
    is_preliminary = is_empty & workers.any(tf.reduce_any(rows.powers < PRELIMINARY_POWER))
    number = tf.where(is_preliminary, 1, tf.where(is_empty, 2, 0))
    first = SolverState(
        iterate=Iterate(problem.no_sweep(sites), A, A[..., :1], inf, -inf, zero),
        candidate=sites,
        kind=tf.constant(SWEEPING),
        anderson=Anderson.start(sites, fraction, options.damping, num_data * C),
        newton=zero,
        best=Best(sites, inf, -inf),
        attempt=Attempt.start(number, dtype),
        sweeps=tf.constant(-1),
        final_status=tf.constant(RUNNING),
        status=tf.constant(RUNNING),
    )
    return tf.while_loop(
        lambda loop: tf.equal(loop.status, RUNNING),
        lambda loop: [_step(problem, options, loop)],
        [first],
        parallel_iterations=1,
        maximum_iterations=interrupt_after,
    )[0]


def _step(problem: Problem, options: SolverOptions, loop: SolverState) -> SolverState:
    """Sweep at the candidate, accept or reject it, and choose the next one."""
    # Do not shift initial or best sites: converged sites stay bit-identical.
    may_shift = (loop.sweeps >= 0) & tf.equal(loop.final_status, RUNNING) & ~loop.returns_to_best()
    from_empty = _is_update_from_empty(problem, loop)
    # A cavity far from its label may take thousands of points.
    rough = from_empty & (loop.iterate.change > _ROUGH)
    rough &= loop.sweeps < tf.minimum(_MAX_ROUGH, options.max_sweeps - 1)
    rough |= loop.attempt.preliminary
    is_loose = (options.tol >= _LOOSE) & ~problem.is_bound
    usual = tf.where(is_loose, problem.rule.negligible_if_loose, NEGLIGIBLE)
    negligible = tf.where(rough, np.inf, usual)
    evaluated = evaluate(
        problem,
        loop.candidate,
        loop.attempt.preliminary,
        may_shift,
        tf.cast(negligible, options.tol.dtype),
    )
    accepted = tf.math.is_finite(evaluated.log_evidence) & tf.math.is_finite(evaluated.change)
    loss = loop.iterate.log_evidence - evaluated.log_evidence
    num_sites = problem.rows.all_workers.sum(tf.shape(loop.candidate)[0])
    accepted &= ~from_empty | (loss <= _MOST_LOSS * tf.cast(num_sites, loss.dtype))
    accepted &= evaluated.swept.cavity_ratio > 0.0
    probing = tf.equal(loop.kind, PROBING)
    # Rarely taken branches are compiled when they first run.
    accepts_step = on_demand(partial(is_acceptable, problem.rows.all_workers))
    trial = problem.is_bound, loop.newton, loop.iterate, evaluated
    by_newton = rarely(
        tf.equal(loop.kind, NEWTON_STEP), lambda: accepts_step(*trial), tf.constant(True)
    )
    accepted &= probing | (_keeps_bound(problem, options, loop, evaluated) & by_newton)
    loop = loop._replace(sweeps=loop.sweeps + 1)
    converged = accepted & ~probing & ~rough & (evaluated.change <= options.tol)
    after = _after_evaluation(problem, options, loop, evaluated, accepted, converged)
    fraction = tf.where(converged, loop.anderson.fraction, after.anderson.fraction)
    return after._replace(
        anderson=after.anderson._replace(fraction=fraction),
        status=tf.where(converged, CONVERGED, after.status),
    )


def _after_evaluation(
    problem: Problem,
    options: SolverOptions,
    loop: SolverState,
    evaluated: Iterate,
    accepted: tf.Tensor,
    converged: tf.Tensor,
) -> SolverState:
    """Choose the next candidate, which is not used after convergence."""
    last = loop.iterate
    anderson = loop.anderson
    best = loop.best
    sweeping = tf.equal(loop.kind, SWEEPING)
    probing = tf.equal(loop.kind, PROBING)
    workers = problem.rows.all_workers
    small = tf.maximum(options.tol, _PRELIMINARY)
    preliminary_ends = (evaluated.change < small) | (evaluated.change > last.change)
    preliminary_ends |= (loop.sweeps >= _MAX_PRELIMINARY) | (loop.sweeps >= options.max_sweeps - 1)
    preliminary_ends &= loop.attempt.preliminary
    moves = accepted & ~probing
    is_far = evaluated.change > tf.minimum(_FORGET_GROWTH * last.change, _FORGET_ABOVE)
    secants = anderson.secants.updated(
        evaluated.swept.sites - last.swept.sites,
        evaluated.swept.update - last.swept.update,
        add=accepted & (probing | (sweeping & anderson.follows)),
        forget=tf.where(sweeping, ~accepted | is_far | preliminary_ends, moves),
    )
    iterate: Iterate = choose(moves, evaluated, last)
    step = secants.step(iterate.swept.update, iterate.swept.normalized, workers)
    better = tf.where(
        problem.is_bound, iterate.log_evidence >= best.log_evidence, iterate.change < best.change
    )
    is_best = moves & ~loop.attempt.preliminary & better
    best = choose(is_best, Best(iterate.swept.sites, iterate.change, iterate.log_evidence), best)
    loop = loop._replace(iterate=iterate, anderson=anderson._replace(secants=secants), best=best)
    followed = _after_accepted_sweep(workers, options, loop, last, step, preliminary_ends)
    otherwise = on_demand(partial(_after_rejection_or_newton, workers))
    goes_on = tf.equal(loop.final_status, RUNNING) & (loop.sweeps < options.max_sweeps)
    # After convergence, too, the other branch must not be compiled.
    return rarely(
        ~converged & ~(sweeping & accepted & goes_on),
        lambda: otherwise(options, loop, followed, step, accepted),
        followed,
    )


def _keeps_bound(
    problem: Problem, options: SolverOptions, loop: SolverState, iterate: Iterate
) -> tf.Tensor:
    """Return whether a bound has not decreased beyond rounding."""
    applies = (
        problem.is_bound
        & loop.attempt.is_valid
        & ~loop.attempt.preliminary
        & tf.equal(loop.final_status, RUNNING)
    )
    applies &= (loop.anderson.fraction > _MAY_LOWER * options.damping) & ~loop.returns_to_best()
    return ~applies | (iterate.log_evidence >= loop.iterate.log_evidence - loop.iterate.rounding())


def _is_update_from_empty(problem: Problem, loop: SolverState) -> tf.Tensor:
    """
    Return whether the candidate ends an update of several latent functions, in an attempt that
    began with empty sites.
    """
    attempt = loop.attempt
    updates = tf.equal(loop.kind, SWEEPING) & tf.equal(loop.final_status, RUNNING)
    updates &= problem.rows.num_latent_gps > 1
    return updates & (attempt.number > 0) & attempt.is_valid & ~attempt.preliminary


def _after_accepted_sweep(
    workers: Workers,
    options: SolverOptions,
    loop: SolverState,
    last: Iterate,
    step: Step,
    preliminary_ends: tf.Tensor,
) -> SolverState:
    """
    Continue after an accepted sweep: with Anderson's move, or with Newton's method if sweeps have
    stalled.
    """
    iterate = loop.iterate
    sites = iterate.swept.sites
    attempt = loop.attempt.after(iterate.change)
    anderson = loop.anderson.after(workers, last, iterate, attempt.damping(options))
    enters = (attempt.stalled >= attempt.patience) & (loop.sweeps < options.max_sweeps - 1)
    enters &= anderson.secants.depth >= LEAST_DEPTH
    following = choose(preliminary_ends, sites, sites + step.move(anderson.fraction))
    return loop._replace(
        candidate=choose(enters, loop.best.sites, following),
        kind=tf.where(enters, NEWTON_STEP, SWEEPING),
        anderson=anderson._replace(follows=~preliminary_ends),
        newton=tf.zeros_like(loop.newton),
        # After preliminary sweeps the sites are evaluated again.
        attempt=attempt._replace(
            is_valid=~preliminary_ends, preliminary=attempt.preliminary & ~preliminary_ends
        ),
    )


def _after_rejection_or_newton(
    workers: Workers,
    options: SolverOptions,
    loop: SolverState,
    followed: SolverState,
    step: Step,
    accepted: tf.Tensor,
) -> SolverState:
    """
    Continue after a rejected sweep, a probe or a Newton step, or end; `followed`: state after
    accepted sweeps.
    """
    sweeping = tf.equal(loop.kind, SWEEPING)
    probing = tf.equal(loop.kind, PROBING)
    moves = accepted & ~probing
    nearby = probe(workers, loop.iterate, step.remainder)
    ends_probes = ~accepted | ends_probing(workers, loop.iterate, loop.anderson, step)
    candidate = choose(ends_probes, loop.iterate.swept.sites + step.newton, nearby)
    kind = tf.where(ends_probes, NEWTON_STEP, PROBING)
    probed = loop._replace(candidate=candidate, kind=kind, newton=tf.ones_like(loop.newton))
    stepped = choose(
        accepted,
        loop._replace(candidate=nearby, kind=tf.constant(PROBING)),
        _halve(options, loop, step),
    )
    swept = choose(accepted, followed, _reject(workers, options, loop))
    loop = choose(sweeping, swept, choose(probing, probed, stepped))
    return _restart_or_finish(
        options, loop._replace(status=tf.where(moves, loop.final_status, loop.status))
    )


def _halve(options: SolverOptions, loop: SolverState, step: Step) -> SolverState:
    """Halve the Newton step; return to sweeps if it is too small."""
    size = 0.5 * loop.newton
    sites = loop.iterate.swept.sites
    anderson = loop.anderson
    attempt = loop.attempt
    fails = size < LEAST_DECREASE
    fraction = tf.where(fails, attempt.damping(options), anderson.fraction)
    patience = tf.where(fails, 2 * attempt.patience, attempt.patience)
    return loop._replace(
        candidate=choose(fails, sites, sites + size * step.newton),
        kind=tf.where(fails, SWEEPING, NEWTON_STEP),
        anderson=anderson._replace(fraction=fraction, follows=anderson.follows & ~fails),
        newton=size,
        attempt=attempt._replace(stalled=tf.where(fails, 0, attempt.stalled), patience=patience),
    )


def _reject(workers: Workers, options: SolverOptions, loop: SolverState) -> SolverState:
    """
    Continue after a rejected sweep; scale down improper initial sites; end if even empty sites are
    improper.
    """
    is_valid = loop.attempt.is_valid
    anderson = loop.anderson.rejected(is_valid)
    halvings = loop.attempt.halvings + tf.cast(~is_valid, tf.int32)
    shrink = tf.where(halvings > MAX_HALVINGS, tf.zeros_like(anderson.fraction), 0.5)
    fails = ~is_valid & ~workers.any(tf.reduce_any(tf.not_equal(loop.candidate, 0.0)))
    improper = tf.where(fails, IMPROPER, loop.final_status)
    last = tf.where(
        fails & ~loop.attempt.preliminary, len(_ATTEMPT_DAMPING) - 1, loop.attempt.number
    )
    stuck = is_valid & (anderson.fraction < SMALLEST_FRACTION * options.damping)
    update = loop.iterate.swept.sites + anderson.fraction * loop.iterate.swept.update
    return loop._replace(
        candidate=choose(is_valid, update, shrink * loop.candidate),
        anderson=anderson,
        attempt=loop.attempt._replace(
            number=last, halvings=halvings, stalled=loop.attempt.stalled + 1
        ),
        status=tf.where(stuck & tf.equal(improper, RUNNING), STUCK, improper),
    )


def _restart_or_finish(options: SolverOptions, loop: SolverState) -> SolverState:
    """
    Restart from empty sites if no update is proper; end after `max_sweeps`, at the best sites
    unless it is small.
    """
    attempt = loop.attempt
    anderson = loop.anderson
    iterate = loop.iterate
    has_best = loop.best.change < np.inf
    is_accurate = attempt.is_valid & ~attempt.preliminary
    out = tf.equal(loop.status, RUNNING) & (loop.sweeps >= options.max_sweeps)
    status = tf.where(out, LIMIT, loop.status)
    status = tf.where(has_best & tf.equal(status, IMPROPER), STUCK, status)
    is_last = ~tf.equal(loop.final_status, RUNNING)
    fails = (status > CONVERGED) & ~is_last
    restarts = fails & ~out & (attempt.number < len(_ATTEMPT_DAMPING) - 1)
    goes_on = tf.equal(status, LIMIT) & (options.max_sweeps <= FEW_SWEEPS) & is_accurate
    is_worse = ~is_accurate | (loop.best.change < iterate.change)
    returns = fails & ~restarts & ~goes_on & is_worse & ~tf.equal(status, IMPROPER)
    # The last evaluation is at sites that were proper before, if there are any, else at preliminary
    # or empty sites.
    status = tf.where(is_last & ~has_best, IMPROPER, status)
    empty = tf.zeros_like(loop.candidate)
    last = choose(
        has_best, loop.best.sites, choose(attempt.preliminary, iterate.swept.sites, empty)
    )
    again = Attempt.start(attempt.number + tf.cast(restarts, tf.int32), iterate.change.dtype)
    inf = tf.constant(np.inf, iterate.change.dtype)
    fraction = tf.where(restarts, again.damping(options), anderson.fraction)
    return loop._replace(
        iterate=iterate._replace(change=tf.where(restarts, inf, iterate.change)),
        candidate=choose(restarts, empty, choose(returns, last, loop.candidate)),
        kind=tf.where(restarts | returns, SWEEPING, loop.kind),
        anderson=anderson._replace(
            fraction=fraction, follows=anderson.follows & ~restarts & ~returns
        ),
        attempt=choose(
            restarts, again, attempt._replace(preliminary=attempt.preliminary & ~returns)
        ),
        final_status=tf.where(returns, status, loop.final_status),
        status=tf.where(returns | restarts, RUNNING, status),
    )
