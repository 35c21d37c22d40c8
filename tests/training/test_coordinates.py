"""
The optimizers' coordinates: their derivatives, units and starts; training does not depend on units.
"""

import functools
from contextlib import nullcontext
from itertools import pairwise

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from comparisons import assert_all_close, assert_near
from gpflow.functions import Constant, Linear
from gpflow.kernels import RBF, Convolutional, Cosine, Matern32, Matern52, SquaredExponential
from gpflow.utilities import positive
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow

from gpflow_pep import PEPR, PEPClassifier
from gpflow_pep.inducing import k_means
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training import Scipy, fit, fitting
from gpflow_pep.training.coordinates import Coordinates
from gpflow_pep.training.objectives import Objective
from gpflow_pep.training.starts import FRACTIONS, bring_within_reach, starts

rng = np.random.default_rng(5)
X = rng.uniform(-2.0, 2.0, (80, 3))
Y = np.sin(2.0 * X[:, :1]) + X[:, 1:2] + 0.1 * rng.normal(size=(80, 1))
Z = X[:12]


def regression(x_scale=1.0, y_scale=1.0, **options):
    """A model that starts at the same place, whatever the units of the first column and of Y."""
    units = np.array([x_scale, 1.0, 1.0])
    kernel = SquaredExponential(y_scale**2, 2.0 * units)
    likelihood_variance = 0.1 * y_scale**2
    return PEPR(
        (X * units, Y * y_scale), kernel, Z * units, noise_variance=likelihood_variance, **options
    )


def everything():
    """
    A model with every kind of coordinate: softplus and exponential, shifted, points, means and a
    bounded value.
    """
    kernel = SquaredExponential(lengthscales=[0.3, 40.0, 1.0]) + Cosine()
    kernel.kernels[1].lengthscales = gpflow.Parameter(2.0, transform=positive(base="exp"))
    kernel.kernels[1].variance = gpflow.Parameter(
        0.4, transform=tfp.bijectors.Sigmoid(np.float64(0.0), np.float64(2.0))
    )
    return PEPR((X, Y), kernel, Z, mean_function=Linear(np.ones((3, 1)), np.zeros(1)))


def test_inducing_patches_of_a_convolutional_kernel_keep_their_unit():
    """They are no rows of inputs, at which the kernel could be evaluated."""
    images = rng.normal(size=(20, 16))
    patches = rng.normal(size=(5, 4))
    kernel = Convolutional(SquaredExponential(), [4, 4], [2, 2])
    model = PEPR(
        (images, images[:, :1]), kernel, gpflow.inducing_variables.InducingPatches(patches)
    )
    found = Coordinates(model, [model.inducing_variable.Z.unconstrained_variable]).values()
    assert_array_equal(found, patches.ravel())


def test_gradients_in_the_coordinates_are_derivatives_of_the_loss():
    """
    By central differences in every coordinate; the variables come back from the coordinates to
    rounding.
    """
    model = everything()
    coordinates = Coordinates(model, model.trainable_variables)
    before = [variable.numpy() for variable in model.trainable_variables]
    at = coordinates.values()
    coordinates.assign(at)
    assert_all_close(model.trainable_variables, before, rtol=1e-13, atol=1e-13)

    training_loss = tf.function(model.training_loss)

    def loss(values):
        coordinates.assign(values)
        return float(training_loss())

    derivatives = [np.array(each) for each in loss_and_gradient(model)[1]]
    gradient = coordinates.gradient(at, derivatives)
    step = 1e-5
    differences = [
        (loss(at + move) - loss(at - move)) / (2.0 * step) for move in step * np.eye(len(at))
    ]
    assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("x", [-900.0, -50.0, -1.0, 0.0, 3.0, 40.0, 1e8])
def test_the_coordinate_of_a_positive_parameter_is_its_logarithm(x):
    """
    log log(1 + e^x), by NumPy and TensorFlow; for very negative x, where e^x is 0, it stays finite.
    """
    parameter = gpflow.Parameter(1.0, transform=tfp.bijectors.Softplus())
    parameter.unconstrained_variable.assign(x)
    module = tf.Module()
    module.parameters, module.part = [parameter], parameter
    (coordinate,) = Coordinates(module, [parameter.unconstrained_variable]).each
    u = coordinate.of(np.float64(x), np)
    assert np.isfinite(u)
    assert_allclose(coordinate.of(tf.constant(x, tf.float64), tf.math), u, rtol=1e-14)
    if x > -80.0:
        assert_allclose(u, np.log(np.logaddexp(0.0, x)), rtol=1e-14, atol=1e-15)
        assert_allclose(coordinate.inverse(u, np), x, rtol=1e-13, atol=1e-14)
        step = 1e-6
        difference = (coordinate.inverse(u + step, np) - coordinate.inverse(u - step, np)) / (
            2.0 * step
        )
        assert_allclose(coordinate.slope(u, np), difference, rtol=1e-6)


def test_units_of_points_and_mean_function():
    """A column's inducing points are in units of its spread, a constant column's in units of 1."""
    points = np.c_[1e5 * Z[:, 0], Z[:, 1], np.full(len(Z), 7.0)]
    kernel = SquaredExponential(variance=9.0)
    model = PEPR((X, Y), kernel, points, mean_function=Constant(6.0 * np.ones(1)))
    coordinates = {
        id(each.variable): each for each in Coordinates(model, model.trainable_variables).each
    }
    of_points = coordinates[id(model.inducing_variable.Z.unconstrained_variable)]
    assert_allclose(of_points.unit, [points[:, 0].std(), points[:, 1].std(), 1.0])
    of_mean = coordinates[id(model.mean_function.c.unconstrained_variable)]
    assert_allclose(of_mean.of(np.array([6.0]), np), [2.0])  # standard deviations of f


@functools.cache
def objectives_in_ones():
    return fit(regression(), max_iterations=100).objective


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_the_units_of_a_column_do_not_change_the_training(scale):
    """
    From the same start, the objectives of the first iterations agree to rounding, and training ends
    alike.
    """
    found = fit(regression(scale), max_iterations=100).objective
    assert_allclose(found[:10], objectives_in_ones()[:10], rtol=1e-6)
    assert_allclose(found[-1], objectives_in_ones()[-1], atol=0.05)


def test_the_units_of_y_do_not_change_the_training():
    """
    The objective changes by N log(scale), the density of Y in other units; jitter and bounds are
    absolute.
    """
    scale = 1e4
    found = fit(regression(y_scale=scale), max_iterations=100).objective[-1]
    assert_near(found + len(Y) * np.log(scale), objectives_in_ones()[-1], 2.0)


def test_scipy_trains_in_the_coordinates():
    """
    It finds the optimum where GPflow's `Scipy` ends at its limit, and its callback gets values of
    the variables.
    """
    ours, gpflows = (regression(1e6) for _ in range(2))
    seen = []
    options = {"maxiter": 60}
    result = Scipy(ours).minimize(
        ours.training_loss,
        ours.trainable_variables,
        step_callback=lambda step, variables, values: seen.append(
            [value.numpy() for value in values]
        ),
        options=options,
        track_loss_history=True,
    )
    gpflow.optimizers.Scipy().minimize(
        gpflows.training_loss, gpflows.trainable_variables, options=options
    )
    assert_allclose(ours.training_loss(), result.fun, rtol=1e-12)
    assert ours.training_loss() < gpflows.training_loss() - 1.0
    assert_all_close(seen[-1], ours.trainable_variables, rtol=1e-12)
    assert_allclose(result.loss_history[-1], result.fun, rtol=1e-12)


@pytest.mark.parametrize("name", ["c", "A", "b"])
def test_mean_functions_of_variables_tensors_and_numbers_train(name):
    """
    A variable trains as a parameter does, to the last digit; a tensor and a number stay, as a fixed
    parameter.
    """
    X = np.linspace(0.0, 6.0, 50)[:, None]

    def trained(value):
        mean_function = Linear()
        if name == "c":
            mean_function = Constant()
        setattr(mean_function, name, value)
        model = PEPR(
            (X, np.sin(X) + 3.0 * X + 2.0), Matern52(), X[::10], mean_function=mean_function
        )
        assert fit(model, max_iterations=20).iterations > 5
        return [float(model.training_loss()), float(np.squeeze(getattr(mean_function, name)))]

    start = np.full([1, 1] if name == "A" else [1], 1.5)
    by_parameter = trained(gpflow.Parameter(start))
    assert abs(by_parameter[1] - 1.5) > 0.1
    assert trained(tf.Variable(start)) == by_parameter
    fixed = trained(gpflow.Parameter(start, trainable=False))
    assert trained(tf.constant(start)) == trained(start) == fixed == [fixed[0], 1.5]


def test_errors_that_the_user_asks_numpy_for():
    """A noise variance of 1e6 has a coordinate with an exponential that underflows."""
    model = PEPR((X, Y), Matern52(lengthscales=np.ones(3)), Z, noise_variance=1e6)
    with np.errstate(all="raise"):
        assert fit(model, max_iterations=5).iterations == 5
        assert Scipy(model).minimize(model.training_loss, model.trainable_variables).nit > 0


def test_starts_are_fractions_of_the_spread_of_the_inducing_points():
    """
    Of trainable lengthscales only, for all kernels of a sum, shared or one for each column; the
    model stays.
    """
    sum_of_two = Matern32(lengthscales=[5.0, 6.0], active_dims=[0, 2]) + RBF(lengthscales=3.0)
    model = PEPR((X, Y), sum_of_two, Z)
    coordinates = Coordinates(model, model.trainable_variables)
    given, *found = starts(model, coordinates, 2, seed=1)
    assert_allclose(given, coordinates.values(), rtol=1e-14)
    assert len(found) == len(FRACTIONS) + 2
    spread = Z.std(axis=0)
    for number, values in enumerate(found[: len(FRACTIONS)]):  # the parts differ
        coordinates.assign(values)
        two, one = (part.lengthscales.numpy() for part in model.kernel.kernels)
        assert_allclose(two, FRACTIONS[number] * np.sqrt(2.0) * spread[[0, 2]])
        assert_allclose(one, FRACTIONS[(number + 1) % 3] * np.sqrt(3.0) * np.mean(spread))
    coordinates.assign(given)
    gpflow.set_trainable(model.kernel.kernels[0].lengthscales, False)
    gpflow.set_trainable(model.kernel.kernels[1].lengthscales, False)
    assert len(starts(model, Coordinates(model, model.trainable_variables), 2, seed=1)) == 1


def test_restarts_keep_the_best_objective():
    """With more restarts the objective does not fall; the last record is that of the model."""
    options = {"train_inducing": False, "held_out": (X, Y), "interval": 1}
    model = regression()
    once = fit(regression(), **options)
    often = fit(model, n_restarts=3, **options)
    assert often.iterations > 2 * once.iterations
    assert often.objective[-1] >= once.objective[-1] - 1e-2
    assert_allclose(often.objective[-1], model.maximum_log_likelihood_objective(), rtol=1e-9)
    density = np.mean(model.predict_log_density((X, Y)))
    assert_allclose(often.held_out["nlpd"][-1], -density, rtol=1e-9)


def test_without_starts_training_begins_at_the_present_parameters():
    """No start is compared: where f is far too smooth, an iteration does not leave it."""
    kernel = SquaredExponential(lengthscales=50.0)
    first = {"train_inducing": False, "max_iterations": 1}
    fit(PEPR((X, Y), kernel, Z), n_restarts=None, **first)
    stays = kernel.lengthscales.numpy()
    kernel.lengthscales.assign(50.0)
    fit(PEPR((X, Y), kernel, Z), **first)
    assert kernel.lengthscales.numpy() < 5.0 < stays


@pytest.mark.parametrize(
    ("choice", "is_classifier", "expected"),
    [(None, False, True), (None, True, False), (False, False, False), (True, True, True)],
)
def test_inducing_points_are_trained_after_the_rest(choice, is_classifier, expected):
    """They stay in the first phase, and move in the second; a classifier's stay by default."""
    labels = np.where(Y > 0.0, 1.0, 0.0)
    model = regression()
    if is_classifier:
        model = PEPClassifier((X, labels), SquaredExponential(), Probit(), Z)
    at = []
    fit(
        model,
        train_inducing=choice,
        callback=lambda *_: at.append(model.inducing_variable.Z.numpy()),
    )
    moved = [not np.array_equal(points, Z) for points in at]
    assert not moved[0] and moved == sorted(moved)
    assert moved[-1] == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 3), (0.3 * 1.1, 3), (1.5, 4)])
def test_a_start_near_an_earlier_one_is_left_out(factor, expected):
    """Given lengthscales within 20 % of a start's take its place: the trials would be the same."""
    model = regression()
    model.kernel.lengthscales.assign(factor * np.sqrt(3.0) * Z.std(axis=0))
    assert len(starts(model, Coordinates(model, model.trainable_variables), 0, seed=1)) == expected


def test_parameters_are_not_evaluated_twice_in_succession(monkeypatch):
    """
    SciPy asks for the loss at the start of a search, which is known from the trial of the start.
    """
    model = regression()
    places = []
    evaluate = Objective.evaluate

    def kept(self, step):
        places.append(np.concatenate([np.ravel(each) for each in model.trainable_variables]))
        return evaluate(self, step)

    monkeypatch.setattr(Objective, "evaluate", kept)
    fit(model, train_inducing=False)
    assert len(places) > 20
    assert all(np.any(a != b) for a, b in pairwise(places))


def test_adam_starts_lengthscales_anew_that_are_out_of_reach():
    """Those that differ from the spread of the inducing points by a factor of 100; others stay."""
    model = regression()
    unit = np.sqrt(3.0) * Z.std(axis=0)
    for factors, expected in (
        ([101.0, 99.0, 1.0 / 101.0], [1.0, 99.0, 1.0]),
        ([1.0, 1.0 / 99.0, 3e4], [1.0, 1.0 / 99.0, 1.0]),
    ):
        model.kernel.lengthscales.assign(unit * factors)
        bring_within_reach(model, lambda: 0.0)
        assert_allclose(model.kernel.lengthscales, unit * expected)


def test_ctrl_c_while_starts_are_compared_restores_the_best_of_them(monkeypatch):
    """
    Pressed in the last start, at lengthscales of a tenth: the model has those of the best start so
    far.
    """
    model = regression()
    pressed = []
    losses = {}
    evaluate = Objective.evaluate

    def seen(self, step):
        loss, gradient = evaluate(self, step)
        losses[loss] = model.kernel.lengthscales.numpy()
        pressed.extend([True] * (model.kernel.lengthscales.numpy()[0] < 0.3))
        return loss, gradient

    monkeypatch.setattr(Objective, "evaluate", seen)
    monkeypatch.setattr(
        fitting, "recorded_interruption", lambda **_: nullcontext(lambda: bool(pressed))
    )
    with pytest.warns(UserWarning, match="Interrupted"):
        result = fit(model)
    assert result.status == "interrupted" and result.iterations == 0
    assert_array_equal(model.kernel.lengthscales, losses[min(losses)])


def test_points_are_trained_at_once_if_in_their_first_places_they_explain_nothing():
    """
    Six k-means points of 40 rows: at fixed points noise is the best explanation, -N (1 + log 2π)/2
    nats.
    """
    rows = np.random.default_rng(3).normal(size=(60, 2))[:40]
    targets = np.sin(rows[:, :1] + rows[:, 1:] + 2.0) + 0.1 * np.random.default_rng(4).normal(
        size=(40, 1)
    )
    targets = (targets - targets.mean()) / targets.std()
    ends = []
    for train_inducing in (False, True):
        kernel = SquaredExponential(lengthscales=np.sqrt(2.0) * rows.std(axis=0))
        model = PEPR((rows, targets), kernel, k_means(rows, 6), alpha=0.0, noise_variance=0.1)
        ends.append(fit(model, train_inducing=train_inducing).objective[-1])
    noise = -0.5 * 40 * (1.0 + np.log(2.0 * np.pi))
    assert ends[0] < noise + 2.0 and ends[1] > noise + 10.0


@partly_slow(
    "transform",
    [
        tfp.bijectors.Sigmoid(np.float64(0.1), np.float64(2.0)),
        tfp.bijectors.Sigmoid(np.float64(0.01), np.float64(20.0)),
        positive(lower=0.5),
    ],
    1,
)
def test_bounded_lengthscales_stay_in_their_bounds(transform):
    """Starts beyond the bounds are left out."""
    model = regression()
    model.kernel.lengthscales = gpflow.Parameter(np.full(3, 1.0), transform=transform)
    before = float(model.maximum_log_likelihood_objective())
    result = fit(model, max_iterations=30)
    assert result.status in ("limit", "converged") and result.objective[-1] > before + 10.0
    fit(model, optimizer="adam", max_iterations=2)


def test_adam_keeps_lengthscales_that_are_better_than_within_reach():
    """A long lengthscale of a column without influence, as L-BFGS finds it."""
    model = PEPR(
        (X, np.sin(2.0 * X[:, :1])),
        SquaredExponential(lengthscales=[1.0, 1e5, 1e5]),
        Z,
    )
    fit(model, optimizer="adam", max_iterations=1)
    assert np.all(model.kernel.lengthscales.numpy()[1:] > 9e4)
