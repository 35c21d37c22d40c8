"""The energy where it must stop; its values and derivatives are tested with the model, in tests/models."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit

X = np.linspace(-1.0, 1.0, 4)[:, None]
Y = np.array([[0.0], [1.0], [1.0], [0.0]])


@pytest.fixture
def model():
    return PEPClassifier((X, Y), gpflow.kernels.Matern52(3.0), Probit(), X.copy(), alpha=1.0)


def test_an_improper_cavity(model):
    """
    B is positive definite, but not without the first site: with prior variances 3 and correlation 0.75 or so of the
    first two, |I + K T| = 7 (1 - 1.5) + 4.5 1.1 > 0, but 1 - 1.5 < 0.
    """
    model.sites.precision.assign([[2.0], [-0.5], [0.0], [0.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)cavity is not proper.*update_sites"):
        model.maximum_log_likelihood_objective()
    model.alpha = 0.5
    assert np.isfinite(model.maximum_log_likelihood_objective())


def test_an_improper_posterior(model):
    model.sites.precision.assign(-10.0 * np.ones((4, 1)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="failed"):
        model.maximum_log_likelihood_objective()


def test_second_derivatives_are_refused(model):
    variable = model.kernel.variance.unconstrained_variable
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            value = model.maximum_log_likelihood_objective()
        (gradient,) = inner.gradient(value, [variable])
    with pytest.raises(NotImplementedError, match="differentiates its objectives once"):
        outer.gradient(gradient, [variable])
