"""Vanilla streaming VB is what its definition says, and StreamingSGPR if nothing changes."""

import numpy as np
import pytest
from covariances import Kuu_of
from gpflow.kernels import Matern52
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from waves import line

from experiments.learners.vanilla import VanillaStreamingSGPR
from gpflow_pep import StreamingSGPR

NOISE = 0.1
X = line(0.0, 6.0, 40)
Y = np.sin(2.0 * X) + 0.1 * np.cos(30.0 * X)
Z = line(0.2, 3.0, 5)
Z_NEW = np.concatenate([Z, [[4.0], [5.0]]])


@pytest.fixture
def models():
    """Both models, after the first batch."""
    return [
        model((X[:20], Y[:20]), Matern52(), Z, noise_variance=NOISE)
        for model in (VanillaStreamingSGPR, StreamingSGPR)
    ]


def updated(model, lengthscale):
    model.update((X[20:], Y[20:]), Z_NEW)
    model.kernel.lengthscales.assign(lengthscale)
    return model.maximum_log_likelihood_objective()


def test_fixed_hyperparameters_make_it_the_streaming_model(models):
    found, expected = (updated(model, 1.0) for model in models)
    # The correction is a difference of equal terms: rounding of Cholesky factors.
    assert_allclose(found, expected, rtol=1e-12)


def test_objective_is_the_bound_with_the_old_posterior_as_the_prior(models):
    """
    log N(y; W m, W S W' + σ²I) - tr(D)/2σ² with N(m, S) the old posterior of the old points,
    extended to the new ones by the conditional prior at the new lengthscale.
    """
    model, other = models
    mean, covariance = model.compute_qu()
    found = updated(model, 0.6)
    kernel = model.kernel
    Kbb = Kuu_of(kernel, Z_NEW)
    Kaa = Kbb[:5, :5]
    G = Kbb[:, :5] @ np.linalg.inv(Kaa)
    S = Kbb + G @ (covariance - Kaa) @ G.T
    Kfb = kernel(X[20:], Z_NEW).numpy()
    W = Kfb @ np.linalg.inv(Kbb)
    D = kernel(X[20:], full_cov=False) - np.sum(W * Kfb, axis=1)
    total = W @ S @ W.T + NOISE * np.eye(20)
    density = multivariate_normal.logpdf(Y[20:, 0], (W @ G @ mean)[:, 0], total)
    # Inverses of matrices of condition number below 1e4 in double precision.
    assert_allclose(found, density - np.sum(D) / (2.0 * NOISE), rtol=1e-10)
    assert abs(found - updated(other, 0.6)) > 0.1
