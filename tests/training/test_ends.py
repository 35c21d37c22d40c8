"""The end of L-BFGS where it may mislead: kinks at inducing points, targets far from 0, targets without signal."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import set_trainable
from own_kernels import BrownianMotion
from quick import some_slow

from gpflow_pep import PEPR, TSGPR, fit
from gpflow_pep.training import Scipy

RNG = np.random.default_rng(0)


def brownian_data():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.1, 5.0, (60, 1)), axis=0)
    return X, np.cumsum(0.3 * rng.normal(size=X.shape), axis=0) + 0.1 * rng.normal(size=X.shape)


@pytest.mark.parametrize("kind", some_slow([PEPR, TSGPR], 1))
def test_points_at_a_kink_do_not_end_training(kind):
    """When training says it has converged, the other parameters have reached their optimum."""
    X, Y = brownian_data()
    model = kind((X, Y), BrownianMotion(), X[::6].copy())
    assert fit(model).status == "converged"
    before = float(model.training_loss())
    set_trainable(model.inducing_variable, False)
    fit(model, tolerance=1e-6)
    assert before - float(model.training_loss()) < 0.1


def test_a_line_search_that_fails_on_a_slope_is_no_convergence():
    X, Y = brownian_data()
    model = PEPR((X, Y), BrownianMotion(), X[::6].copy())
    set_trainable(model.kernel, False)
    set_trainable(model.likelihood, False)
    with pytest.warns(
        UserWarning,
        match="no step raises the objective beyond rounding, although its slope is .* Try standardized X",
    ):
        assert fit(model).status == "failed"


@pytest.mark.slow
def test_training_that_fails_far_from_zero_advises_to_standardize():
    X = np.random.default_rng(0).uniform(0.0, 6.0, (40, 1))
    with pytest.warns(UserWarning, match="Try standardized X and Y, a mean function"):
        result = fit(PEPR((X, 1e8 + np.sin(X)), gpflow.kernels.Matern52(), X[:10].copy()))
    assert result.status == "failed"


def test_a_line_search_that_fails_by_rounding_is_convergence():
    """Kuu + noise has a condition number of 1e14: objectives at neighboring numbers differ by 0.3 nats."""
    X = np.repeat(np.random.default_rng(0).uniform(-4.0, 4.0, (200, 1)), 3, axis=1)
    model = PEPR((X, X.sum(axis=1, keepdims=True)), gpflow.kernels.Matern52(), X[:40].copy())
    result = fit(model, train_inducing=False)
    assert (
        result.status == "converged"
        and "no step raises the objective beyond rounding, about" in result.reason
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_targets_far_from_zero_are_not_taken_for_noise(alpha):
    X = RNG.uniform(0.0, 10.0, (200, 1))
    Y = 5e4 + 1e4 * np.sin(X) + 1e3 * RNG.normal(size=X.shape)
    model = PEPR((X, Y), gpflow.kernels.SquaredExponential(), X[::10].copy(), alpha=alpha)
    result = fit(model)
    assert result.status == "converged" and "explain nothing" not in result.reason
    assert np.var(Y - model.predict_f(X)[0]) < 0.05 * np.var(Y)


def test_says_that_the_inputs_explain_nothing():
    X = RNG.uniform(0.0, 10.0, (100, 1))
    model = PEPR((X, RNG.normal(size=X.shape)), gpflow.kernels.SquaredExponential(), X[::10].copy())
    assert "The inputs explain nothing" in fit(model).reason


def test_what_cannot_be_trained_is_refused():
    X = RNG.uniform(0.0, 10.0, (20, 1))
    models = [PEPR((X, np.sin(X)), gpflow.kernels.Matern32(), X[::5].copy()) for _ in range(2)]
    with pytest.raises(ValueError, match=r"^callback must be a function or None, got 3"):
        fit(models[0], callback=3)
    with pytest.raises(
        ValueError, match=r"^variables must belong to the model given to Scipy, a PEPR"
    ):
        Scipy(models[0]).minimize(models[1].training_loss, models[1].trainable_variables)
    models[0].count = tf.Variable(3)
    with pytest.raises(
        ValueError, match=r"^trainable variables must be floating point numbers, got"
    ):
        fit(models[0])
