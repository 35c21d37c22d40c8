"""Models with chunks of rows in single precision: near those in double precision, equal where that is inaccurate."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.kernels import Matern32, SquaredExponential

from gpflow_pep import PEPR, TSGPR, fit
from gpflow_pep.engine import mixed_precision

N, D = 203, 3
rng = np.random.default_rng(4)
X = rng.normal(size=(N, D))
Y = np.sin(X @ rng.normal(size=(D, 2))) + 0.3 * rng.normal(size=(N, 2))
Z = X[:10].copy()
OBJECTIVE, GRADIENT, PREDICTION = 2e-6, 2e-3, 1e-4

MODELS = {
    "PEPR 0": lambda **options: PEPR((X, Y), SquaredExponential(), Z, alpha=0.0, **options),
    "PEPR 0.5": lambda **options: PEPR((X, Y), Matern32(), Z, alpha=0.5, scale=0.7, **options),
    "PEPR 1": lambda **options: PEPR(
        (X, Y), SquaredExponential(), Z, alpha=1.0, mean_function=Linear(0.1 * np.ones((D, 2))), **options
    ),
    "TSGPR": lambda **options: TSGPR((X, Y), SquaredExponential() + Matern32(), Z, **options),
}


def evaluated(model):
    """Objective and gradient in a compiled function."""

    @tf.function(autograph=False)
    def function():
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    loss, gradient = function()
    return float(loss), np.concatenate([np.ravel(part) for part in gradient])


@pytest.fixture(params=MODELS)
def pair(request):
    """The same model in double and in mixed precision."""
    return [MODELS[request.param](chunk_size=32, mixed_precision=mixed) for mixed in (False, True)]


def test_it_is_close(pair):
    """And not equal, which would mean that nothing is computed in single precision."""
    (loss, gradient), (near, near_gradient) = map(evaluated, pair)
    assert 0.0 < abs(near - loss) < OBJECTIVE * (N + abs(loss))
    assert 0.0 < np.linalg.norm(near_gradient - gradient) < GRADIENT * np.linalg.norm(gradient)
    for exact, other in zip(pair[0].predict_f(X[:20]), pair[1].predict_f(X[:20]), strict=True):
        np.testing.assert_allclose(other, exact, atol=PREDICTION)
        assert other.dtype == tf.float64
    density, other = (model.loo_log_predictive_density() for model in pair)
    np.testing.assert_allclose(other, density, atol=PREDICTION)


def test_it_is_equal_where_single_precision_is_not_accurate(pair):
    for model in pair:
        model.likelihood.variance.assign(1e-5)
    (loss, gradient), (other, other_gradient) = map(evaluated, pair)
    assert other == loss
    np.testing.assert_array_equal(other_gradient, gradient)


def test_it_is_decided_at_each_evaluation():
    """A compiled function sees that the noise has changed."""
    model, exact = (MODELS["PEPR 0.5"](chunk_size=32, mixed_precision=mixed) for mixed in (True, False))
    loss, expected = (
        tf.function(model.training_loss, autograph=False),
        tf.function(exact.training_loss, autograph=False),
    )
    equal = []
    for variance in (1.0, 1e-5, 1.0):
        for each in (model, exact):
            each.likelihood.variance.assign(variance)
        equal.append(float(loss()) == float(expected()))
    assert equal == [False, True, False]


@pytest.mark.parametrize(("noise", "expected"), [(1.01, True), (0.99, False)])
def test_the_measure_of_accuracy(noise, expected):
    """eps k² tr Kuu^-1 / noise, with the largest variance k."""
    covariance = 4.0 * Matern32()(Z).numpy()
    measure = np.finfo(np.float32).eps * 4.0**2 * np.trace(np.linalg.inv(covariance))
    L = tf.linalg.cholesky(covariance)
    limit = measure / mixed_precision._MAX_ERROR
    assert bool(mixed_precision.single_precision_suffices(L, tf.constant(noise * limit, tf.float64))) is expected


def test_a_dataset():
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(32)
    model, exact = (PEPR(batches, SquaredExponential(), Z, alpha=0.5, mixed_precision=mixed) for mixed in (True, False))
    (loss, gradient), (expected, exact_gradient) = map(evaluated, (model, exact))
    assert 0.0 < abs(loss - expected) < OBJECTIVE * (N + abs(expected))
    assert np.linalg.norm(gradient - exact_gradient) < GRADIENT * np.linalg.norm(exact_gradient)


def test_where_it_has_no_effect():
    """One chunk; noise that depends on x."""
    noise = gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(A=0.1 * np.ones((D, 1)), b=1.0))
    for options in ({}, {"chunk_size": 32, "likelihood": noise}):
        losses = [
            float(PEPR((X, Y), SquaredExponential(), Z, mixed_precision=mixed, **options).training_loss())
            for mixed in (False, True)
        ]
        assert losses[0] == losses[1]


def test_training_ends_near_the_same_optimum(pair):
    """The objective of the mixed model's parameters in double precision."""
    mixed = pair[1]
    results = [fit(model, max_iterations=30) for model in pair]
    mixed.mixed_precision = False
    assert abs(float(mixed.training_loss()) + results[1].objective[-1]) < OBJECTIVE * N
    assert results[1].objective[-1] == pytest.approx(results[0].objective[-1], abs=0.01 * N)


def test_blocks_are_refused():
    with pytest.raises(ValueError, match="mixed_precision must be False with blocks, got True"):
        PEPR((X, Y), SquaredExponential(), Z, blocks=7, mixed_precision=True)
