"""Leave-one-out densities of PEP against fits to the other rows."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep import PEP
from gpflow_pep.likelihoods import Probit

N = 10
rng = np.random.default_rng(41)
X = np.sort(rng.uniform(-2.0, 2.0, (N, 1)), axis=0)
F = np.sin(2.0 * X + np.arange(2.0)) + 0.4 * rng.normal(size=(N, 2))
Z = np.linspace(-1.5, 1.5, 4)[:, None]


def _model(likelihood, Y):
    kernel = gpflow.kernels.SquaredExponential(2.0, lengthscales=0.8)
    return PEP(
        (X, Y), kernel, likelihood, Z, mean_function=gpflow.functions.Constant(0.1), tol=1e-11
    )


def _refitted(model):
    """log p(y_n | the other rows), each from sites that were converged without row n."""
    everything = tuple(values.numpy() for values in model.data)
    densities = []
    for n in range(N):
        model.data = tuple(np.delete(values, n, axis=0) for values in everything)
        densities.append(
            model.predict_log_density(tuple(values[n : n + 1] for values in everything)).numpy()[0]
        )
    model.data = everything
    return np.array(densities)


@pytest.mark.slow
def test_gaussian_is_exact():
    """Sites do not depend on other rows, so that q without one is a fit to the others: rounding is all that differs."""
    model = _model(gpflow.likelihoods.Gaussian(0.2), F)
    for alpha in (0.0, 0.6, 1.0):
        model.alpha = alpha
        expected = _refitted(model)
        np.testing.assert_allclose(
            model.loo_log_predictive_density(), expected, rtol=0.0, atol=1e-8
        )
        f_mean, f_var = model.predict_f(X)
        within = model.likelihood.predict_log_density(X, f_mean, f_var, F)
        assert np.sum(expected) < np.sum(within) - 0.5  # what is left out is missed


def test_without_a_site_q_may_be_improper():
    """
    Prior variances are 3, the correlation of the first two rows 0.9 or so: with precisions 2 and -0.5 B is positive
    definite, |I + K T| = 7 (1 - 1.5) + 9 (0.9²) > 0, but not without the first site, 1 - 1.5 < 0.
    """
    inputs = np.array([[0.0], [0.4], [5.0]])
    labels = np.array([[0.0], [1.0], [1.0]])
    model = PEP((inputs, labels), gpflow.kernels.Matern52(3.0), Probit(), inputs.copy(), alpha=0.0)
    model._warned.assign(True)
    model._options.max_sweeps.assign(0)  # the sites stay
    model.sites.precision.assign([[2.0], [-0.5], [0.3]])
    assert np.isfinite(model.maximum_log_likelihood_objective())
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"site of an observation is not proper.*a smaller alpha",
    ):
        model.loo_log_predictive_density()
