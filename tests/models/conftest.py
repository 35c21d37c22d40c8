"""
Fixtures for models: small problems, dense formulas, gradients, comparisons, and the sites of PEP.
"""

from dataclasses import replace

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from dense_formulas import Dense, make_problem
from model_values import loss_and_gradient


@pytest.fixture
def no_jitter():
    """
    GPflow's configuration without jitter and without a minimum of positive parameters; restored
    afterwards.
    """
    with gpflow.config.as_context(
        replace(gpflow.config.config(), jitter=0.0, positive_minimum=0.0)
    ):
        yield


@pytest.fixture(scope="session")
def problem():
    """Makes regression problems; see :func:`dense_formulas.make_problem`."""
    return make_problem


@pytest.fixture(scope="session")
def dense():
    return Dense


@pytest.fixture(scope="session")
def named():
    """The unconstrained variables of a model's trainable parameters, by name."""

    def variables(model):
        parameters = gpflow.utilities.parameter_dict(model)
        return {name: p.unconstrained_variable for name, p in parameters.items() if p.trainable}

    return variables


def _value_and_gradients(model, variables):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = model.maximum_log_likelihood_objective()
    return value.numpy(), [np.asarray(gradient) for gradient in tape.gradient(value, variables)]


@pytest.fixture(scope="session")
def value_and_gradients(named):
    """
    The objective and its derivatives in `variables`, by default all that the model trains. Models
    made of the same kernel, inducing variable, likelihood and mean function are compared in the
    variables of one of them.
    """

    def evaluate(model, variables=None):
        return _value_and_gradients(
            model, list(named(model).values()) if variables is None else variables
        )

    return evaluate


def _flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


@pytest.fixture(scope="session")
def compiled_step():
    """Makes a compiled function of a model's loss and gradients."""

    def make(model):
        return tf.function(lambda: loss_and_gradient(model), autograph=False)

    return make


@pytest.fixture(scope="session")
def assert_close():
    """
    Asserts that lists of arrays agree to `rel` times the largest number expected in any of them.
    """

    def check(actual, expected, rel):
        assert [np.shape(a) for a in actual] == [np.shape(e) for e in expected]
        actual, expected = _flat(actual), _flat(expected)
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=rel * np.max(np.abs(expected)))

    return check


@pytest.fixture(scope="session")
def assert_same(named, value_and_gradients, assert_close):
    """Asserts that two models made of the same parts have the same objective and gradients."""

    def check(actual, expected, rel):
        variables = list(named(expected).values())
        value, gradients = value_and_gradients(actual, variables)
        expected_value, expected_gradients = value_and_gradients(expected, variables)
        assert value == pytest.approx(expected_value, rel=rel)
        assert_close(gradients, expected_gradients, rel)

    return check


class Positive(gpflow.functions.Function):
    """A noise level that varies with the inputs: 0.1 + softplus of a linear function."""

    def __init__(self, slopes, intercept):
        super().__init__()
        self.linear = gpflow.functions.Linear(np.reshape(slopes, (-1, 1)), [intercept])

    def __call__(self, X):
        return 0.1 + tf.nn.softplus(self.linear(X))


@pytest.fixture(scope="session")
def varying_noise():
    """
    Makes Gaussian likelihoods whose variance, or whose standard deviation ("scale"), is a function
    of two inputs.
    """

    def make(quantity="variance"):
        return gpflow.likelihoods.Gaussian(**{quantity: Positive([0.8, -0.5], -0.7)})

    return make


@pytest.fixture(scope="session")
def converge():
    """
    Updates the sites of a PEP model to a tolerance, which stays with the model; returns the status.
    """

    def update(model, tol, **options):
        model.tol = tol
        status = model.update_sites(**options)
        assert status.converged
        return status

    return update


@pytest.fixture(scope="session")
def energy_at_sites():
    """The energy of a PEP model at its current sites, without a sweep."""

    def evaluate(model):
        before = model.max_sweeps
        # Fewer than users may ask for: the sites are evaluated, and stay.
        model._options.max_sweeps.assign(0)
        try:
            with model.without_warnings():
                return model.update_sites().log_evidence
        finally:
            model.max_sweeps = before

    return evaluate
