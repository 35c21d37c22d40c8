"""What every objective must be: differentiable, compiled as eager, trainable by GPflow's and Keras' optimizers."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras


@pytest.fixture(scope="module")
def closures():
    return {}


@pytest.fixture
def compiled(model, closures):
    """The compiled objective of a model, which its tests share."""
    if model not in closures:
        closures[model] = model.training_loss_closure(compile=True)
    return closures[model]


def value_and_gradient(model, compiled):
    def evaluate():
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    return (tf.function(evaluate) if compiled else evaluate)()


def test_every_variable_has_a_derivative(model):
    loss, gradients = value_and_gradient(model, compiled=False)
    assert loss.shape == () and loss.dtype == tf.float64
    assert len(gradients) >= 5  # two of the kernel, noise, Z, mean
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert np.all(np.isfinite(tf.convert_to_tensor(gradient))), variable.name
        assert np.any(tf.convert_to_tensor(gradient)), variable.name
    compiled_loss, compiled_gradients = value_and_gradient(model, compiled=True)
    # Other orders of a few sums: some 100 eps.
    assert float(compiled_loss) == pytest.approx(float(loss), rel=1e-13)
    for actual, expected in zip(compiled_gradients, gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max()))


def test_derivatives_equal_finite_differences(shared):
    """h = 1e-5: h^2 f''' / 6 + eps f / h is about 1e-9 for objectives of some 20 nats."""
    model = shared(2)
    rng = np.random.default_rng(1)
    _, gradients = value_and_gradient(model, compiled=False)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        direction = rng.normal(size=variable.shape)
        values = []
        for step in (1e-5, -1e-5):
            variable.assign_add(tf.constant(step * direction))
            values.append(float(model.training_loss()))
            variable.assign_sub(tf.constant(step * direction))
        slope = float(tf.reduce_sum(direction * gradient))
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-7), variable.name


def test_the_upper_bound_is_above_all(model):
    if not hasattr(model, "upper_bound"):
        pytest.skip("no upper bound is known for sites of any likelihood")
    exact = gpflow.models.GPR(
        tuple(values.numpy() for values in model.data),
        model.kernel,
        mean_function=model.mean_function,
        likelihood=model.likelihood,
    )
    assert float(model.upper_bound()) >= float(exact.log_marginal_likelihood())
    assert float(tf.function(model.upper_bound)()) == pytest.approx(float(model.upper_bound()), rel=1e-13)


def test_scipy_improves_the_objective(model):
    before = float(model.training_loss())
    result = gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 8})
    after = float(model.training_loss())
    assert after < before - 0.1
    assert after == pytest.approx(float(result.fun), rel=1e-12)


def test_adam_improves_the_objective(model, compiled):
    optimizer = tf_keras.optimizers.Adam(0.02)
    losses = [float(compiled())]
    for _ in range(12):
        optimizer.minimize(compiled, model.trainable_variables)
        losses.append(float(compiled()))
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0] - 1e-2


def test_a_compiled_objective_is_traced_once(model, compiled, contract):
    for seed in range(3):
        contract.perturb(model, seed, size=0.1)
        assert float(compiled()) == pytest.approx(float(model.training_loss()), rel=1e-12)
    if hasattr(model, "alpha"):
        model.alpha = 0.0 * model.alpha
        assert float(compiled()) == pytest.approx(float(model.training_loss()), rel=1e-12)
    X, Y = (values.numpy() for values in model.data)
    model.data = (X, -Y)
    assert float(compiled()) == pytest.approx(float(model.training_loss()), rel=1e-12)
    assert compiled.experimental_get_tracing_count() == 1


def test_priors_count(make):
    model = make()
    before = float(model.training_loss())
    import tensorflow_probability as tfp

    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
    prior = float(model.log_prior_density())
    assert prior != 0.0
    assert float(model.training_loss()) == pytest.approx(before - prior, rel=1e-12)


def test_the_order_of_outputs_does_not_matter_and_they_add_up(make):
    """Outputs are independent given kernel and noise: two are the sum of one each. (Penalties count once for each.)"""
    both = make(2, mean_function=None)
    X, Y = (values.numpy() for values in both.data)
    alone = 0.0
    for column in range(2):
        one = make(1, mean_function=None)
        one.data = (X, Y[:, column : column + 1])
        alone += float(one.training_loss())
    assert float(both.training_loss()) == pytest.approx(alone, rel=1e-12)


def test_fixed_variables_are_left_alone(make):
    model = make()
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.likelihood, False)
    Z = model.inducing_variable.Z.numpy()
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 2})
    np.testing.assert_array_equal(model.inducing_variable.Z, Z)


def test_single_precision(make, model, contract):
    """float32 all through, and the number that float64 gives to the digits that are left: cond(Kuu) eps = 1e-4."""
    reference = model
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-5)):
        model = make(mean_function=gpflow.functions.Constant(np.array([0.1], np.float32)))
        assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
        loss, gradients = value_and_gradient(model, compiled=True)
        assert loss.dtype == tf.float32
        mean, variance = model.predict_f(contract.Xnew.astype(np.float32))
        assert mean.dtype == variance.dtype == tf.float32
    assert float(loss) == pytest.approx(float(reference.training_loss()), rel=1e-3)
    expected = value_and_gradient(reference, compiled=False)[1]
    for actual, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-2 * max(1.0, np.abs(wanted).max()))
