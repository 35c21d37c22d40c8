"""The models that must keep the contract: those of `model_registry`, for small problems of regression.

Each test of this folder that takes `make` or `model` runs for each of their settings; those of saving run for the
settings that differ in what is saved.

Models with sites converge these themselves, to rounding here.
"""

import contextlib
import types

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from model_registry import COLLAPSED, REGRESSION
from quick import some_slow

N, D, M = 12, 2, 4


@contextlib.contextmanager
def eagerly():
    """Without compiling what is run once, which would take longer than running it."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def constructed(entry, data, kernel, Z, *, noise_variance, **options):
    """A model of Gaussian noise. Sites, which are Gaussian then, take one sweep."""
    if entry.family == COLLAPSED:
        return entry.constructor(data, kernel, Z, noise_variance=noise_variance, **options)
    tol = 1e-12 if gpflow.default_float() == np.float64 else 1e-4
    likelihood = gpflow.likelihoods.Gaussian(noise_variance)
    return entry.constructor(data, kernel, likelihood, Z, tol=tol, **options)


def in_midstream(entry, data, kernel, Z, **options):
    """With a batch behind it that is the same for all outputs, whatever the data."""
    X, Y = make_data(seed=99)
    model = constructed(entry, (X, np.tile(Y, data[1].shape[1])), kernel, Z, **options)
    with eagerly():
        model.update(data)
    return model


def make_data(P=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(N, D))
    phase = np.arange(P)
    return X, np.sin(2.0 * X[:, :1] + phase) + 0.5 * X[:, 1:] + 0.1 * rng.normal(size=(N, P))


QUICK = ("PEPR alpha 0.5", "BTSGPR", "PEP scale learned")


@pytest.fixture(params=some_slow(REGRESSION, quick=QUICK))
def make(request):
    """A function that makes a new model of the class under test, every time the same but for what it is given."""

    def new(P=1, seed=0, **options):
        options.setdefault("mean_function", gpflow.functions.Constant(0.1 * np.ones(P)))
        options.setdefault("noise_variance", 0.2)
        kernel = gpflow.kernels.SquaredExponential(variance=1.2, lengthscales=[0.8, 1.1])
        Z = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.8, 0.9]])
        entry, setting = REGRESSION[request.param]
        model = in_midstream if entry.is_stream else constructed
        return model(entry, make_data(P, seed), kernel, Z, **{**setting.options, **options})

    return new


def _variables(whole, seen):
    """All that a model has, trained or not."""
    if id(whole) in seen:
        return
    seen.add(id(whole))
    if isinstance(whole, tf.Variable):
        yield whole
    elif isinstance(whole, list | tuple | dict):
        for each in whole.values() if isinstance(whole, dict) else whole:
            yield from _variables(each, seen)
    elif isinstance(whole, tf.Module) or type(whole).__module__.startswith("gpflow_pep"):
        yield from _variables(vars(whole), seen)


@pytest.fixture(scope="module")
def _kept():
    return {}


@pytest.fixture
def shared(make, _kept, request):
    """
    A function that returns a model which the tests of a module share, so that what it compiles is compiled once. All
    variables have their first values. Who replaces a part, or what is trained, makes a new one.
    """
    name = request.node.callspec.params["make"]

    def as_new(P=1):
        if (name, P) not in _kept:
            model = make(P)
            _kept[name, P] = model, [(variable, variable.numpy()) for variable in _variables(model, set())]
        model, values = _kept[name, P]
        for variable, value in values:
            variable.assign(value)
        return model

    return as_new


@pytest.fixture
def model(shared):
    return shared()


@pytest.fixture(scope="session")
def contract():
    """Inputs to predict at, and comparisons of predictions; a fixture, since test folders are no packages."""
    rng = np.random.default_rng(42)

    def perturb(model, seed=1, size=0.3):
        """Moves all trainable variables: new values that no constructor would give."""
        generator = np.random.default_rng(seed)
        for variable in model.trainable_variables:
            variable.assign_add(tf.constant(size * generator.normal(size=variable.shape), variable.dtype))

    def same_predictions(first, second, rtol=1e-12):  # with or without a graph
        for actual, expected in zip(first, second, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol)

    return types.SimpleNamespace(
        N=N, D=D, M=M, data=make_data, Xnew=rng.uniform(-2.5, 2.5, size=(7, D)), perturb=perturb,
        same_predictions=same_predictions,
    )  # fmt: skip
