"""
PEP used as every GPflow model is: by GPflow's own optimizer, Keras' Adam, TFP's samplers, with no
further call.
"""

import gpflow
import numpy as np
import pytest
from gpflow.keras import tf_keras
from gpflow.kernels import SquaredExponential
from quick import some_slow

from gpflow_pep import PEPClassifier
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
    """
    L-BFGS stops where the loss changes by 2e-9 of itself, 1e-8 nats of some 20, and the sites leave
    1e-10.
    """
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


def test_minimize_of_keras(model):
    optimizer, closure = tf_keras.optimizers.Adam(0.1), model.training_loss_closure()
    before = float(closure())
    for _ in range(10):
        optimizer.minimize(closure, model.trainable_variables)
    assert float(closure()) < before - 0.1
