"""
The end of L-BFGS where it may mislead: kinks at inducing points, targets far from 0, targets
without signal.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from gpflow.kernels import Linear, Matern32, Matern52, SquaredExponential
from gpflow.utilities import set_trainable
from own_kernels import BrownianMotion
from quick import partly_slow
from refusals import refused
from simulators import branin

from gpflow_pep import PEPR, TSGPR, fit
from gpflow_pep.estimators import SparseGPRegressor
from gpflow_pep.runtime.checks import asserted
from gpflow_pep.training import Scipy

RNG = np.random.default_rng(0)


def of_brownian_motion(kind):
    """A model of sixty rows of a path."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.1, 5.0, (60, 1)), axis=0)
    Y = np.cumsum(0.3 * rng.normal(size=X.shape), axis=0) + 0.1 * rng.normal(size=X.shape)
    return kind((X, Y), BrownianMotion(), X[::6])


@partly_slow("kind", [PEPR, TSGPR], 1)
def test_points_at_a_kink_do_not_end_training(kind):
    """When training says it has converged, the other parameters have reached their optimum."""
    model = of_brownian_motion(kind)
    assert fit(model).status == "converged"
    before = model.training_loss()
    set_trainable(model.inducing_variable, False)
    fit(model, tolerance=1e-6)
    assert before - model.training_loss() < 0.1


def test_a_line_search_that_fails_on_a_slope_is_no_convergence():
    model = of_brownian_motion(PEPR)
    set_trainable(model.kernel, False)
    set_trainable(model.likelihood, False)
    with pytest.warns(
        UserWarning,
        match="no step raises the objective beyond rounding, although its slope is .* Try standardized X",
    ):
        assert fit(model).status == "failed"


class OneParameter(gpflow.models.GPR):
    """A model whose loss is a function of one parameter x, which starts at 0."""

    def __init__(self, loss, num_rows):
        X = np.zeros((num_rows, 1))
        super().__init__((X, X), Matern52())
        set_trainable(self, False)
        self.x = gpflow.Parameter(0.0)
        self.loss = loss

    def maximum_log_likelihood_objective(self):
        return -self.loss(self.x)


@pytest.mark.parametrize(("num_rows", "slope"), [(1000, 300.0), (100, 30.0)])
def test_an_edge_of_the_domain_is_no_convergence(num_rows, slope):
    """
    The loss falls up to an edge, where evaluations fail; differences from failures are no rounding
    errors.
    """

    def loss(x):
        return asserted(1.5 * num_rows - slope * x, x < 1.0, "x must be below 1.")

    model = OneParameter(loss, num_rows)
    with pytest.warns(UserWarning, match="a step failed: x must be below 1. Try standardized X"):
        assert fit(model).status == "failed"
    assert 0.99 < model.x.numpy() < 1.0


@pytest.mark.parametrize("noise", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("name", ["exp", "logcosh"])
def test_the_last_record_is_the_objective_at_the_end(name, noise):
    """Also if the loss, with errors as of rounding, is by chance lower beside the end."""
    smooth = {
        "exp": lambda x: 10.0 * (tf.exp(x) - 3.0 * x),
        "logcosh": lambda x: 30.0 * tf.math.log(tf.cosh(2.0 * x - 3.0)),
    }[name]

    def loss(x):
        # A last digit of 1e9 x, at most 2.4e-7, changes the noise by less than 3e-6.
        return smooth(x) + noise * tf.stop_gradient(tf.sin(1e9 * x + 1.0))

    model = OneParameter(loss, 100)
    result = fit(model)
    assert result.status == "converged"
    assert_near(result.objective[-1], -model.training_loss(), 1e-5)


@partly_slow("seed", range(8), quick=[0])
def test_a_line_search_that_fails_by_rounding_is_convergence(seed):
    """
    Kuu + noise has a condition number of 1e14: objectives at neighboring numbers differ by 0.3
    nats. The order of rounding decides whether the last iterations gain little or a line search
    fails, which is no failure.
    """
    X = np.repeat(np.random.default_rng(seed).uniform(-4.0, 4.0, (200, 1)), 3, axis=1)
    model = PEPR((X, X.sum(axis=1, keepdims=True)), Matern52(), X[:40])
    assert fit(model, train_inducing=False).status == "converged"


SIMULATORS = {  # functions of the columns x [D, N], with N, D and alpha
    "line far from 0": (lambda x: 1e6 + x[0], 50, 1, (0.5,)),
    "step": (lambda x: 1.0 * (x[0] > 0.5), 60, 1, (0.5,)),
    "branin": (branin, 200, 2, (0.0, 0.5, 1.0)),
    "valley": (lambda x: 100.0 * (x[1] - 4.0 * x[0] ** 2) ** 2 + x[0], 100, 2, (0.0, 1.0)),
}
OF_ALPHA = [(name, alpha) for name, (*_, alphas) in SIMULATORS.items() for alpha in alphas]


@pytest.mark.filterwarnings("error:Training failed")
@pytest.mark.parametrize(("name", "alpha"), OF_ALPHA)
def test_data_without_noise_end_in_convergence(name, alpha):
    """
    The objective is rounded to between 1e-4 and 1 nat where the noise is at its bound, 1e-6 of the
    variance of y, and most line searches fail there. The noise found is at most 1e-5; errors are at
    most three standard deviations of it.
    """
    function, N, D, _ = SIMULATORS[name]
    X = np.random.default_rng(0).uniform(size=(N, D))
    y = function(X.T)
    estimator = SparseGPRegressor(random_state=0, alpha=alpha).fit(X, y)
    assert estimator.result_.status == "converged"
    assert np.abs(estimator.predict(X) - y).max() < 1e-2 * y.std()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_targets_far_from_zero_are_not_taken_for_noise(alpha):
    X = RNG.uniform(0.0, 10.0, (200, 1))
    Y = 5e4 + 1e4 * np.sin(X) + 1e3 * RNG.normal(size=X.shape)
    model = PEPR((X, Y), SquaredExponential(), X[::10], alpha=alpha)
    result = fit(model)
    assert result.status == "converged" and "explain nothing" not in result.reason
    assert np.var(Y - model.predict_f(X)[0]) < 0.05 * np.var(Y)


def test_says_that_the_inputs_explain_nothing():
    X = RNG.uniform(0.0, 10.0, (100, 1))
    model = PEPR((X, RNG.normal(size=X.shape)), SquaredExponential(), X[::10])
    assert "The inputs explain nothing" in fit(model).reason


def test_a_linear_function_is_explained_by_inputs():
    X = RNG.uniform(0.0, 10.0, (100, 1))
    Y = X + RNG.normal(size=X.shape)
    kernel = SquaredExponential() + Linear()
    assert "explain nothing" not in fit(PEPR((X, Y), kernel, X[::10])).reason


def test_what_cannot_be_trained_is_refused():
    X = RNG.uniform(0.0, 10.0, (20, 1))
    models = [PEPR((X, np.sin(X)), Matern32(), X[::5]) for _ in range(2)]
    with refused(r"^variables must belong to the model given to Scipy, a PEPR"):
        Scipy(models[0]).minimize(models[1].training_loss, models[1].trainable_variables)
    gpflow.set_trainable(models[1], False)
    models[1].unused = gpflow.Parameter(np.zeros(0))
    for optimizer in ("lbfgs", "adam"):
        result = fit(models[1], optimizer=optimizer)
        assert result.status == "converged" and result.iterations == 0
        assert result.reason == "Nothing is trainable."
    models[0].count = tf.Variable(3)
    with refused(r"^trainable variables must be floating point numbers, got"):
        fit(models[0])
