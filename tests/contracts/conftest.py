"""The registry of models that must keep the contract: add one entry for a new class.

An entry makes a model from a pair of data, an inducing variable Z [M, D], and the keyword arguments all models share.
Each test of this folder that takes `make` or `model` then runs for it. Those of saving run for the settings that differ
in what is saved.

Models with sites converge these themselves, to rounding here.
"""

import contextlib
import functools
import types

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import positive

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, StreamingPEP, StreamingSGPR

N, D, M = 12, 2, 4


def learned_scale():
    return gpflow.Parameter(0.8, transform=positive())


@contextlib.contextmanager
def eagerly():
    """Without compiling what is run once, which would take longer than running it."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def with_sites(data, kernel, Z, *, noise_variance, constructor=PEP, **options):
    """Gaussian sites take one sweep."""
    likelihood, tol = (
        gpflow.likelihoods.Gaussian(noise_variance),
        1e-12 if gpflow.default_float() == np.float64 else 1e-4,
    )
    return constructor(data, kernel, likelihood, Z, alpha=0.7, tol=tol, **options)


def in_midstream(make, data, kernel, Z, **shared):
    """With a batch behind it that is the same for all outputs, whatever the data."""
    X, Y = make_data(seed=99)
    model = make((X, np.tile(Y, data[1].shape[1])), kernel, Z, **shared)
    with eagerly():
        model.update(data)
    return model


REGISTRY = {
    "PEPR alpha 0": lambda data, kernel, Z, **shared: PEPR(data, kernel, Z, alpha=0.0, **shared),
    "PEPR alpha 0.5": lambda data, kernel, Z, **shared: PEPR(data, kernel, Z, alpha=0.5, chunk_size=5, **shared),
    "PEPR alpha per block": lambda data, kernel, Z, **shared: PEPR(
        data, kernel, Z, alpha=[0.0, 0.3, 1.0], blocks=np.repeat([2, 0, 1], [3, 4, 5]), **shared
    ),
    "T-PEP learned": lambda data, kernel, Z, **shared: PEPR(data, kernel, Z, scale=learned_scale(), blocks=5, **shared),
    "spherical": lambda data, kernel, Z, **shared: PEPR(data, kernel, Z, alpha=0.0, scale="optimal", **shared),
    "TSGPR": TSGPR,
    "BTSGPR": lambda data, kernel, Z, **shared: BTSGPR(data, kernel, Z, blocks=5, **shared),
    "BTSGPR shared": lambda data, kernel, Z, **shared: BTSGPR(data, kernel, Z, blocks=4, shared=True, **shared),
    "PEP scale learned": lambda data, kernel, Z, **shared: with_sites(data, kernel, Z, scale=learned_scale(), **shared),
    "StreamingPEP": functools.partial(in_midstream, functools.partial(with_sites, constructor=StreamingPEP)),
    "StreamingSGPR": functools.partial(in_midstream, functools.partial(StreamingSGPR, alpha=0.5)),
}


def make_data(P=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(N, D))
    phase = np.arange(P)
    return X, np.sin(2.0 * X[:, :1] + phase) + 0.5 * X[:, 1:] + 0.1 * rng.normal(size=(N, P))


@pytest.fixture(params=REGISTRY)
def make(request):
    """A function that makes a new model of the class under test, every time the same but for what it is given."""

    def new(P=1, seed=0, **options):
        options.setdefault("mean_function", gpflow.functions.Constant(0.1 * np.ones(P)))
        options.setdefault("noise_variance", 0.2)
        kernel = gpflow.kernels.SquaredExponential(variance=1.2, lengthscales=[0.8, 1.1])
        Z = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.8, 0.9]])
        return REGISTRY[request.param](make_data(P, seed), kernel, Z, **options)

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

    def same_predictions(first, second, rtol=0.0):
        for actual, expected in zip(first, second, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol)

    return types.SimpleNamespace(
        N=N, D=D, M=M, data=make_data, Xnew=rng.uniform(-2.5, 2.5, size=(7, D)), perturb=perturb,
        same_predictions=same_predictions,
    )  # fmt: skip
