"""The energy against its definition for arbitrary sites, and its errors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from quick import some_slow
from scipy.special import log_ndtr

from gpflow_pep import PEP
from gpflow_pep.engine import SiteSums
from gpflow_pep.ep import sum_sites
from gpflow_pep.ep.sweep import log_integral, sweep
from gpflow_pep.likelihoods import Probit

# Logarithms and quotients by α >= 0.3 of numbers of order 1, of matrices of condition 1e2, and
# quadrature to 1e-11.
CLOSE = 1e-9
X = np.linspace(-1.0, 1.0, 4)[:, None]
Y = np.array([[0.0], [1.0], [1.0], [0.0]])
Z = np.array([[-0.6], [0.5]])
GRID = np.linspace(-14.0, 14.0, 4001)
CASES = [(1.0, 1.0), (0.3, 1.0), (0.3, 1.7), (np.array([0.3, 1.0, 0.5, 0.8]), 0.6)]


def natural(A, c):
    """log ∫ exp(c'v - v'(I + A)v/2) dv, without M/2 log 2 pi."""
    B = np.eye(len(A)) + A
    return 0.5 * c @ np.linalg.solve(B, c) - 0.5 * np.linalg.slogdet(B)[1]


def by_definition(V, d, sites, alpha, scale):
    """
    Σ_n {log ∫ cavity p^α + G(cavity) - G(q)}/α + G(q) - G(prior), with each f_n = w_n + N(0, m
    d_n), and for the conditional p(f|u)/q(f|u) of variance d_n/(m d_n), also to the power α:

        log ∫ N(0, m d)^(1-α) N(0, d)^α / α = {log m - log(1 + α (m - 1))/α}/2.
    """
    A, c = (V * sites[:, 0]) @ V.T, V @ sites[:, 1]
    total = natural(A, c)
    for n, power in enumerate(np.broadcast_to(alpha, len(X))):
        v = V[:, n]
        A_n, c_n = A - power * sites[n, 0] * np.outer(v, v), c - power * sites[n, 1] * v
        covariance = np.linalg.inv(np.eye(len(A)) + A_n)
        mean, variance = v @ covariance @ c_n, v @ covariance @ v + scale * d[n]
        f = mean + np.sqrt(variance) * GRID
        weight = np.exp(-0.5 * GRID**2) * (GRID[1] - GRID[0]) / np.sqrt(2.0 * np.pi)
        log_Z = np.log(np.sum(weight * np.exp(power * log_ndtr((2.0 * Y[n, 0] - 1.0) * f))))
        total += (log_Z + natural(A_n, c_n) - natural(A, c)) / power
        x = GRID * np.sqrt(max(scale, 1.0))
        ratio = np.exp(-0.5 * (1.0 - power) * x**2 / scale - 0.5 * power * x**2)
        ratio = (
            np.sum(ratio) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi) / scale ** (0.5 * (1.0 - power))
        )
        total += np.log(ratio) / power
    return total


@pytest.mark.parametrize(("alpha", "scale"), CASES)
def test_energy_equals_its_definition_at_any_sites(alpha, scale):
    """Sum the integral over v, the terms of a sweep and the terms of the scale."""
    kernel = gpflow.kernels.Matern52(3.0)
    model = PEP((X, Y), kernel, Probit(), Z.copy(), alpha=alpha, scale=scale)
    rng = np.random.default_rng(81)
    sites = np.stack([rng.uniform(-0.1, 0.5, (4, 1)), rng.normal(size=(4, 1))], axis=1)
    problem = model._inference().problem
    A, c = sum_sites(problem, tf.constant(sites))
    q = SiteSums(problem.L, A, c).posterior()
    found = sweep(problem, tf.constant(sites), q)
    V = np.linalg.solve(problem.L, kernel(Z, X))
    expected = by_definition(V, 3.0 - np.sum(V**2, axis=0), sites[..., 0], alpha, scale)
    assert float(log_integral(q, c) + found.terms + problem.terms) == pytest.approx(
        expected, abs=CLOSE
    )


@pytest.fixture(scope="module")
def model():
    return PEP((X, Y), gpflow.kernels.Matern52(3.0), Probit(), X.copy(), alpha=1.0)


def test_improper_sites_are_not_kept(model, energy_of):
    """
    The first cavity is not proper: B is positive definite, but not without the first site, with
    prior variances 3 and correlation 0.75 or so of the first two, |I + K T| = 7 (1 - 1.5) + 4.5 1.1
    > 0, but 1 - 1.5 < 0. Or B is not.
    """
    expected = energy_of(model)
    for precision in ([[2.0], [-0.5], [0.0], [0.0]], -10.0 * np.ones((4, 1))):
        model.sites.precision.assign(precision)
        assert energy_of(model) == pytest.approx(expected, abs=1e-8)


@pytest.fixture
def energy_of():
    return lambda model: float(model.maximum_log_likelihood_objective())


def test_second_derivatives_are_refused(model):
    """A second derivative raises an error."""
    variable = model.kernel.variance.unconstrained_variable

    def second():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                value = model.maximum_log_likelihood_objective()
            (gradient,) = inner.gradient(value, [variable])
        return outer.gradient(gradient, [variable])

    with pytest.raises(NotImplementedError, match="differentiates its objectives once"):
        second()


@pytest.mark.parametrize("compile", some_slow([True, False], 1))
def test_persistent_tapes(model, compile):
    """
    Persistent tapes do not record the sweeps, whose functions would be differentiated repeatedly.
    """
    variables = model.trainable_variables

    def gradients(persistent):
        with tf.GradientTape(persistent=persistent) as tape:
            loss = model.training_loss()
        return tape.gradient(loss, variables)

    found = (tf.function(gradients, autograph=False) if compile else gradients)(True)
    for one, other in zip(found, gradients(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=CLOSE)
