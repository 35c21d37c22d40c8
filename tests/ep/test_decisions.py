"""Decisions of the solver (accept, store, drop, next step), from one state at a time."""

from dataclasses import replace

import gpflow
import pytest
import tensorflow as tf
from comparisons import assert_near
from doubles import double
from numpy.testing import assert_allclose, assert_array_equal
from waves import line, signs

from gpflow_pep import PEP
from gpflow_pep.ep import SolverOptions, solver
from gpflow_pep.ep.anderson import Secants, Step
from gpflow_pep.ep.newton import is_acceptable
from gpflow_pep.likelihoods import Probit

X, Y = signs(20, 41)
DAMPING = 0.8


@pytest.fixture(scope="module")
def model():
    """Whole updates overshoot, so that there are many sweeps."""
    kernel = gpflow.kernels.SquaredExponential(400.0)
    return PEP((X, Y), kernel, Probit(), line(-1.8, 1.8, 6), tol=1e-10, damping=DAMPING)


@pytest.fixture(scope="module")
def runs():
    return []


@pytest.fixture
def run(model, trace, runs):
    """One for all tests."""
    if not runs:
        runs.append(trace(model))
    return runs[0]


@pytest.fixture
def options(model):
    return SolverOptions(*map(tf.convert_to_tensor, model._options))


@pytest.fixture
def loop(run):
    """A state in the midst of it: several secants, sweeps that follow each other."""
    return next(
        loop for loop in run.loops if int(loop.anderson.secants.count) > 3 and loop.anderson.follows
    )


def of_a_bound(run, is_bound):
    return replace(run.problem, is_bound=tf.constant(is_bound))


def compared(run, is_bound):
    return run.problem.rows.all_workers, tf.constant(is_bound)


def test_a_small_fraction_may_lower_a_bound(run, options, loop):
    """
    A step may lower a bound by rounding errors only; there is no such limit if the energy is not a
    bound.
    """
    lower = loop.iterate._replace(log_evidence=loop.iterate.log_evidence - 1.0)
    for fraction, is_bound, keeps in ((2e-3, True, False), (5e-4, True, True), (2e-3, False, True)):
        state = loop._replace(anderson=loop.anderson._replace(fraction=double(fraction * DAMPING)))
        assert bool(solver._keeps_bound(of_a_bound(run, is_bound), options, state, lower)) == keeps
        assert solver._keeps_bound(of_a_bound(run, is_bound), options, state, loop.iterate)


def test_secants_are_forgotten_where_the_change_grows(run, loop):
    """Secants are dropped if the change more than doubles."""
    change = float(run.step(loop).iterate.change)
    assert change < 0.1
    for growth, count in ((1.8, int(loop.anderson.secants.count) + 1), (2.2, 0)):
        before = loop._replace(iterate=loop.iterate._replace(change=double(change / growth)))
        assert int(run.step(before).anderson.secants.count) == count


def test_secants_are_forgotten_where_the_change_is_large(run):
    """
    Secants are dropped above a fifth of a standard deviation, even if the change does not grow.
    """
    kept = []
    forgotten = []
    for before in run.loops[:-1]:
        after = run.step(before._replace(iterate=before.iterate._replace(change=double(1e3))))
        # A sweep that is accepted.
        follows = (
            before.anderson.follows and not before.attempt.preliminary and after.anderson.follows
        )
        if follows and 0.04 < float(after.iterate.change) < 1.0:
            (
                kept
                if int(after.anderson.secants.count) == int(before.anderson.secants.count) + 1
                else forgotten
            ).append(after)
    assert kept and forgotten
    assert max(float(loop.iterate.change) for loop in kept) <= 0.2
    assert all(
        float(loop.iterate.change) > 0.2 and int(loop.anderson.secants.count) == 0
        for loop in forgotten
    )


@pytest.mark.parametrize(("attempt", "fraction"), [(0, 1.0), (1, 1.0), (2, 0.3), (3, 0.1)])
def test_stuck_solver_restarts_from_empty_sites(options, loop, attempt, fraction):
    """The first restart has preliminary sweeps, later restarts have smaller and smaller steps."""
    stuck = loop._replace(
        attempt=loop.attempt._replace(number=tf.constant(attempt)), status=tf.constant(solver.STUCK)
    )
    again = solver._restart_or_finish(options, stuck)
    assert int(again.status) == int(again.final_status) == solver.RUNNING
    assert int(again.attempt.number) == attempt + 1 and bool(again.attempt.preliminary) == (
        attempt == 0
    )
    assert_allclose(again.anderson.fraction, fraction * DAMPING, rtol=1e-15)
    assert not again.candidate.numpy().any() and not again.attempt.is_valid


def test_after_five_attempts_it_ends_with_the_best_sites(options, loop):
    """It sweeps at them once more, unless it is there."""
    best = loop.iterate.swept.sites + 1.0
    stuck = loop._replace(
        attempt=loop.attempt._replace(number=tf.constant(4)),
        status=tf.constant(solver.STUCK),
        best=loop.best._replace(sites=best, change=double(0.0)),
    )
    last = solver._restart_or_finish(options, stuck)
    assert int(last.attempt.number) == 4 and int(last.final_status) == solver.STUCK
    assert_array_equal(last.candidate, best)


def test_a_step_of_newton_is_halved(options, loop):
    """Until it is shorter than a hundredth; then sweeps go on, and are given more time."""
    direction = tf.ones_like(loop.candidate)
    step = Step(direction, direction)
    trying = loop._replace(newton=double(0.03), kind=tf.constant(solver.NEWTON_STEP))
    halved = solver._halve(options, trying, step)
    assert int(halved.kind) == solver.NEWTON_STEP and int(halved.attempt.patience) == int(
        loop.attempt.patience
    )
    assert_near(halved.candidate, loop.iterate.swept.sites + 0.015, 1e-12)
    given_up = solver._halve(options, halved, step)
    assert int(given_up.kind) == solver.SWEEPING and int(given_up.attempt.patience) == 2 * int(
        loop.attempt.patience
    )
    assert_array_equal(given_up.candidate, loop.iterate.swept.sites)


@pytest.mark.parametrize(
    ("step_size", "left", "is_nearer"),
    [(1.0, 0.985, True), (1.0, 0.995, False), (0.1, 0.995, True), (0.1, 1.0, False)],
)
def test_a_step_of_newton_must_make_the_update_smaller(run, loop, step_size, left, is_nearer):
    """The update must shrink by a hundredth of the step's fraction, or a bound must increase."""
    size = double(step_size)
    swept = loop.iterate.swept
    found = loop.iterate._replace(swept=swept._replace(update=left * swept.update))
    assert bool(is_acceptable(*compared(run, False), size, loop.iterate, found)) == is_nearer
    higher = found._replace(log_evidence=found.log_evidence + 1.0)
    assert is_acceptable(*compared(run, True), size, loop.iterate, higher)


@pytest.mark.parametrize(
    ("stalled", "depth", "kind"),
    [(30, 4, solver.SWEEPING), (30, 5, solver.NEWTON_STEP), (29, 5, solver.SWEEPING)],
)
def test_newton_needs_stalled_sweeps_and_secants(run, options, loop, stalled, depth, kind):
    """
    Newton steps start after 30 sweeps that do not halve the change, if at least five secants can be
    stored.
    """
    patience = solver.Attempt.start(loop.attempt.number, loop.iterate.change.dtype).patience
    before = loop._replace(
        anderson=loop.anderson._replace(secants=Secants.none(depth, loop.iterate.swept.sites)),
        attempt=loop.attempt._replace(
            stalled=tf.constant(stalled - 1), patience=patience, change=loop.iterate.change
        ),  # the sweep itself is one more
    )
    step = before.anderson.secants.step(loop.iterate.swept.update, loop.iterate.swept.normalized)
    workers = run.problem.rows.all_workers
    found = solver._after_accepted_sweep(
        workers, options, before, loop.iterate, step, tf.constant(False)
    )
    assert int(found.kind) == kind


@pytest.mark.parametrize(
    ("num_data", "depth"), [(20_000, 15), (20_001, 5), (100_000, 5), (100_001, 1)]
)
def test_the_more_sites_the_fewer_secants(run, options, monkeypatch, num_data, depth):
    """As the loop begins, with the memory that they take."""
    begun = []
    monkeypatch.setattr(
        solver.tf, "while_loop", lambda cond, body, first, **_: begun.extend(first) or first
    )
    sites = tf.zeros([len(X), 2, 1], tf.float64)
    size = {"num_data": num_data, "fraction": options.damping}
    solver.solve_fixed_point(run.problem, sites, options, **size)
    assert begun[0].anderson.secants.depth == depth
