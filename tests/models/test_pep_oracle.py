"""
PEPClassifier against reference numbers (tests/data): sites, energy, q(u), predictions and
derivatives.

The references are double precision with quadrature that converges exponentially, right to 1e-11 at
least. Here sites have converged to TOL, which leaves q off by TOL/(1 - contraction), a few times
1e-11, the derivatives by ten times that (their terms cancel), and the energy by much less where it
is stationary. Errors of quadrature, 1e-12 or so on cavities as narrow as these, are divided by
alpha, 1e-3 at the least. POSTERIOR and GRADIENT, relative to the largest number, are these with a
power of ten; ENERGY is absolute.

There is no jitter, but where Z = X: there Kuu has condition numbers of up to 3e17, which e = 1e-12
mends. That makes d_n up to e, which changes the energy by about Σ d_n (h_n² + τ_n)/2 < 1e-10.
Between and beyond the inputs K*u (Kuu + e)^-1 Kuf differs from K*f by at most sqrt(k** e)/2 = 2e-6,
seldom by a hundredth of it: PREDICTION.
"""

import functools
from dataclasses import replace

import gpflow
import numpy as np
import pytest
from comparisons import assert_near
from model_values import assert_close, log_gradients, recorded
from quick import named_cases

from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit

TOL = 1e-11
ENERGY = 1e-10
POSTERIOR = 1e-9
PREDICTION = 1e-7
GRADIENT = 1e-7
LIKELIHOODS = {"probit": Probit, "probit_gpflow": gpflow.likelihoods.Bernoulli}

QUICK = ("probit_pep/P1/probit/", "gpc_full/Q1/")


def _named(cases):
    """Those of a few models, each compiled once, are not slow."""
    return named_cases(cases, lambda name: name.startswith(QUICK))


SPARSE = recorded("probit_pep")
FULL = recorded("gpc_full")
CASES = SPARSE + FULL
WITH_GRADIENTS = [case for case in CASES if "grad" in case["expected"]]


@pytest.fixture(autouse=True)
def _little_jitter(request):
    inputs = request.node.callspec.params["case"]["inputs"]
    jitter = 1e-12 if inputs.get("Z", inputs["X"]) == inputs["X"] else 0.0
    with gpflow.config.as_context(
        replace(gpflow.config.config(), jitter=jitter, positive_minimum=0.0)
    ):
        yield


@functools.cache
def _model(dataset, likelihood, projection):
    """
    One model for all cases that differ in alpha alone, so that little is compiled; they do not
    change it else.
    """
    inputs = next(case["inputs"] for case in CASES if case["dataset"] == dataset)
    X = np.array(inputs["X"])
    Y = 0.5 * (1.0 + np.array(inputs["Y_pm1"])[:, None])
    kernel = gpflow.kernels.SquaredExponential(
        **{k: v for k, v in inputs["kernel"].items() if k != "name"}
    )
    Z = np.array(inputs.get("Z", inputs["X"]))
    return PEPClassifier(
        (X, Y), kernel, LIKELIHOODS[likelihood](), Z, projection=projection, tol=TOL
    )


def _converged(case):
    inputs = case["inputs"]
    projection = "wasserstein" if case["name"].endswith("QP") else "kl"
    model = _model(case["dataset"], inputs["likelihood"], projection)
    model.alpha = inputs.get("alpha", 1.0)
    assert model.update_sites().converged
    return model


def _assert_gradients(model, expected):
    _, gradients = log_gradients(model)
    assert_close([gradients[name] for name in expected], expected.values(), GRADIENT)


@pytest.mark.parametrize("case", _named(CASES))
def test_energy_sites_and_predictions_at_convergence(case):
    model = _converged(case)
    expected = case["expected"]
    assert_near(model.maximum_log_likelihood_objective(), expected["objective"], ENERGY)
    q_mu, q_cov = model.compute_qu()
    Xtest = np.array(case["inputs"]["Xtest"])
    mean, variance = model.predict_f(Xtest)
    for name, actual, tolerance in (
        ("site_precision", model.sites.precision, POSTERIOR),
        ("site_precision_mean", model.sites.linear, POSTERIOR),
        ("q_mu", q_mu, POSTERIOR),
        ("q_cov", q_cov, POSTERIOR),
        ("f_mean", mean, PREDICTION),
        ("f_var", variance, PREDICTION),
        ("prob", model.predict_y(Xtest)[0], PREDICTION),
    ):
        assert_close([np.ravel(actual)], [np.ravel(expected[name])], tolerance)


@pytest.mark.parametrize("case", _named(WITH_GRADIENTS))
def test_derivatives(case):
    """
    Of the converged energy. EP's is stationary in the sites: derivatives while they stay, `grad_sites_fixed`,
    are the same, but not of quantile propagation.
    """
    model = _converged(case)
    expected = case["expected"]
    _assert_gradients(model, expected["grad"])
    if "grad_sites_fixed" in expected and not case["name"].endswith("QP"):
        _assert_gradients(model, expected["grad_sites_fixed"])
