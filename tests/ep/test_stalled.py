"""Stalled sweeps: classes that shift together, and unstable fixed points."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from campaign.convergence import Models, Problem
from gpflow.kernels import SquaredExponential
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.engine import InducingPosterior, SiteSums
from gpflow_pep.ep import solver
from gpflow_pep.ep.sweep import _without_common_shift

CLASSES = 3


def several_classes(likelihood, alpha):
    """
    A wide prior that labels make narrow, except for the mean over classes, of which they tell
    nothing.
    """
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (60, 2))
    Y = np.argmax(
        8.0 * X @ [[1.0, -0.5, 0.2], [0.3, 1.0, -0.7]] + rng.normal(size=(60, CLASSES)), axis=1
    )
    kernel = SquaredExponential(100.0, lengthscales=10.0)
    return PEP((X, Y[:, None]), kernel, likelihood(CLASSES), X[:4], alpha=alpha)


def contradictory():
    """Two rows at one place, with two labels."""
    X = np.array([[0.3, -0.7], [0.3, -0.7]])
    kernel = SquaredExponential(0.2)
    return PEP((X, [[1.0], [2.0]]), kernel, MultiClassRobustMax(CLASSES), X[:1], alpha=0.8)


@pytest.mark.parametrize("likelihood", [MultiClassRobustMax, gpflow.likelihoods.Softmax])
def test_classes_do_not_shift_together(likelihood):
    """
    q's means sum to 0 over classes: a function added to all of them does not change the likelihood.
    """
    model = several_classes(likelihood, 0.5)
    for alpha in (0.0, 0.5, 1.0):
        model.alpha = alpha
        model.reset_sites()
        status = model.update_sites()
        assert status.converged and status.sweeps < 100
        mean, spread = (value.numpy() for value in model.predict_f(model.data[0]))
        assert np.abs(mean.sum(axis=1)).max() < 1e-3 * np.sqrt(spread.min())

        before = model.sites.stacked().numpy()
        assert model.update_sites().sweeps == 0
        assert_array_equal(model.sites.stacked(), before)


@pytest.mark.parametrize(
    "make",
    [lambda: several_classes(MultiClassRobustMax, 0.5), contradictory],
    ids=["wide prior", "contradictory"],
)
def test_sums_are_those_of_the_sites(make, trace):
    """A and c of each accepted iterate, after shifts, are V diag(τ) V' and V h of its sites."""
    model = make()
    run = trace(model)
    problem = model._inference().problem
    checked = 0
    for loop in run.loops[:: max(1, len(run.loops) // 20)]:
        if loop.attempt.is_valid:
            A, c = problem.sum_sites(loop.iterate.swept.sites)
            assert_allclose(loop.iterate.A, A, rtol=1e-9, atol=1e-9 * np.abs(A).max())
            assert_allclose(loop.iterate.c, c, rtol=1e-8, atol=1e-9 * np.abs(c).max())
            checked += 1
    assert checked > 3


def test_no_shift_where_q_is_wider_than_the_prior():
    """B^-1 has eigenvalues above 1 and a shift would grow: b is unchanged."""
    eye = tf.eye(2, dtype=tf.float64)
    b = tf.constant(np.random.default_rng(3).normal(size=(CLASSES, 2, 1)))

    def without_shift(size):
        B = size * tf.stack([eye] * CLASSES)
        q = InducingPosterior(eye, tf.linalg.cholesky(B), b)
        return _without_common_shift(q, B - eye, size * b, tf.constant(True))

    q, shifted, e = without_shift(0.2)
    assert_array_equal(q.b, b)
    assert_array_equal(shifted, 0.2 * b)
    assert_array_equal(e, [0.0, 0.0])
    q, shifted, _ = without_shift(50.0)
    assert_allclose(q.b, shifted / 50.0, rtol=1e-12)
    before = np.sum(b, axis=0)
    assert_allclose(np.sum(q.b, axis=0), (2.0 / 50.0 - 1.0 / 50.0**2) * before, rtol=1e-10)


def update_at(model):
    """The undamped update of all sites, flat, as a function of the sites."""
    problem = model._inference().problem
    shape = tf.shape(model.sites.stacked())
    _ = problem.projected  # computed outside of the graph

    @tf.function(autograph=False)
    def update(flat):
        sites = tf.reshape(flat, shape)
        q = SiteSums(problem.L, *problem.sum_sites(sites)).posterior()
        return tf.reshape(problem.sweep(sites, q).update, [-1])

    return update


def test_newton_steps_reach_an_unstable_fixed_point(trace):
    """
    An eigenvalue λ of the update's Jacobian has a positive real part, so that |1 + β λ| > 1 for all
    fractions β: sweeps lead away from it. Newton's method ends there.
    """
    model = contradictory()
    run = trace(model)
    assert int(run.result.status) == solver.CONVERGED
    kinds = [int(loop.kind) for loop in run.loops]
    assert solver.PROBING in kinds and solver.NEWTON_STEP in kinds
    status = model.update_sites()
    assert status.converged and status.sweeps < 150
    update = update_at(model)
    at = model.sites.stacked().numpy().ravel()
    size = 1e-4
    assert np.abs(update(at)).max() < 1e-4
    jacobian = np.stack(
        [(update(at + size * e) - update(at - size * e)) / (2.0 * size) for e in np.eye(len(at))], 1
    )
    assert np.linalg.eigvals(jacobian).real.max() > 0.01
    kept = model.sites.stacked()
    model.reset_sites()
    model.sites.assign_stacked(kept)
    assert model.update_sites().sweeps == 0


@pytest.mark.filterwarnings("ignore:The sites have not converged")
def test_few_sweeps_end_properly():
    """
    With sites that are evaluated under their own power, whatever preliminary sweeps came to; never
    with an error.
    """
    models = Models()
    problems = (
        Problem(
            "Student-t", 0.2, 27.57261364194129, 2.9229440745581137, 200, 10, "separable", 978708379
        ),
        Problem(
            "robust-max", 0.01, 1.525171671416526, 10.045192486173178, 20, 3, "extreme", 457487566
        ),
    )
    for problem, max_sweeps in itertools.product(problems, (1, 2, 3, 4, 5, 6, 8)):
        model = models(problem)
        model.max_sweeps = max_sweeps
        status = model.update_sites()
        assert not status.converged and np.isfinite(status.log_evidence)
        sites = model.sites.stacked().numpy()
        model.max_sweeps = 1
        model._options.max_sweeps.assign(0)  # only the status
        again = model.update_sites()
        assert_array_equal(model.sites.stacked(), sites)
        assert_allclose(again.log_evidence, status.log_evidence, rtol=1e-9)
        assert_allclose(again.change, status.change, rtol=1e-6)
