"""
Every objective is differentiable, equal compiled and eagerly, and trainable by GPflow and Keras
optimizers.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_near, assert_near
from configuration import configured
from contract_models import XNEW, Subject, make_labels, perturb, value_and_gradient
from differences import assert_gradients
from model_registry import IN_REGRESSION, ONE_OF_ALL
from numpy.testing import assert_allclose

from gpflow_pep.models.stream import Stream


def test_every_variable_has_a_gradient(subject, model, compiled):
    """
    Gradients are finite and not zero; compiled and eager gradients agree to 1e-12 (different orders
    of sums, 100 eps).
    """
    loss, gradients = value_and_gradient(model, subject.loss(model))
    assert loss.shape == () and loss.dtype == tf.float64
    assert len(gradients) >= 5  # two of the kernel, noise or epsilon, Z, mean
    compiled_loss, compiled_gradients = value_and_gradient(model, compiled(model))
    assert_allclose(compiled_loss, loss, rtol=1e-12)
    for variable, gradient, other in zip(
        model.trainable_variables, gradients, compiled_gradients, strict=True
    ):
        assert gradient.shape == variable.shape
        assert np.all(np.isfinite(gradient)) and np.any(gradient), variable.name
        assert_near(other, gradient, 1e-12 * max(1.0, np.abs(gradient).max()))


def compare_slopes(model, loss):
    """
    Derivatives along a random direction of each variable, of length 1, and differences of fourth
    order, h = 2e-3. The rule's error, h^4/30 times a fifth derivative of up to 1e3, is below 1e-9;
    rounding of 30 nats is 1e-11. That of N probabilities, 1e-10 of each, is smooth, and so is 1e-9
    of the derivatives too.
    """
    # The old and the new inducing points of a stream coincide: they share the jitter, 1e-6, and
    # have two next to it.
    tolerance = 1e-6 if isinstance(model, Stream) else 1e-7
    assert_gradients(loss, model.trainable_variables, h=2e-3, tolerance=tolerance)


def test_gradients_match_finite_differences(many, compiled):
    compare_slopes(many, compiled(many))


def test_gradients_of_stream_with_fixed_inducing_points():
    """
    Gradients in all variables except Z. The bound jumps in Z by about 10 times the jitter:
    coinciding old and new inducing points share one jitter, distinct points have two.
    """
    stream = Subject("StreamingSVGP")
    model = stream.new()
    model.update(make_labels(98))
    gpflow.set_trainable(model.inducing_variable, False)
    compare_slopes(model, stream.loss(model))


def test_compiled_objective_is_traced_once(subject, model, compiled):
    """
    Changes of variables, alpha, data or their number do not retrace; the results equal eager
    evaluation.
    """
    loss = compiled(model)
    eager = subject.loss(model)
    seen = [loss()]
    for change in (
        lambda: perturb(model, 0, size=0.1),
        lambda: perturb(model, 1, size=0.1),
        lambda: subject.change_settings(model),
    ):
        change()
        seen.append(loss())
        assert_allclose(seen[-1], eager(), rtol=1e-12)
    assert np.min(np.abs(np.diff(seen))) > 1e-3
    assert loss.experimental_get_tracing_count() == 1


@IN_REGRESSION
def test_outputs_are_exchangeable_and_additive(make, subject):
    """
    Outputs are independent given kernel and noise: two are the sum of one each. (Penalties count
    once for each.)
    """
    if subject.columns == 1:
        pytest.skip("the model has one output")
    both = make(2, mean_function=None)
    X, Y = (values.numpy() for values in both.data)
    alone = []
    for column in range(2):
        one = make(1, mean_function=None)
        one.data = (X, Y[:, [column]])
        alone.append(one.training_loss())
    assert_allclose(both.training_loss(), sum(alone), rtol=1e-12)


@ONE_OF_ALL
def test_single_precision(subject, make, model):
    """
    float32 all through, and the numbers of float64 to the digits that are left: cond(Kuu) eps =
    1e-4 in regression. Of three classes Kuu's condition number is about 2, and the jitters differ
    by 9e-6: some 1e-5 of the loss, which is stationary in sites that are exact to 1e-4 of a
    standard deviation. Predictions follow these.
    """
    of_loss, of_gradients = (1e-3, 1e-2) if subject.is_regression else (1e-4, 1e-3)
    expected, slopes = value_and_gradient(model, subject.loss(model))
    predictions = model.predict_f(XNEW)
    with configured(float=np.float32, jitter=1e-5):
        single = make()
        Xnew = XNEW.astype(np.float32)
        assert {variable.dtype for variable in single.trainable_variables} == {tf.float32}
        loss, gradients = value_and_gradient(single, subject.loss(single))
        found, (observed, _) = single.predict_f(Xnew), single.predict_y(Xnew)
    assert {value.dtype for value in (loss, *gradients, *found, observed)} == {tf.float32}
    assert_allclose(loss, expected, rtol=of_loss)
    for actual, wanted in zip(gradients, slopes, strict=True):
        assert_near(actual, wanted, of_gradients * max(1.0, np.abs(wanted).max()))
    assert_all_near(found, predictions, 1e-3)
