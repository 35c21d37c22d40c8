"""Nonfinite values raise an error in every model; no result is NaN."""

import gpflow
import numpy as np
import tensorflow as tf
from comparisons import assert_all_close
from configuration import configured
from contract_models import XNEW, D, M, holds_data, is_gaussian
from model_registry import IN_REGRESSION, ONE_IN_REGRESSION, ONE_OF_ALL
from numpy.testing import assert_allclose
from refusals import stopped
from tensorflow.errors import InvalidArgumentError


def stops_or_is_finite(evaluate, bad):
    """An infinite parameter may have a finite limit (a lengthscale, for example); NaN has none."""
    if np.isnan(bad):
        with stopped(r"finite|NaN"):
            evaluate()
        return
    try:
        values = evaluate()
    except InvalidArgumentError:
        return
    assert all(np.all(np.isfinite(value)) for value in tf.nest.flatten(values))


@ONE_OF_ALL
def test_nan_variable_raises(subject, model, compiled):
    """
    The objective and predictions stop. Unless the model has data, predictions do not read the
    scale, nor those of f the likelihood's parameters. Then all is as it was.
    """
    loss = compiled(model)
    X = XNEW
    labels = np.zeros((len(XNEW), 1))
    Y = np.zeros((len(X), 3)) if not subject.is_regression and is_gaussian(model) else labels
    subject.loss(model)()  # sites whose classes were shifted repeat from the next evaluation on
    expected = loss()
    predict = tf.function(lambda: model.predict_f(X))
    before = predict()
    of_likelihood = {id(each) for each in model.likelihood.trainable_variables}
    of_scale = set()
    if not holds_data(model) and isinstance(getattr(model, "scale", None), gpflow.Parameter):
        of_scale = {id(model.scale.unconstrained_variable)}
    for variable in model.trainable_variables:
        value = variable.numpy()
        variable.assign(np.full_like(value, np.nan))
        evaluations = [loss, subject.loss(model)]
        if id(variable) not in of_scale:
            evaluations += [
                lambda: model.predict_y(X),
                lambda: model.predict_log_density((X, Y)),
            ]
        if holds_data(model) or id(variable) not in of_likelihood | of_scale:
            evaluations += [
                predict,
                lambda: model.predict_f(X, full_cov=True),
                lambda: model.posterior("variable").predict_f(X),
            ]
        for evaluate in evaluations:
            stops_or_is_finite(evaluate, np.nan)
        variable.assign(value)
    # Sites have converged to the same values.
    assert_allclose(loss(), expected, rtol=1e-12)
    assert_all_close(predict(), before, rtol=1e-11, atol=1e-11)


@ONE_IN_REGRESSION
def test_infinite_variable_raises_or_is_finite(model, compiled):
    for variable in model.trainable_variables:
        value = variable.numpy()
        variable.assign(np.full_like(value, np.inf))
        stops_or_is_finite(compiled(model), np.inf)
        variable.assign(value)


class Undefined(gpflow.functions.Function):
    """A mean function that is 0 at the data and NaN farther away."""

    def __call__(self, X):
        return 0.0 * tf.math.log(10.0 - X[..., :1])


@ONE_IN_REGRESSION
def test_nan_mean_function_at_new_inputs_raises(make):
    model = make(mean_function=Undefined())
    for predict in (model.predict_f, model.posterior().predict_f, tf.function(model.predict_f)):
        with stopped(r"finite|NaN"):
            predict(XNEW + 20.0)


@IN_REGRESSION
def test_posterior_with_invalid_kernel_raises(model):
    """The cache was computed before."""
    posterior = model.posterior()
    model.kernel.lengthscales.unconstrained_variable.assign([np.nan, 1.0])
    stops_or_is_finite(lambda: posterior.predict_f(XNEW), np.nan)


@ONE_IN_REGRESSION
def test_overflowing_mean_raises(model):
    model.mean_function.c.assign([1e308])
    for evaluate in (model.training_loss, lambda: model.predict_f(XNEW)):
        stops_or_is_finite(evaluate, np.inf)


@ONE_IN_REGRESSION
def test_duplicate_inducing_points_without_jitter_raise(make):
    """
    All entries of Kuu are 4, so its second pivot is 0: the error names a remedy; max_jitter
    succeeds.
    """
    Z = np.zeros((M, D))
    with configured(jitter=0.0):
        model = make()
        mended = make()
        mended.max_jitter = 1e-3
        for each in (model, mended):
            each.inducing_variable.Z.assign(Z)
            each.kernel.variance = gpflow.Parameter(4.0)
        for evaluate in (
            model.training_loss,
            model.training_loss_closure(compile=True),
            lambda: model.predict_f(XNEW),
            getattr(model, "upper_bound", model.training_loss),
        ):
            with stopped(r"not successful: Kuu.*default_jitter"):
                evaluate()
        assert np.isfinite(mended.training_loss())
        assert np.isfinite(mended.training_loss_closure(compile=True)())
        mean, _ = mended.predict_f(XNEW)
        assert np.all(np.isfinite(mean))
