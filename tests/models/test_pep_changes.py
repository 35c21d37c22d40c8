"""
Changes by the user after construction: everything afterwards uses them, or they are refused with
the reason.
"""

import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Softmax
from quick import some_slow

from gpflow_pep import PEP, PEPClassifier
from gpflow_pep.likelihoods import Probit

rng = np.random.default_rng(2)
N = 20
X = 2.0 * rng.normal(size=(N, 1))
F = np.sin(2.0 * X) + 0.5 * rng.normal(size=(N, 1))
Y, CLASSES = (F > 0.0).astype(float), np.digitize(F, [-0.4, 0.4]).astype(float)
Z = np.linspace(-3.0, 3.0, 5)[:, None]
# Sites converged to 1e-10 leave 1e-10 of a gradient, times a condition number of 10 or so.
TOL, REL = 1e-10, 1e-8


def make(**options):
    return PEP((X, Y), SquaredExponential(), Probit(), Z, tol=TOL, **options)


@pytest.fixture(scope="module")
def _kept():
    model = make()
    return model, gpflow.utilities.read_values(model), gradient_of(model)


@pytest.fixture
def model(_kept):
    """Compiled once; always the same, with sites that say nothing."""
    model, values, _ = _kept
    model.data, model.alpha = (X, Y), 0.5
    gpflow.utilities.multiple_assign(model, values)
    model.reset_sites()
    return model


@pytest.fixture
def expected(_kept):
    """The gradient of such a model."""
    return _kept[2]


# --- between the objective and its gradient -------------------------------------------------------

CHANGES = {
    "rows": lambda model: setattr(model, "data", (X[:10], Y[:10])),
    "data": lambda model: setattr(model, "data", (X[::-1].copy(), Y)),
    "alpha": lambda model: setattr(model, "alpha", 0.2),
    "kernel": lambda model: model.kernel.variance.assign(5.0),
}


def gradient_of(model):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return tape.gradient(loss, model.trainable_variables)


@pytest.mark.parametrize("change", some_slow(CHANGES, quick=["data", "kernel"]))
def test_a_gradient_is_that_of_the_objective_when_it_was_computed(model, expected, change):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    CHANGES[change](model)
    assert_all_close(tape.gradient(loss, model.trainable_variables), expected, rtol=REL, atol=REL)


def test_a_gradient_in_a_compiled_function_is_that_of_its_objective(model, expected):
    @tf.function
    def step(alpha):
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        model.alpha.assign(alpha)
        return tape.gradient(loss, model.trainable_variables)

    assert_all_close(step(tf.constant(0.2, tf.float64)), expected, rtol=REL, atol=REL)
    assert not np.allclose(gradient_of(model)[0], expected[0], rtol=1e-3)


# --- settings that are no variables ---------------------------------------------------------------


def test_other_active_dimensions():
    two = np.hstack([X, rng.normal(size=(N, 1))])
    points = two[:5] + 0.01
    model = PEP((two, Y), SquaredExponential(active_dims=[0]), Probit(), points, tol=TOL)
    before = float(model.training_loss())
    model.kernel.active_dims = [1]
    fresh = PEP((two, Y), SquaredExponential(active_dims=[1]), Probit(), points, tol=TOL)
    assert float(model.training_loss()) == pytest.approx(float(fresh.training_loss()), rel=REL)
    assert abs(float(model.training_loss()) - before) > 1e-3


# --- minibatches ----------------------------------------------------------------------------------


def test_predictions_within_an_epoch_do_not_spoil_it(model):
    """They converge the sites; the epoch continues with the sums of these sites."""
    model.update_sites()
    converged = [gradients[1] for gradients in model.minibatches(N // 4, seed=1)]
    model.reset_sites()
    steps = model.minibatches(N // 4, seed=1)
    next(steps)
    model.predict_f(X[:2])
    rest = [gradients[1] for gradients in steps]
    np.testing.assert_allclose(rest, converged[1:], rtol=REL)


def test_data_that_change_within_an_epoch_are_an_error(model):
    steps = model.minibatches(5)
    next(steps)
    model.data = (X[:10], Y[:10])
    with pytest.raises(RuntimeError, match="data must not change within an epoch"):
        next(steps)


# --- pickles --------------------------------------------------------------------------------------


def test_a_pickled_model_takes_other_rows():
    model = pickle.loads(pickle.dumps(make()))
    model.data = (X[:7], Y[:7])
    fresh = PEP((X[:7], Y[:7]), SquaredExponential(), Probit(), Z, tol=TOL)
    assert float(model.training_loss()) == pytest.approx(float(fresh.training_loss()), rel=REL)


# --- data that are assigned one by one ------------------------------------------------------------

USES = {
    "objective": lambda model: model.training_loss(),
    "compiled objective": lambda model: model.training_loss_closure()(),
    "predictions": lambda model: model.predict_f(Z),
    "posterior": lambda model: model.posterior(),
    "left out": lambda model: model.loo_log_predictive_density(),
    "sites": lambda model: model.update_sites(),
    "batches of sites": lambda model: model.update_sites(batch_size=5),
    "minibatch": lambda model: next(model.minibatches(5)),
}


@pytest.mark.slow
def test_X_and_Y_of_different_lengths_raise():
    """
    X alone has other rows than Y; then both have others than the sites. Set as a pair they are
    right.
    """
    model = make(chunk_size=4)
    others = X[:14], Y[:14]
    for variable, values in zip(model.data, others, strict=True):
        variable.assign(values)
        for use in USES.values():
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"numbers of rows: set model.data = \(X, Y\)"
            ):
                use(model)
    model.data = others
    fresh = PEP(others, SquaredExponential(), Probit(), Z, tol=TOL)
    assert float(model.training_loss()) == pytest.approx(float(fresh.training_loss()), rel=REL)


# --- observations ---------------------------------------------------------------------------------


def test_a_softmax_takes_floating_labels_wherever_labels_are_taken():
    model = PEPClassifier((X, CLASSES), SquaredExponential(), Softmax(3), Z)
    model.update_sites()
    tf.random.set_seed(0)
    by_floats = model.predict_log_density((X, CLASSES))
    tf.random.set_seed(0)
    np.testing.assert_array_equal(
        by_floats, model.predict_log_density((X, CLASSES.astype(np.int64)))
    )


def test_models_with_data_refuse_other_data():
    model = PEPClassifier((X, Y), SquaredExponential(), inducing_variable=Z)
    with pytest.raises(
        TypeError, match=r"PEPClassifier stores its data: call training_loss\(\) without data"
    ):
        model.training_loss((X, Y))
