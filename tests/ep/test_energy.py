"""
The energy of sites that are not proper, and its derivatives. Its values: models/test_pep_dense.py.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_near, assert_near
from quick import partly_slow

from gpflow_pep import PEP
from gpflow_pep.likelihoods import Probit

CLOSE = 1e-9  # numbers of order 1, matrices of condition 1e2, quadrature to 1e-11
X = np.linspace(-1.0, 1.0, 4)[:, None]
Y = np.array([[0.0], [1.0], [1.0], [0.0]])


@pytest.fixture(scope="module")
def model():
    return PEP((X, Y), gpflow.kernels.Matern52(3.0), Probit(), X, alpha=1.0)


def test_improper_sites_are_not_kept(model):
    """
    The first cavity is not proper: B is positive definite, but not without the first site, with
    prior variances 3 and correlation 0.75 or so of the first two, |I + K T| = 7 (1 - 1.5) + 4.5 1.1
    > 0, but 1 - 1.5 < 0. Or B is not.
    """
    expected = float(model.maximum_log_likelihood_objective())
    for precision in ([[2.0], [-0.5], [0.0], [0.0]], -10.0 * np.ones((4, 1))):
        model.sites.precision.assign(precision)
        assert_near(model.maximum_log_likelihood_objective(), expected, 1e-8)


def test_second_derivatives_are_refused(model):
    """A second derivative raises an error."""
    variable = model.kernel.variance.unconstrained_variable

    def second():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                value = model.maximum_log_likelihood_objective()
            (gradient,) = inner.gradient(value, [variable])
        return outer.gradient(gradient, [variable])

    with pytest.raises(NotImplementedError, match="differentiates its objectives once"):
        second()


@partly_slow("compile", [True, False], 1)
def test_persistent_tapes(model, compile):
    """
    Persistent tapes do not record the sweeps, whose functions would be differentiated repeatedly.
    """
    variables = model.trainable_variables

    def gradients(persistent):
        with tf.GradientTape(persistent=persistent) as tape:
            loss = model.training_loss()
        return tape.gradient(loss, variables)

    found = (tf.function(gradients, autograph=False) if compile else gradients)(True)
    assert_all_near(found, gradients(False), CLOSE)
