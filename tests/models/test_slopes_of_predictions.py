"""
First and second derivatives of predictions in the inputs, compiled and not, against finite
differences.
"""

import gpflow
import numpy as np
import tensorflow as tf
from comparisons import assert_near
from gpflow.kernels import Matern52, SquaredExponential
from refusals import stopped

from gpflow_pep import PEPR, PEPSVGP, PEPClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.sin(X.sum(axis=1, keepdims=True))
POINT = np.array([[0.3, -0.2]])
STEP = 1e-4


def test_of_compiled_predictions():
    model = PEPClassifier(
        (X, (Y > 0.0).astype(float)), SquaredExponential(), inducing_variable=X[:8]
    )
    for predict in (tf.function(model.predict_f), model.posterior().predict_f):
        below, middle, above = (
            float(predict(POINT + np.array([STEP * k, 0.0]))[1][0, 0]) for k in (-1, 0, 1)
        )
        x = tf.constant(POINT)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                variance = predict(x)[1][0, 0]
            first = inner.gradient(variance, x)[0, 0]
        second = outer.gradient(first, x)[0, 0]
        assert_near(first, (above - below) / (2.0 * STEP), 1e-7)
        assert_near(second, (above + below - 2.0 * middle) / STEP**2, 1e-5)


def test_elbo_is_the_objective_at_alpha_zero():
    model = PEPR((X, Y), Matern52(), X[:8], noise_variance=0.1)
    with stopped(r"elbo\(\) needs alpha = 0.* 0\.5"):
        model.elbo()
    model.alpha = 0.0
    assert model.elbo() == model.maximum_log_likelihood_objective()
    minibatches = PEPSVGP(Matern52(), gpflow.likelihoods.Gaussian(), X[:8], num_data=40)
    with stopped(r"elbo\(\) needs alpha = 0.* 0\.5"):
        minibatches.elbo((X, Y))
