"""Predictive variances times a factor from leave-one-out predictions."""

from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from gpflow_pep.estimators import SparseGPRegressor, regressor

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(60, 1))
# A step: with one lengthscale, errors near it are larger than their standard deviations.
Y = (X > 0.0) + 0.01 * rng.normal(size=(60, 1))


def fitted(**options):
    return SparseGPRegressor(n_draws=0, random_state=0, **options).fit(X, Y[:, 0])


@pytest.fixture(scope="module")
def estimator():
    return fitted()


def test_factor_is_the_mean_square_of_standardized_errors(estimator):
    """By the inverse of the covariance of all rows, which are the inducing points."""
    model = estimator.model_
    K = model.kernel(X).numpy() + model.likelihood.variance.numpy() * np.eye(60)
    precision = np.linalg.inv(K)
    weights = precision @ model.data[1].numpy()[:, 0]
    factor = np.mean(weights**2 / np.diag(precision))
    assert factor > 1.2
    # The jitter of the inducing points, 1e-6, is .3 % of the noise variance.
    assert_allclose(estimator.variance_factor_, factor, rtol=3e-3)


def test_variances_are_multiplied(estimator):
    plain = fitted(calibrate=False)
    assert_array_equal(plain.variance_factor_, 1.0)
    mean, sd = estimator.predict(X, return_std=True)
    same, smaller = plain.predict(X, return_std=True)
    assert_allclose(mean, same, rtol=1e-12)
    factor = estimator.variance_factor_
    assert_allclose(sd**2, factor * smaller**2, rtol=1e-12)
    covariance = estimator.predict(X, return_cov=True)[1]
    assert_allclose(np.diag(covariance), sd**2, rtol=1e-8)


def test_each_output_has_a_factor():
    rough = np.sin(X) + 0.2 * rng.normal(size=(60, 1))
    estimator = SparseGPRegressor(n_draws=0).fit(X, np.hstack([Y, rough]))
    assert estimator.variance_factor_[0] < 1.1 < estimator.variance_factor_[1]
    plain = SparseGPRegressor(n_draws=0, calibrate=False).fit(X, np.hstack([Y, rough]))
    ratio = estimator.predict(X, return_cov=True)[1] / plain.predict(X, return_cov=True)[1]
    assert_allclose(ratio, np.broadcast_to(estimator.variance_factor_, ratio.shape), rtol=1e-9)


def test_only_priors_calibrate_by_default():
    assert_array_equal(fitted(priors=None).variance_factor_, 1.0)
    assert fitted(priors=None, calibrate=True).variance_factor_ > 1.2


def test_hyperparameters_that_were_not_trained():
    initial = {"optimizer": None, "noise_variance": 1e-4}
    assert fitted(**initial).variance_factor_ == 1.0
    assert fitted(**initial, calibrate=True).variance_factor_ > 1.2


@pytest.mark.parametrize("calibrate", ["auto", 1, 0])
def test_other_values_are_refused(calibrate):
    for method in ("fit", "partial_fit"):
        with refused("calibrate must be None, True or False"):
            getattr(SparseGPRegressor(calibrate=calibrate), method)(X, Y[:, 0])


def test_a_stream_is_not_calibrated(estimator):
    with refused("calibrate must be None or False for partial_fit, got True"):
        SparseGPRegressor(calibrate=True).partial_fit(X, Y[:, 0])
    stream = deepcopy(estimator).partial_fit(X[:9], Y[:9, 0])
    assert stream.variance_factor_ == 1.0


def test_leave_one_out_predictions_that_are_not_finite(monkeypatch):
    monkeypatch.setattr(regressor, "mean_squares", lambda model: np.array([np.nan]))
    with pytest.warns(UserWarning, match="^Predictions are not calibrated"):
        assert fitted(calibrate=True).variance_factor_ == 1.0
