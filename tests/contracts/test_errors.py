"""What is not a number stops every model with a message, never with a result that is not a number."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf


def each_broken_variable(model, values=(np.nan,)):
    for variable in model.trainable_variables:
        value = variable.numpy()
        for bad in values:
            variable.assign(np.full_like(value, bad))
            yield variable.name, bad
        variable.assign(value)


def stops_or_is_finite(evaluate, bad):
    """An infinite parameter may have a finite limit (a lengthscale's, say); NaN has none."""
    if np.isnan(bad):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"finite|NaN"):
            evaluate()
        return
    try:
        values = evaluate()
    except tf.errors.InvalidArgumentError:
        return
    assert all(np.all(np.isfinite(value)) for value in tf.nest.flatten(values))


def test_the_objective(model):
    compiled = model.training_loss_closure(compile=True)
    expected = float(compiled())
    for _, bad in each_broken_variable(model, (np.nan, np.inf)):
        stops_or_is_finite(compiled, bad)
        if np.isnan(bad):
            stops_or_is_finite(model.training_loss, bad)
    assert float(compiled()) == pytest.approx(expected, rel=1e-12)  # sites have come back to where they were


def test_its_derivatives(model):
    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return tape.gradient(loss, model.trainable_variables)

    for _, bad in each_broken_variable(model):
        stops_or_is_finite(gradient, bad)


def test_predictions(model, contract):
    marginals = tf.function(lambda: model.predict_f(contract.Xnew))
    for _, bad in each_broken_variable(model):
        stops_or_is_finite(marginals, bad)
        stops_or_is_finite(lambda: model.predict_f(contract.Xnew, full_cov=True), bad)


def test_predictions_of_observations(model, contract):
    """They read the noise as well."""
    model.likelihood.variance.unconstrained_variable.assign(np.nan)
    stops_or_is_finite(lambda: model.predict_y(contract.Xnew), np.nan)
    Y = np.zeros((len(contract.Xnew), 1))
    stops_or_is_finite(lambda: model.predict_log_density((contract.Xnew, Y)), np.nan)


class Undefined(gpflow.functions.Function):
    """A mean function that is 0 where there are data and NaN further away."""

    def __call__(self, X):
        return 0.0 * tf.math.log(10.0 - X[..., :1])


def test_a_mean_function_that_is_nan_at_new_inputs_is_an_error(make, contract):
    model = make(mean_function=Undefined())
    for predict in (model.predict_f, model.posterior().predict_f, tf.function(model.predict_f)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"finite|NaN"):
            predict(contract.Xnew + 20.0)


def test_posteriors(model, contract):
    for _, bad in each_broken_variable(model):
        stops_or_is_finite(lambda: model.posterior().predict_f(contract.Xnew), bad)
        stops_or_is_finite(lambda: model.posterior("variable").predict_f(contract.Xnew), bad)
    # A cache made before the kernel broke.
    posterior = model.posterior()
    model.kernel.lengthscales.unconstrained_variable.assign([np.nan, 1.0])
    stops_or_is_finite(lambda: posterior.predict_f(contract.Xnew), np.nan)


def test_the_upper_bound(model):
    if not hasattr(model, "upper_bound"):
        pytest.skip("no upper bound is known for sites of any likelihood, nor for streams")
    bound = tf.function(model.upper_bound)
    scale = getattr(model, "scale", None)
    unused = (
        {id(variable) for variable in scale.trainable_variables} if hasattr(scale, "trainable_variables") else set()
    )
    for variable in model.trainable_variables:
        if id(variable) in unused:  # a bound of the exact evidence, which has no scale
            continue
        value = variable.numpy()
        variable.assign(np.full_like(value, np.nan))
        stops_or_is_finite(bound, np.nan)
        variable.assign(value)


def test_inputs_to_predict_at(model, contract):
    posterior = model.posterior()
    compiled = tf.function(posterior.predict_f)
    for bad in (np.nan, np.inf):
        Xnew = contract.Xnew.copy()
        Xnew[3, 1] = bad
        for predict in (model.predict_f, model.predict_y, posterior.predict_f):
            with pytest.raises(ValueError, match=r"Xnew must be finite, got 1 values .* the first in row 3\."):
                predict(Xnew)
        with pytest.raises(ValueError, match="Xnew must be finite"):
            posterior.predict_f(Xnew, full_cov=True)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Xnew"):
            compiled(Xnew)


def test_an_overflowing_mean(model, contract):
    model.mean_function.c.assign([1e308])
    for evaluate in (model.training_loss, lambda: model.predict_f(contract.Xnew)):
        stops_or_is_finite(evaluate, np.inf)


def test_duplicate_inducing_points_without_jitter(make, contract):
    """Kuu is all fours, so its second pivot exactly 0: the message says what to try; max_jitter mends it."""
    Z = np.zeros((contract.M, contract.D))
    with gpflow.config.as_context(gpflow.config.Config(jitter=0.0)):
        model, mended = make(), make(max_jitter=1e-3)
        for each in (model, mended):
            each.inducing_variable.Z.assign(Z)
            each.kernel.variance = gpflow.Parameter(4.0)
        for evaluate in (
            model.training_loss,
            model.training_loss_closure(compile=True),
            lambda: model.predict_f(contract.Xnew),
            getattr(model, "upper_bound", model.training_loss),
        ):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"not successful: Kuu.*jitter"):
                evaluate()
        assert np.isfinite(mended.training_loss())
        assert np.isfinite(mended.training_loss_closure(compile=True)())
        mean, _ = mended.predict_f(contract.Xnew)
        assert np.all(np.isfinite(mean))
