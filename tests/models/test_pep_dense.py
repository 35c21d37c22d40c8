"""PEP against power EP as it is defined, whose sums have errors of 1e-12. Sites that have converged
to TOL leave as much again. The model's own quadrature is good to 1e-8 by its word, in practice to
1e-11: CLOSE.
"""

from dataclasses import replace
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
from comparisons import assert_near
from dense_power_ep import MEAN, PowerEP, poisson, probit, student_t
from gpflow.functions import Constant
from gpflow.kernels import Matern52
from model_values import energy_at_sites
from numpy.testing import assert_array_equal
from quick import some_slow

from gpflow_pep import PEP
from gpflow_pep.likelihoods import Probit

CLOSE = 1e-9
TOL = 1e-12
X = np.array([[0.0], [0.8], [1.7], [2.3]])
FEWER = np.array([[0.2], [1.1], [2.2]])
ROWS = np.arange(4)[:, None]


class Observed(NamedTuple):
    """A likelihood of GPflow, log p(y|f) without it, and observations of X."""

    likelihood: type
    log_prob: object
    Y: np.ndarray
    alphas: tuple


OBSERVED = {
    "Poisson": Observed(
        gpflow.likelihoods.Poisson, poisson, np.array([0.0, 2.0, 5.0, 1.0]), (0.0, 0.5, 1.0)
    ),
    "StudentT": Observed(
        lambda: gpflow.likelihoods.StudentT(scale=0.6),
        student_t,
        np.array([-0.4, 1.5, 4.5, 0.6]),
        (0.5, 1.0),
    ),
}


def made(Y, kernel, likelihood, Z, **options):
    return PEP((X, Y[:, None]), kernel, likelihood, Z, mean_function=Constant(MEAN), **options)


@pytest.fixture(scope="module", autouse=True)
def _no_jitter():
    with gpflow.config.as_context(replace(gpflow.config.config(), jitter=0.0)):
        yield


CASES = ["Poisson", "Poisson, full", "StudentT", "StudentT, full"]


@pytest.fixture(scope="module", params=some_slow(CASES, 1))
def case(request):
    """A model, and functions of alpha that return the definition."""
    name, *full = request.param.split(", ")
    Z = X if full else FEWER
    observed = OBSERVED[name]
    model = made(observed.Y, Matern52(1.4, lengthscales=0.9), observed.likelihood(), Z, tol=TOL)

    def definition(alpha):
        return PowerEP(model.kernel, X, Z, ROWS, observed.log_prob, observed.Y, alpha)

    return observed.alphas, model, definition


def test_matches_dense_power_ep(case):
    """Sites, energy, q(u) and, from Z = X, q(f)."""
    alphas, model, definition = case
    for alpha in alphas:
        model.alpha = alpha
        status = model.update_sites()
        expected = definition(alpha).converge()
        assert status.converged
        h, t = (np.concatenate(each).ravel() for each in zip(*expected.sites, strict=True))
        assert_near(model.sites.precision[:, 0], t, CLOSE)
        assert_near(model.sites.linear[:, 0], h, CLOSE * abs(h).max())
        for energy in (model.maximum_log_likelihood_objective(), status.log_evidence):
            assert_near(energy, expected.energy(), CLOSE)
        linear, precision = expected.natural()
        q_mu, q_cov = model.compute_qu()
        assert_near(q_cov, np.linalg.inv(precision), CLOSE)
        assert_near(q_mu[:, 0], np.linalg.solve(precision, linear), CLOSE)


@pytest.mark.parametrize(
    ("alpha", "scale"),
    [(0.0, 1.0), (1.0, 1.0), (0.3, 1.7), (np.array([0.3, 1.0, 0.5, 0.8]), 0.6)],
)
def test_energy_of_powers_and_scales_at_any_sites(alpha, scale):
    """Not only where they have converged; the evaluation leaves them as they are."""
    labels = np.array([0.0, 1.0, 1.0, 0.0])
    kernel = Matern52(3.0)
    model = made(labels, kernel, Probit(), FEWER, alpha=alpha, scale=scale)
    definition = PowerEP(kernel, X, FEWER, ROWS, probit, labels, alpha, scale)
    rng = np.random.default_rng(81)
    t, h = rng.uniform(-0.1, 0.5, (4, 1)), rng.normal(size=(4, 1))
    definition.sites = list(zip(h, t[..., None], strict=True))
    model.sites.precision.assign(t)
    model.sites.linear.assign(h)
    assert_near(energy_at_sites(model), definition.energy(), CLOSE)
    assert_array_equal(model.sites.precision, t)
