"""StreamingSGPR: references, exact updates for any conditioning, and failed updates."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_near, assert_near
from configuration import configured
from gpflow.functions import Constant, Linear
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Matern52, SquaredExponential
from model_values import assert_close, log_gradients, references
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from quick import named_cases
from refusals import refused, stopped
from waves import line

from gpflow_pep import PEPR, StreamingSGPR
from gpflow_pep.engine import Prior

CASES = references("streaming")
# Both limits of alpha and one between; inducing points and hyperparameters change.
QUICK = [
    "streaming/2D/changed_Z_and_theta/alpha=0",
    "streaming/changed_Z_and_theta/alpha=1",
    "streaming/changed_Z_and_theta/mean=0.4/alpha=0.5",
]
# Objectives of size 10 from sums of at most 20 terms and solves at condition numbers up to 1e3: 1e3
# eps 10 = 2e-12.
OBJECTIVE = 2e-11
PREDICTION = 1e-12
GRADIENT = 1e-10
# Whitened sums see the root of the condition number of Kuu, up to 1e10: 1e5 eps = 2e-11.
CARRIED = 1e-10


def column(values):
    return np.reshape(values, (len(values), -1))


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("case", named_cases(CASES, QUICK.__contains__))
def test_matches_reference(case):
    inputs = case["inputs"]
    total = 0.0
    model = None
    for step, expected in zip(inputs["steps"], case["expected"]["steps"], strict=True):
        data = (column(step["X"]), column(step["Y"]))
        Z = column(step["Z"])
        if model is None:
            mean = Constant([inputs["mean_constant"]])
            kernel = SquaredExponential(1.0, step["kernel"]["lengthscales"])
            model = StreamingSGPR(data, kernel, Z, alpha=inputs["alpha"], mean_function=mean)
        else:
            model.update(data, Z)
        model.kernel.variance.assign(step["kernel"]["variance"])
        model.kernel.lengthscales.assign(step["kernel"]["lengthscales"])
        model.likelihood.variance.assign(step["noise_variance"])
        objective = model.maximum_log_likelihood_objective()
        assert_near(objective, expected["objective"], OBJECTIVE)
        total += objective
        found = *model.compute_qu(), *model.predict_f(column(inputs["Xtest"]))
        for actual, name in zip(found, ("q_mu", "q_cov", "f_mean", "f_var"), strict=True):
            value = np.reshape(expected[name], actual.shape)
            assert_near(actual, value, PREDICTION * max(1.0, np.abs(value).max()))
        if "grad" in expected:
            _, gradients = log_gradients(model)
            assert set(gradients) == set(expected["grad"])
            assert_close(
                [np.ravel(gradients[name]) for name in expected["grad"]],
                [np.ravel(value) for value in expected["grad"].values()],
                GRADIENT,
            )
    assert_near(total, case["expected"]["sum_of_objectives"], 3 * OBJECTIVE)


# --- exact carry-over -----------------------------------------------------------------------------


def series(N, P=1, seed=0):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 10.0, size=(N, 1)), axis=0)
    return X, np.sin(2.0 * X + np.arange(P)) + 0.1 * rng.normal(size=(N, P))


def test_stream_equals_batch():
    """
    Fixed hyperparameters and Z, two of which are equal, at a condition number of Kuu of 1e10;
    several outputs, a mean function, several batches.
    """
    data = series(60, P=2)
    Z = line(0.0, 10.0, 30)
    Z[7] = Z[8]
    Xnew = line(-1.0, 11.0, 50)

    def make(model, data):
        kernel = SquaredExponential(1.3)
        mean = Linear([[0.2, -0.1]], [0.3, 0.1])
        return model(data, kernel, Z, alpha=0.5, mean_function=mean, noise_variance=0.02)

    with configured(jitter=1e-9):
        whole = make(PEPR, data)
        covariance = Prior(whole.inducing_variable, whole.kernel).Kuu(1e-9)
        assert 2e9 < np.linalg.cond(covariance) < 5e11
        expected = whole.maximum_log_likelihood_objective()
        model = make(StreamingSGPR, tuple(values[:5] for values in data))  # fewer rows than M
        objective = tf.function(model.maximum_log_likelihood_objective)
        total = objective()
        for start, stop in itertools.pairwise([5, 6, 26, 29, 59, 60]):
            model.update(tuple(values[start:stop] for values in data))
            total += objective()
        assert objective.experimental_get_tracing_count() == 1
        assert_allclose(total, expected, rtol=CARRIED)
        assert_all_near(model.predict_f(Xnew), whole.predict_f(Xnew), CARRIED)
        assert_all_near(model.compute_qu(), whole.compute_qu(), CARRIED)


def test_noise_that_all_rows_share_equals_batch():
    """
    The noise variance changes after each batch, by factors of 6 and 5: each time, with the
    objectives before, the model is PEPR of all rows.
    """
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 6.0, (40, 1)), axis=0)
    Y = np.concatenate([np.sin(X), np.cos(X)], axis=1) + 0.1 * rng.standard_normal((40, 2))
    Z = X[::5]
    kernel = Matern52(lengthscales=1.3)
    first = X[:20], Y[:20]
    model = StreamingSGPR(first, kernel, Z, shared_noise=True, alpha=0.0, noise_variance=0.3)
    before = model.maximum_log_likelihood_objective()
    for rows, noise in ((slice(20, 30), 0.05), (slice(30, 40), 0.01)):
        model.update((X[rows], Y[rows]))
        model = StreamingSGPR.from_state(model.state, Matern52())
        model.likelihood.variance.assign(noise)
        together = PEPR((X[: rows.stop], Y[: rows.stop]), kernel, Z, alpha=0.0)
        together.likelihood.variance.assign(noise)
        slopes = []
        for each, earlier in ((model, before), (together, 0.0)):
            with tf.GradientTape() as tape:
                objective = earlier + each.maximum_log_likelihood_objective()
            slopes.append(tape.gradient(objective, each.likelihood.trainable_variables)[0])
        assert_allclose(*slopes, rtol=1e-9)
        before += model.maximum_log_likelihood_objective()
        assert_allclose(before, together.maximum_log_likelihood_objective(), rtol=4e-10)
        assert_allclose(model.predict_f(X)[0], together.predict_f(X)[0], rtol=1e-10, atol=1e-10)
    one = gpflow.likelihoods.Gaussian(np.array([0.3]))  # as GPflow accepts it
    same = StreamingSGPR(first, kernel, Z, shared_noise=True, alpha=0.0, likelihood=one)
    same.update((X[20:30], Y[20:30]))
    objective = same.maximum_log_likelihood_objective()
    model = StreamingSGPR(first, kernel, Z, shared_noise=True, alpha=0.0, noise_variance=0.3)
    model.update((X[20:30], Y[20:30]))
    assert_allclose(objective, model.maximum_log_likelihood_objective(), rtol=1e-12)
    noisy = gpflow.likelihoods.Gaussian(scale=Linear())
    with refused("likelihood must have one noise variance"):
        StreamingSGPR(first, kernel, Z, shared_noise=True, likelihood=noisy)


# --- moving inducing points -----------------------------------------------------------------------


def test_update_moves_a_fraction_of_points_to_new_data():
    X, Y = series(80)
    Z = line(0.0, 4.9, 10)
    old = (X[:40], Y[:40])
    new = (X[40:], Y[40:])
    assert X[40] > 4.9
    predictions = {}
    for share in (0.0, 0.5):
        model = StreamingSGPR(old, SquaredExponential(1.0, 1.0), Z, noise_variance=0.02)
        model.update(new, fraction_to_move=share)
        points = model.inducing_variable.Z.numpy()
        kept = np.isin(points, Z)
        assert_array_equal(points[kept], Z[kept])  # remaining points keep their index
        assert np.isin(points[~kept], new[0]).all()
        assert len(np.unique(points)) == 10
        predictions[share] = -np.mean(model.predict_log_density(new))
    assert 4 <= (~kept).sum() <= 5  # up to half: old points carry little information there
    assert predictions[0.5] < predictions[0.0] - 1.0
    # new data near existing points: all points stay
    model = StreamingSGPR(old, SquaredExponential(1.0, 1.0), Z, noise_variance=0.02)
    model.update((Z[:4], np.sin(Z[:4])), fraction_to_move=0.5)
    assert_array_equal(model.inducing_variable.Z, Z)


def test_points_do_not_move_to_copies():
    """Nothing is left of most rows and points given the others, and each row comes five times."""
    Z = np.random.default_rng(0).uniform(0.0, 0.1, (10, 1))
    X = np.repeat(0.05 + 1e-7 * np.arange(8.0)[:, None], 5, axis=0)
    kernel = SquaredExponential()
    model = StreamingSGPR((Z, np.sin(Z)), kernel, Z, max_jitter=1e-3)
    model.update((X, np.sin(X)), fraction_to_move=1.0)
    assert len(np.unique(model.inducing_variable.Z)) == 10


def test_number_of_inducing_points_can_change():
    data = series(40)
    Z = line(0.0, 10.0, 6)
    first, batch = zip(*(np.split(values, 2) for values in data), strict=True)
    model = StreamingSGPR(first, SquaredExponential(), Z, noise_variance=0.1)
    gpflow.set_trainable(model.inducing_variable, False)
    compiled = model.training_loss_closure(compile=True)
    compiled()
    model.update(batch, line(0.0, 10.0, 9))
    with stopped("compile it again"):
        compiled()
    loss = model.training_loss_closure(compile=True)()
    assert_allclose(loss, model.training_loss(), rtol=1e-6)
    assert not model.inducing_variable.Z.trainable
    assert model.predict_f(data[0])[0].shape == (40, 1)
    model.update(batch, InducingPoints(Z))
    assert np.isfinite(compiled())  # six again, but not the same parameter


# --- effects of updates ---------------------------------------------------------------------------


@pytest.fixture
def small():
    data = series(30)
    kernel = SquaredExponential(1.2, 0.8)
    model = StreamingSGPR(
        tuple(values[:10] for values in data),
        kernel,
        line(0, 10, 5),
        noise_variance=0.1,
    )
    model.update(tuple(values[10:20] for values in data))
    return model


GOOD = np.ones((3, 1))


def test_unusable_new_points_are_refused_by_the_update_that_brings_them():
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = StreamingSGPR((X, X[:, :1]), SquaredExponential(), X[:5])
    mean, _ = model.predict_f(X)
    with stopped("lengthscales of their mean"):
        model.update((X, X[:, :1]), 1e9 * X[:5])
    assert_array_equal(model.predict_f(X)[0], mean)
    model.update((X, X[:, :1]))


def test_a_batch_beyond_the_range_of_the_kernel_is_refused(small):
    """A distance whose square overflows, and a Y whose square over the noise variance may."""
    small.kernel = Matern52()
    before = small.state.as_dict()
    for batch, message in [
        ((1e200 * GOOD, GOOD), r"new_data\[0\] \(X\) must have finite covariances.* Rescale X"),
        (
            (GOOD, 1e200 * GOOD),
            r"new_data\[1\] \(Y\) has a value of 1e\+200; above 2e\+123 the saved",
        ),
    ]:
        with refused(message):
            small.update(batch)
    assert_equal(small.state.as_dict(), before)


def test_an_update_in_a_compiled_function_is_refused():
    model = StreamingSGPR((GOOD, GOOD), SquaredExponential(), GOOD)
    with pytest.raises(RuntimeError, match=r"call it outside of a tf\.function"):
        tf.function(lambda: model.update((GOOD, GOOD)), autograph=False)()


def test_updates_do_not_retrace(small):
    X, Y = series(200, seed=2)
    loss = tf.function(small.training_loss)
    predict = tf.function(small.predict_f)
    for size in (30, 1, 7, 50):
        Z = np.sort(np.random.default_rng(size).uniform(0, 10, (5, 1)), axis=0)
        small.update((X[:size], Y[:size]), Z)
        small.alpha = size / 100
        assert_allclose(loss(), small.training_loss(), rtol=1e-12)
        assert_near(predict(X)[0], small.predict_f(X)[0], 1e-11)
    assert loss.experimental_get_tracing_count() == predict.experimental_get_tracing_count() == 1
    assert small._absorb.func.experimental_get_tracing_count() == 1


def test_has_no_upper_bound():
    """An upper bound for the batch alone does not bound its evidence given earlier batches."""
    assert not hasattr(StreamingSGPR, "upper_bound")
