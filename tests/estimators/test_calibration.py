"""Predictive variances and probabilities, calibrated by leave-one-out predictions."""

import itertools
from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor, calibration

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
    K = model.kernel(X) + model.likelihood.variance * np.eye(60)
    precision = np.linalg.inv(K)
    weights = (precision @ model.data[1])[:, 0]
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
    assert_allclose(sd**2, estimator.variance_factor_ * smaller**2, rtol=1e-12)
    assert_allclose(np.diag(estimator.predict(X, return_cov=True)[1]), sd**2, rtol=1e-8)


def test_each_output_has_a_factor():
    rough = np.sin(X) + 0.2 * rng.normal(size=(60, 1))
    estimator = SparseGPRegressor(n_draws=0).fit(X, np.hstack([Y, rough]))
    factors = estimator.variance_factor_
    assert factors[0] < 1.1 < factors[1]
    _, covariance = estimator.predict(X, return_cov=True)
    estimator._variance_factors = np.ones(2)
    ratio = covariance / estimator.predict(X, return_cov=True)[1]
    assert_allclose(ratio, np.broadcast_to(factors, ratio.shape), rtol=1e-9)


def test_only_trained_priors_calibrate_by_default():
    assert_array_equal(fitted(priors=None).variance_factor_, 1.0)
    initial = {"optimizer": None, "noise_variance": 1e-4}
    assert fitted(**initial).variance_factor_ == 1.0
    assert fitted(**initial, calibrate=True).variance_factor_ > 1.2


@pytest.mark.parametrize("estimator_class", [SparseGPRegressor, SparseGPClassifier])
def test_values_that_are_refused(estimator_class):
    for calibrate, method in itertools.product(["auto", 1, 0], ["fit", "partial_fit"]):
        with refused("calibrate must be None, True or False"):
            getattr(estimator_class(calibrate=calibrate), method)(X, LABELS)
    with refused("calibrate must be None or False for partial_fit, got True"):
        estimator_class(calibrate=True).partial_fit(X, LABELS)


def test_a_batch_ends_the_calibration(estimator, classifier):
    stream = deepcopy(estimator).set_params(optimizer=None)
    assert stream.partial_fit(X[:9], Y[:9, 0]).variance_factor_ == 1.0
    stream = deepcopy(classifier).set_params(optimizer=None)
    assert stream.partial_fit(X[:9], LABELS[:9]).temperature_ == 1.0


def test_leave_one_out_predictions_that_are_not_finite(monkeypatch):
    monkeypatch.setattr(calibration, "mean_squares", lambda model: np.array([np.nan]))
    with pytest.warns(UserWarning, match="^Predictions are not calibrated"):
        assert fitted(calibrate=True).variance_factor_ == 1.0


LABELS = 1 * (X[:, 0] > 0.0)  # one function separates them


def classified(labels=LABELS, **options):
    return SparseGPClassifier(random_state=0, n_inducing=20, **options).fit(X, labels)


@pytest.fixture(scope="module")
def classifier():
    return classified(max_iterations=5)


def test_probabilities_are_raised_to_a_power(classifier):
    """The labels are separated: given the other rows they are nearly certain."""
    plain = deepcopy(classifier)
    plain.temperature_ = 1.0
    assert 0.2 < classifier.temperature_ < 0.9
    powers = plain.predict_proba(X) ** (1.0 / classifier.temperature_)
    expected = powers / powers.sum(axis=1, keepdims=True)
    assert_allclose(classifier.predict_proba(X), expected, rtol=1e-9)
    assert_array_equal(classifier.predict(X), plain.predict(X))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_temperature_has_the_smallest_penalized_loss(num_classes):
    """Among many; the predictions without a row are those of the leave-one-out densities."""
    labels = np.digitize(X[:, 0] + rng.normal(size=60), [0.0, 1.5][: num_classes - 1])
    classifier = classified(labels, max_iterations=5)
    model, cache = classifier.model_, classifier._posterior_values
    probabilities = calibration.leave_one_out_probabilities(model, cache)
    of_labels = probabilities[np.arange(60), labels]
    assert_allclose(np.log(of_labels), model.loo_log_predictive_density(), atol=1e-5)
    assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)

    logs = np.linspace(-1.0, 1.0, 20_001)
    powers = probabilities[None] ** np.exp(-logs)[:, None, None]
    right = powers[:, np.arange(60), labels] / powers.sum(axis=2)
    losses = -np.log(right).sum(axis=1) + 0.5 * (logs / 0.5) ** 2
    assert_allclose(classifier.temperature_, np.exp(logs[np.argmin(losses)]), rtol=3e-4)


def test_hyperparameters_that_were_not_trained(monkeypatch):
    assert classified(optimizer=None).temperature_ == 1.0
    assert classified(optimizer=None, calibrate=True).temperature_ < 1.0
    nan = np.full((60, 2), np.nan)
    monkeypatch.setattr(calibration, "leave_one_out_probabilities", lambda *_: nan)
    with pytest.warns(UserWarning, match="^Probabilities are not calibrated"):
        assert classified(optimizer=None, calibrate=True).temperature_ == 1.0


def test_temperature_does_not_depend_on_the_order_of_two_classes():
    """A row of the other class, as near to certain as rounding resolves."""
    p = np.r_[np.full(40, 0.9), 1e-20][:, None]
    y = np.r_[np.ones(36, int), np.zeros(4, int), 1]
    temperatures = [
        calibration.best_temperature(calibration.of_all_classes(probability), labels)
        for probability, labels in ((p, y), (1.0 - p, 1 - y))
    ]
    assert_allclose(*temperatures, rtol=1e-6)
    assert temperatures[0] > 1.0


def test_impossible_labels_have_a_finite_temperature():
    probabilities = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    temperature = calibration.best_temperature(probabilities, np.array([0, 1, 1]))
    assert 1.0 < temperature < 8.0
    assert_array_equal(calibration.tempered(probabilities, temperature), probabilities)
