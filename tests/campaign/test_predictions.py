"""A small part of the campaign of predictive densities; it finds wrong ones."""

import numpy as np
import pytest
from scipy import stats

from campaign import predictions
from campaign.predictions import LIKELIHOODS, case_of, run


def test_every_likelihood_is_drawn():
    assert {case_of(seed).name for seed in range(200)} == set(LIKELIHOODS)


def first_of(name):
    return next(case for case in map(case_of, range(200)) if case.name == name)


@pytest.mark.parametrize("name", ["logit", "gamma"])
def test_a_small_share(name):
    outcome = run(first_of(name))
    assert outcome.verdict == "right", outcome


def test_an_observation_that_contradicts_the_marginal():
    """Gaussian noise has a closed form, and its integrand lies 90 standard deviations away."""
    mean = 7.0
    variance = 5e-4
    y = 9.1
    noise = 1e-4
    density = predictions.expected(
        lambda f, y: stats.norm.logpdf(y, f, np.sqrt(noise)), mean, variance, y
    )
    np.testing.assert_allclose(
        density, stats.norm.logpdf(y, mean, np.sqrt(variance + noise)), rtol=1e-9
    )


def test_wrong_densities_are_found(monkeypatch):
    """One row that is 2e-5 nats off, or NaN."""
    case = first_of("ordinal")
    right = predictions.predicted_log_density
    for error, verdict in ((2e-5, "wrong density"), (np.nan, "not finite")):
        change = np.array([error] + 19 * [0.0])
        monkeypatch.setattr(
            predictions, "predicted_log_density", lambda *rows, by=change: right(*rows) + by
        )
        assert run(case).verdict == verdict
