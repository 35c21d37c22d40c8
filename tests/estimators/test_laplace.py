"""The average over hyperparameters of few rows, and the default kernel of the regressor."""

import itertools
import pickle
from copy import deepcopy

import gpflow
import numpy as np
import pytest
from comparisons import assert_all_close, assert_all_equal
from numpy.testing import assert_allclose
from refusals import refused

from gpflow_pep import PEPR, weak_priors
from gpflow_pep.estimators import SparseGPRegressor
from gpflow_pep.estimators.laplace import averaged, hyperparameters, laplace_draws
from gpflow_pep.training import fit
from gpflow_pep.training.coordinates import Coordinates

rng = np.random.default_rng(7)
X = rng.normal(size=(20, 2)) * [1.0, 100.0] + [0.0, 1e4]
y = X[:, 0] + np.sin(X[:, 1] / 50.0) + 0.3 * rng.normal(size=20)
X_NEW = X[:5] + 0.1 * X.std(axis=0)


@pytest.fixture(scope="module")
def model():
    found = PEPR((X, y[:, None]), gpflow.kernels.Matern52(lengthscales=[1.0, 100.0]), X)
    gpflow.set_trainable(found.inducing_variable, False)
    weak_priors(found)
    fit(found, tolerance=1e-7)
    return found


@pytest.fixture(scope="module")
def estimator():
    return SparseGPRegressor(random_state=0).fit(X, y)


def test_covariance_of_draws_is_the_inverse_of_the_hessian(model):
    """
    By second differences of the log posterior density; draws span the columns of a root of the
    covariance.
    """
    maximum = Coordinates(model, hyperparameters(model)).values()
    copy = deepcopy(model)
    moved = Coordinates(copy, hyperparameters(copy))

    def density(values):
        moved.assign(values)
        return -copy.training_loss()

    step = 1e-3 * np.eye(len(maximum))
    hessian = np.array(
        [
            [
                density(maximum + a + b)
                - density(maximum + a - b)
                - density(maximum - a + b)
                + density(maximum - a - b)
                for a in step
            ]
            for b in step
        ]
    ) / (-4.0 * 1e-6)
    eigenvalues, vectors = np.linalg.eigh(hessian)
    covariance = (vectors / np.maximum(eigenvalues, 0.25)) @ vectors.T  # deviations up to 2
    num_pairs = 20_000
    values = laplace_draws(model, num_pairs)
    parts = [each.of(value, np) for each, value in zip(moved.each, values, strict=True)]
    draws = np.concatenate([part.reshape(2 * num_pairs, -1) for part in parts], axis=1)
    assert_allclose(draws.mean(axis=0), maximum, atol=1e-9)  # pairs
    scales = np.sqrt(np.diag(covariance))
    errors = (np.cov(draws.T) - covariance) / np.outer(scales, scales)
    # A sample covariance of 20,000 pairs has a relative standard deviation of √(2 / 20,000) = .01.
    assert_allclose(errors, 0.0, atol=0.05)


@pytest.mark.parametrize("full_cov", [False, True])
def test_average_is_the_mixture_of_the_models(model, full_cov):
    draws = laplace_draws(model, 3)
    before = [variable.numpy() for variable in model.variables]
    mean, spread = averaged(model, draws, X_NEW, full_cov=full_cov)
    copy = deepcopy(model)
    means = []
    second_moments = []
    for values in zip(*draws, strict=True):
        for variable, value in zip(hyperparameters(copy), values, strict=True):
            variable.assign(value)
        f, covariance = copy.predict_f(X_NEW, full_cov=True)
        of_y = covariance[0] + copy.likelihood.variance * np.eye(5)
        means.append(f[:, 0])
        second_moments.append(of_y + np.outer(f, f))
    expected = np.mean(second_moments, axis=0) - np.outer(*2 * [np.mean(means, axis=0)])
    assert_allclose(mean[:, 0], np.mean(means, axis=0), rtol=1e-9)
    if not full_cov:
        expected = np.diag(expected)
    assert_allclose(spread[..., 0], expected, rtol=1e-8, atol=1e-10)
    assert_all_equal(model.variables, before)


def test_few_rows_are_averaged(estimator):
    """
    The average is less certain than the maximum, and equal in copies, pickles and any order of
    rows.
    """
    at_maximum = SparseGPRegressor(n_draws=0, random_state=0).fit(X, y)
    mean, sd = estimator.predict(X_NEW, return_std=True)
    assert_allclose(np.diag(estimator.predict(X_NEW, return_cov=True)[1]), sd**2, rtol=1e-9)
    f, variance = at_maximum.model_.predict_y(X_NEW)
    assert_allclose(at_maximum.predict(X_NEW), f[:, 0] * y.std() + y.mean(), rtol=1e-9)
    assert np.mean(sd) > np.mean(np.sqrt(variance)) * y.std()
    for copy in (deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
        assert_allclose(copy.predict(X_NEW[::-1]), mean[::-1], rtol=1e-9)


def test_predictions_of_the_model_itself():
    estimator = SparseGPRegressor(random_state=0, priors=None).fit(X, y)
    f, _ = estimator.model_.predict_y(X_NEW)
    assert_allclose(estimator.predict(X_NEW), f[:, 0] * y.std() + y.mean(), rtol=1e-9)


def test_numbers_of_draws_are_checked():
    """Draws need the maximum of a training on all rows."""
    for n_draws, method in itertools.product([3, -2, 2.0, "8"], ["fit", "partial_fit"]):
        with refused("n_draws must be"):
            getattr(SparseGPRegressor(n_draws=n_draws), method)(X, y)
    with refused("n_draws must be None or 0 for partial_fit, got 8"):
        SparseGPRegressor(n_draws=8).partial_fit(X, y)
    with refused("n_draws must be None or 0 with optimizer=None, got 8"):
        SparseGPRegressor(n_draws=8, optimizer=None).fit(X, y)
    estimator = SparseGPRegressor(n_draws=8, max_iterations=1)
    with pytest.warns(UserWarning, match="not averaged over n_draws = 8 draws"):
        estimator.fit(X, y)


@pytest.mark.parametrize("unit", [1e-300, 1e290])
def test_averages_in_extreme_units(estimator, unit):
    """
    Logarithms of lengthscales, about 690, are rounded to 1e-13, and differences are over 2e-3.
    """
    found = SparseGPRegressor(random_state=0).fit(unit * X, y)
    assert_allclose(
        found.log_marginal_likelihood_value_, estimator.log_marginal_likelihood_value_, rtol=1e-6
    )
    assert_all_close(
        found.predict(unit * X_NEW, return_std=True),
        estimator.predict(X_NEW, return_std=True),
        rtol=1e-5,
    )
