"""
T-PEP for any likelihood (`scale`), and a power for each row, against the models for regression that
have them.

Problems are tiny (N = 24, M = 5), Kuu has a condition number below 1e3; two routes to one number
differ by 1e-9 at the worst, as in test_limits.py: CLOSE, relative to the largest, is that with a
power of ten.
"""

import gpflow
import numpy as np
import pytest
from dense_formulas import make_problem
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from model_values import assert_close, assert_same, positive_parameter, random_q
from numpy.testing import assert_allclose
from quick import some_slow

from gpflow_pep import APEP, ARPEP, PEP, PEPR, PEPSVGP, RPAPEP

CLOSE = 1e-8
TOL = 1e-12
N = 24
MIXED = np.resize([0.0, 0.5, 1.0, 0.3], N)


def parts(Z):
    return {
        "kernel": SquaredExponential(1.3, lengthscales=[0.8, 1.1]),
        "likelihood": Gaussian(0.15),
        "inducing_variable": InducingPoints(Z),
        "mean_function": gpflow.functions.Constant(0.3),
    }


@pytest.fixture(scope="module", params=some_slow(["one", "each"], quick=["each"]))
def pair(request):
    """
    PEPR and PEP made of the same parts, a trainable scale among them; alpha is one number or one
    for each row.
    """
    X, Y, Z, Xnew = make_problem()
    shared = {**parts(Z), "scale": positive_parameter(0.7)}
    by_row = request.param == "each"
    alpha = MIXED if by_row else 0.5
    pepr = PEPR((X, Y), alpha=alpha, blocks=1 if by_row else None, **shared)
    return pepr, PEP((X, Y), alpha=alpha, tol=TOL, **shared), Xnew


@pytest.mark.parametrize(
    ("alpha", "scale"), [(0.0, 0.6), (0.4, 1.0), (1.0, 1.7), ("mixed", 0.6), ("mixed", 1.0)]
)
def test_gaussian_is_t_pep(pair, alpha, scale):
    """Objective, derivatives (also in m), q(u) and predictions."""
    pepr, model, Xnew = pair
    by_row = model.alpha.shape.rank == 1
    if alpha == "mixed" and not by_row:
        alpha = 0.3
    for each in (pepr, model):
        each.alpha = MIXED if alpha == "mixed" else np.full(N, alpha) if by_row else alpha
    model.scale.assign(scale)
    assert pepr.scale is model.scale
    assert_same(model, pepr, CLOSE)
    assert_close(model.predict_f(Xnew, full_cov=True), pepr.predict_f(Xnew, full_cov=True), CLOSE)
    assert_close(model.predict_y(Xnew), pepr.predict_y(Xnew), CLOSE)
    assert_close(model.compute_qu(), pepr.compute_qu(), CLOSE)
    assert model.sites_status.converged


# --- models whose factors are tied ----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale"), [(APEP, 0.6), (ARPEP, 1.7), (RPAPEP, 1.0)])
def test_tied_models_at_alpha_zero_are_pepsvgp(kind, scale):
    """With one q(u) of two latent functions."""
    X, Y, Z, _ = make_problem(P=2)
    q = random_q(np.random.default_rng(91), len(Z), 2)
    options = {"alpha": 0.0, "scale": scale, "num_data": N, "num_latent_gps": 2}
    value, expected = (
        each(**parts(Z), **q, **options).training_loss((X, Y)) for each in (kind, PEPSVGP)
    )
    assert_allclose(value, expected, rtol=CLOSE)
