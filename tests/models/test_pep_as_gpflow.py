"""PEP used as every GPflow model is: by GPflow's own optimizer, Keras' Adam, TFP's samplers, with no further call."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras
from gpflow.kernels import SquaredExponential
from quick import some_slow

from gpflow_pep import PEP, PEPClassifier
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training import fit

rng = np.random.default_rng(17)
X = rng.uniform(-2.0, 2.0, (40, 1))
Y = np.where(np.sin(2.5 * X) + 0.4 * rng.normal(size=X.shape) > 0.0, 1.0, 0.0)
Z = np.linspace(-1.8, 1.8, 6)[:, None]
TRUTH = np.where(np.sin(2.5 * X) > 0.0, 1.0, 0.0)


@pytest.fixture(scope="module")
def _shared():
    model = PEPClassifier(
        (X, Y), SquaredExponential(1.0, lengthscales=1.0), inducing_variable=Z.copy()
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model, gpflow.utilities.read_values(model)


@pytest.fixture
def model(_shared):
    """Compiled once, as it was when it was new: no sites, and nothing has been called."""
    model, values = _shared
    gpflow.utilities.multiple_assign(model, values)
    model.reset_sites()
    return model


@pytest.fixture(scope="module")
def optimum(_shared):
    """As `fit` finds it: the objective and the parameters."""
    model, values = _shared
    gpflow.utilities.multiple_assign(model, values)
    result = fit(model)
    assert result.converged
    return result.objective[-1], [variable.numpy() for variable in model.trainable_variables]


@pytest.mark.parametrize("compile", some_slow([True, False], 1))
def test_scipy_finds_the_optimum(model, optimum, compile):
    """L-BFGS stops where the loss changes by 2e-9 of itself, 1e-8 nats of some 20, and the sites leave 1e-10."""
    options = {"options": {"maxiter": 200}, "compile": compile}
    result = gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(), model.trainable_variables, **options
    )
    assert result.success
    assert -result.fun == pytest.approx(optimum[0], abs=1e-4)
    for variable, expected in zip(model.trainable_variables, optimum[1], strict=True):
        np.testing.assert_allclose(variable, expected, rtol=0.0, atol=2e-2)
    probability = model.predict_y(X)[0].numpy()
    assert np.mean((probability > 0.5) == TRUTH) > 0.85
    assert probability.max() > 0.8 and probability.min() < 0.2
    assert model.sites_status.converged


@pytest.mark.slow
def test_adam_in_a_compiled_step(model, optimum):
    optimizer, variables = tf_keras.optimizers.Adam(0.1), model.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    losses = [float(step()) for _ in range(400)]
    assert losses[-1] < losses[0] - 0.5
    assert -losses[-1] == pytest.approx(optimum[0], abs=0.05)
    assert step.experimental_get_tracing_count() == 1
    assert model.sites_status.converged


def test_minimize_of_keras(model):
    optimizer, closure = tf_keras.optimizers.Adam(0.1), model.training_loss_closure()
    before = float(closure())
    for _ in range(10):
        optimizer.minimize(closure, model.trainable_variables)
    assert float(closure()) < before - 0.1


@pytest.mark.slow
def test_several_models_in_one_process(model):
    """They share nothing but what was given to both."""
    second = PEP((X[:20], Y[:20]), model.kernel, Probit(), Z.copy())
    first_loss, second_loss = float(model.training_loss()), float(second.training_loss())
    model.kernel.variance.assign(3.0)
    losses = [float(each.training_loss()) for each in (model, second)]
    assert abs(losses[0] - first_loss) > 1e-3 and abs(losses[1] - second_loss) > 1e-3
    model.kernel.variance.assign(1.0)
    assert float(second.training_loss()) == pytest.approx(second_loss, abs=1e-9)
    assert float(model.training_loss()) == pytest.approx(first_loss, abs=1e-9)


# --- sampling -------------------------------------------------------------------------------------------------------

FEW = slice(None, 15)


@pytest.mark.slow
def test_hamiltonian_monte_carlo():
    """
    Of the kernel's variance, with GPflow's helper: the target at the states visited is -training_loss at them and the
    Jacobian of the transform, and the mean of the logarithm agrees with a grid's. From 200 draws whose autocorrelation
    is measured, four standard errors.
    """
    model = PEPClassifier(
        (X[FEW], Y[FEW]), SquaredExponential(1.0), Probit(), Z[::2].copy(), alpha=0.5
    )
    gpflow.set_trainable(model, False)
    gpflow.set_trainable(model.kernel.variance, True)
    model.kernel.variance.prior = tfp.distributions.LogNormal(np.float64(0.5), np.float64(0.7))
    helper = gpflow.optimizers.SamplingHelper(
        model.log_posterior_density, model.trainable_parameters
    )
    (variable,) = model.trainable_variables

    @tf.function
    def sample(num):
        kernel = tfp.mcmc.HamiltonianMonteCarlo(
            helper.target_log_prob_fn, step_size=np.float64(0.8), num_leapfrog_steps=3
        )
        return tfp.mcmc.sample_chain(
            num_results=num,
            num_burnin_steps=20,
            current_state=helper.current_state,
            kernel=kernel,
            trace_fn=lambda _, results: (
                results.is_accepted,
                results.accepted_results.target_log_prob,
            ),
            seed=(7, 11),
        )

    (states,), (accepted, density) = sample(200)
    assert 0.5 < np.mean(accepted) <= 1.0
    loss, transform = tf.function(model.training_loss), model.kernel.variance.transform

    def expected_density(x):
        variable.assign(x)
        return -float(loss()) + float(transform.forward_log_det_jacobian(variable, 0))

    for number in (0, 17, 199):
        assert float(density[number]) == pytest.approx(expected_density(states[number]), abs=1e-8)
    grid = np.linspace(-6.0, 12.0, 73)
    densities, values = [], []
    for x in grid:
        densities.append(expected_density(x))
        values.append(np.log(model.kernel.variance.numpy()))
    weights = np.exp(np.array(densities) - np.max(densities))
    assert weights[0] < 1e-6 and weights[-1] < 1e-3
    weights /= weights.sum()
    expected = np.sum(weights * values)
    spread = np.sqrt(np.sum(weights * (values - expected) ** 2))
    (parameter,) = helper.convert_to_constrained_values([states])
    draws = np.log(np.asarray(parameter))
    size = tfp.mcmc.effective_sample_size(tf.constant(draws)).numpy()
    assert size > 25
    assert np.mean(draws) == pytest.approx(expected, abs=4.0 * spread / np.sqrt(size))
    assert np.std(draws) == pytest.approx(spread, rel=0.35)
