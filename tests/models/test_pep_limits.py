"""
PEP where it becomes something known: PEPR, SVGP's optimum, and itself in other orders and portions.

Problems are tiny (N = 24, M = 5), Kuu has a condition number below 1e3. Two routes to one number
differ by rounding, 1e-9 at the worst as in test_limits.py: CLOSE, relative to the largest. Where
both are fixed points, iterated to TOL, each is off by TOL/(1 - contraction): some 1e-11, below
CLOSE too.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from covariances import whitened
from dense_formulas import make_problem
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SquaredExponential
from model_values import (
    assert_close,
    converge,
    in_q,
    linear_mean,
    loss_and_gradient,
    value_and_gradients,
)
from numpy.testing import assert_allclose

from gpflow_pep import PEP
from gpflow_pep.likelihoods import Logit, Probit

CLOSE = 1e-9
TOL = 1e-12


def _labels(P=1):
    """Labels that a straight line does not divide."""
    X, Y, Z, Xnew = make_problem(P=P)
    return X, np.where(np.median(Y, axis=0) < Y, 1.0, 0.0), Z, Xnew


def _state(model):
    return [
        model.sites.precision.numpy(),
        model.sites.linear.numpy(),
        model.maximum_log_likelihood_objective(),
    ]


# --- alpha = 0 ------------------------------------------------------------------------------------


def test_alpha_zero_is_the_optimum_of_svgp():
    """
    SVGP's bound, with 100 Gauss-Hermite nodes right to 1e-13 for variances up to 2, equals the
    energy at q(u); it is stationary there: sites that are off by TOL and q(u) by some 1e-11 leave a
    slope of 1e-11 times the curvature in q_mu and q_sqrt, the condition number of q(u)'s
    covariance, some 1e3.
    """
    X, Y, Z, Xnew = _labels()
    likelihood = Logit()
    likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 100)
    parts = {
        "kernel": SquaredExponential(1.3, lengthscales=[0.8, 1.1]),
        "likelihood": likelihood,
        "inducing_variable": InducingPoints(Z),
        "mean_function": linear_mean(1),
    }
    model = PEP((X, Y), alpha=0.0, **parts)
    status = converge(model, TOL)
    q_mu, q_cov = model.compute_qu()
    svgp = gpflow.models.SVGP(
        q_mu=q_mu, q_sqrt=tf.linalg.cholesky(q_cov)[None], whiten=False, **parts
    )
    shared = model.trainable_variables
    loss, (mean_slope, root_slope, *gradients) = loss_and_gradient(
        svgp, (X, Y), variables=[*in_q(svgp), *shared]
    )
    assert_near(status.log_evidence, -loss, 1e-10)
    assert np.max(np.abs(mean_slope)) < 1e-8
    assert np.max(np.abs(root_slope)) < 1e-8
    found, expected = loss_and_gradient(model, variables=shared)
    assert_allclose(-found, status.log_evidence, rtol=1e-12)
    assert_close(gradients, expected, 1e-8)
    assert_close(model.predict_f(Xnew, full_cov=True), svgp.predict_f(Xnew, full_cov=True), CLOSE)
    for move in (1e-3, -1e-3):  # the bound is concave in q_mu, with a curvature of at least 1
        svgp.q_mu.assign(q_mu + move)
        assert svgp.training_loss((X, Y)) > loss + 1e-7


def test_continuous_at_alpha_zero():
    """
    F(a) - F(0) is a F'(0) + O(a²): the difference quotients at 1e-3 and 1e-4 agree to some 1e-3 of
    themselves. The Wasserstein distance, which is divided by alpha, has rounding errors of 1e-15:
    tol must be above 1e-11; an energy that is off by tol = 1e-9 makes 1e-5 of the quotient.
    """
    X, Y, Z, _ = _labels()
    model = PEP((X, Y), SquaredExponential(2.0), Probit(), Z, alpha=0.0, projection="wasserstein")
    at_zero = converge(model, 1e-9).log_evidence
    slopes = []
    for alpha in (1e-3, 1e-4):
        model.alpha = alpha
        slopes.append((converge(model, 1e-9).log_evidence - at_zero) / alpha)
    assert slopes[0] > 0.1
    assert_allclose(slopes[0], slopes[1], rtol=2e-3)


def test_the_gradient_under_the_wasserstein_projection_after_new_data():
    """In several chunks, as in one: it is computed from all rows together."""
    X, Y, Z, _ = _labels()
    parts = SquaredExponential(2.0), Probit(), Z
    options = {"projection": "wasserstein", "tol": 1e-9}
    model = PEP((X[:15], Y[:15]), *parts, chunk_size=10, **options)
    value_and_gradients(model, model.trainable_variables)
    model.data = X, Y
    other = PEP((X, Y), *parts, **options)
    found, expected = (
        value_and_gradients(each, each.trainable_variables) for each in (model, other)
    )
    assert_near(found[0], expected[0], 1e-8)
    assert_close(found[1], expected[1], 1e-6)


# --- the same fixed point -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept():
    """A model with converged sites, and its state."""
    X, Y, Z, _ = _labels(P=2)
    model = PEP((X, Y), SquaredExponential(3.0, lengthscales=[0.8, 1.1]), Probit(), Z, alpha=0.6)
    converge(model, TOL)
    return model, _state(model)


@pytest.mark.parametrize(
    ("size", "damping", "options"),
    [
        (0.0, 1.0, {"batch_size": 5}),
        (0.0, 0.3, {}),
        (0.5, 1.0, {}),
        (5.0, 1.0, {}),
        (0.0, 1.0, {"batch_size": 100}),
    ],
)
def test_the_fixed_point_does_not_depend_on_the_way_to_it(swept, size, damping, options):
    """
    By updates of batches, damped, and from proper and improper sites: with a log-concave likelihood
    there is one fixed point.
    """
    model, expected = swept
    rng = np.random.default_rng(5)
    model.sites.precision.assign(size * rng.normal(size=(24, 2)))
    model.sites.linear.assign(size * rng.normal(size=(24, 2)))
    model.damping = damping
    assert converge(model, TOL, **options).damping <= damping
    model.damping = 1.0
    assert_close(_state(model), expected, CLOSE)


def test_damping_of_minibatches_by_alpha_is_the_published_update():
    """
    t_old^(1 - α) times q_new over the cavity, which with Gaussian noise is N(y; w, d + σ²/α) under
    any q: after two epochs a site has 1 + (1 - α) times the precision of that.
    """
    X, Y, Z, _ = make_problem(P=1)
    alpha = 0.4
    noise = 0.3
    model = PEP((X, Y), SquaredExponential(), gpflow.likelihoods.Gaussian(noise), Z, alpha=alpha)
    for epoch in range(2):
        assert len(list(model.minibatches(7, damping=alpha, seed=epoch))) == 4
    V = whitened(model.kernel, Z, X)
    d = 1.0 - np.sum(np.square(V), axis=0)
    expected = (2.0 - alpha) / (d + noise / alpha)
    assert_close(model.sites.precision[:, 0], expected, CLOSE)
