"""
A number in place of a parameter: assigned if the parameter is the model's own, otherwise an error
that names it.
"""

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.kernels import Coregion, Matern52, SquaredExponential
from gpflow.likelihoods import Gaussian, StudentT
from model_values import positive_parameter
from refusals import refused, stopped

from gpflow_pep import ARPEP, PEP, PEPR, TSVGP, PEPClassifier, StreamingSGPR, fit
from gpflow_pep.inducing import greedy_variance

X = np.linspace(0.0, 6.0, 30)[:, None]
Y = np.sin(X)
Z = X[::6]


def minibatch_model(kernel, rows):
    return TSVGP(kernel, StudentT(), rows[::6], num_data=len(rows))


@pytest.mark.parametrize("value", [2.0, [2.0], tf.constant(2.0)], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        lambda kernel, rows: PEPR((rows, Y), kernel, rows[::6]),
        lambda kernel, rows: PEPClassifier(
            (rows, (Y > 0.0).astype(float)), kernel, inducing_variable=rows[::6]
        ),
        minibatch_model,
    ],
    ids=["PEPR", "PEPClassifier", "TSVGP"],
)
def test_a_number_for_a_parameter_of_the_kernel_is_an_error(make, value):
    model = make(Matern52(), X)
    model.kernel.lengthscales = value
    arguments = () if hasattr(model, "data") else ((X, Y),)
    for use in (lambda: model.training_loss(*arguments), lambda: model.predict_f(X)):
        with refused(r"^lengthscales of Matern52 must stay a parameter, .*assign"):
            use()


@pytest.mark.parametrize("value", [0.25, tf.constant(0.25)], ids=repr)
def test_a_number_for_a_parameter_of_the_likelihood_is_an_error_also_after_use(value):
    model = PEPR((X, Y), Matern52(), Z)
    model.training_loss()
    model.likelihood.variance = value
    with refused(r"^variance of Gaussian must stay a parameter, got .*0\.25"):
        model.training_loss()
    other = minibatch_model(Matern52(), X)
    other.likelihood.scale = value
    with refused(r"^scale of StudentT must stay a parameter, got .*0\.25"):
        other.training_loss((X, Y))


def test_a_number_that_the_model_refuses_is_not_assigned(monkeypatch):
    model = PEP((X, Y), Matern52(), StudentT(), Z, scale=gpflow.Parameter(1.0))

    def refuse(model):
        raise ValueError("refused")

    monkeypatch.setattr(PEP, "_check", refuse)
    with refused("refused"):
        model.scale = 1.3
    assert float(model.scale.numpy()) == 1.0


def test_new_parts_and_frozen_models_are_accepted():
    model = PEPR((X, Y), Matern52(), Z)
    model.kernel = SquaredExponential()
    model.kernel.lengthscales = positive_parameter(2.0)
    expected = model.predict_f(X)[0]
    np.testing.assert_allclose(gpflow.utilities.freeze(model).predict_f(X)[0], expected, rtol=1e-12)
    model.kernel.lengthscales = 2.0
    with refused(r"^lengthscales of SquaredExponential must stay a parameter"):
        model.predict_f(X)


def test_an_index_that_is_no_output_is_refused():
    rows = np.concatenate([X, np.tile([[0.0], [1.0]], (15, 1))], axis=1)
    kernel = Matern52(active_dims=[0]) * Coregion(2, rank=1, active_dims=[1])
    points = rows[::6]
    wrong = rows.copy()
    wrong[3, 1] = 2.0
    likelihood = Gaussian()
    model, stream = (kind((rows, Y), kernel, points) for kind in (PEPR, StreamingSGPR))
    minibatches = ARPEP(kernel, likelihood, points, num_data=30)
    batches = tf.data.Dataset.from_tensor_slices((wrong.astype(np.float32), Y)).batch(20)
    of_rows = r"^data\[0\] \(X\) must hold whole numbers from 0 to 1 in column 1, .* 2\.0 in row 3"
    of_points = r"^inducing_variable \(Z\) must hold whole numbers from 0 to 1 in column 1"
    for use, message in (
        (lambda: PEPR((wrong, Y), kernel, points), of_rows),
        (lambda: minibatches.training_loss((wrong, Y)), of_rows),
        (lambda: PEPR((rows, Y), kernel, points + 0.5), of_points),
        (lambda: stream.update((rows, Y), points + 0.5), of_points),
        (lambda: greedy_variance(kernel, wrong, 5), r"^X must hold .* got 2\.0 in row 3"),
        (lambda: model.predict_f(wrong), r"^Xnew must hold .* got 2\.0 in row 3"),
        (lambda: model.posterior().predict_f(wrong), r"^Xnew must hold .* got 2\.0 in row 3"),
        (lambda: PEPR(batches, kernel, points), "the index of Coregion, got 2.0"),
        (lambda: PEP(batches, kernel, likelihood, points), "the index of Coregion, got 2.0"),
        (lambda: fit(minibatches, batches), "the index of Coregion, got 2.0"),
        (lambda: stream.update((wrong, Y)), "the index of Coregion, got 2.0"),
    ):
        with refused(message):
            use()
    compiled = tf.function(
        model.predict_f, input_signature=[tf.TensorSpec([None, None], X.dtype)], autograph=False
    )
    for value in (2.0, 0.7, -1.0):
        wrong[3, 1] = value
        with stopped("Xnew must hold whole numbers from 0 to 1 in column 1"):
            compiled(wrong)


class Warped(SquaredExponential):
    """A squared exponential of features."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def K(self, X, X2=None):
        return super().K(self.layers[0](X), None if X2 is None else self.layers[0](X2))


def test_a_layer_of_keras_3_in_a_kernel_is_refused_because_its_weights_would_not_be_trained():
    with refused(r"^layers of Warped must be a layer of tf_keras, got Dense of Keras 3"):
        PEPR((X, Y), Matern52() + Warped([keras.layers.Dense(2)]), Z)
    with refused(r"^layers of Warped must be a layer of tf_keras, got Dense of Keras 3"):
        PEPR((X, Y), Warped({0: [keras.layers.Dense(2)]}), Z)
    PEPR((X, Y), Warped([keras.layers.Rescaling(0.5, dtype="float64")]), Z)  # has no weights
    PEPR(
        (X, Y), Warped([keras.layers.Dense(2, trainable=False, dtype="float64")]), Z
    ).training_loss()
    model = PEPR((X, Y), Warped([tf_keras.layers.Dense(2, dtype="float64")]), Z)
    model.training_loss()
    assert len(model.trainable_variables) == 6  # Z, noise, variance, lengthscale, weights and bias
