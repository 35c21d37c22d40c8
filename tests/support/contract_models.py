"""
Models of the contract tests: each setting of `model_registry`, on a small problem.

Tests of regression have Gaussian noise and one or two outputs. The other settings have three
classes and the robust-max likelihood, whose probabilities have a relative error of 1e-10 or less,
or a column for each class with Gaussian noise. Models with sites converge these themselves, to
rounding here.
"""

import contextlib
from dataclasses import dataclass

import gpflow
import numpy as np
import tensorflow as tf
from comparisons import assert_all_close
from gpflow.functions import Constant
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent, SquaredExponential
from gpflow.likelihoods import Gaussian
from model_registry import CLASSES, COLLAPSED, REGRESSION, SITES
from model_values import random_q

from gpflow_pep import MultiClassRobustMax

N = 12
D = 2
M = 4
C = 3
Z = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.8, 0.9]])


@contextlib.contextmanager
def eagerly():
    """Run tf.functions eagerly: compiling would take longer than one evaluation."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def tolerance():
    return 1e-12 if gpflow.default_float() == np.float64 else 1e-4


# --- regression -----------------------------------------------------------------------------------


def make_data(P=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(N, D))
    phase = np.arange(P)
    return X, np.sin(2.0 * X[:, :1] + phase) + 0.5 * X[:, 1:] + 0.1 * rng.normal(size=(N, P))


def constructed(entry, data, kernel, points, *, noise_variance, **options):
    """A model of Gaussian noise. Sites, which are Gaussian then, take one sweep."""
    if entry.family == COLLAPSED:
        return entry.constructor(data, kernel, points, noise_variance=noise_variance, **options)
    likelihood = Gaussian(noise_variance)
    return entry.constructor(data, kernel, likelihood, points, tol=tolerance(), **options)


def regression_model(entry, P, seed, **options):
    """A stream has an earlier batch, equal for all outputs and data."""
    options.setdefault("mean_function", Constant(np.full(P, 0.1, gpflow.default_float())))
    options.setdefault("noise_variance", 0.2)
    kernel = SquaredExponential(variance=1.2, lengthscales=[0.8, 1.1])
    data = make_data(P, seed)
    if not entry.is_stream:
        return constructed(entry, data, kernel, Z, **options)
    X, Y = make_data(seed=99)
    model = constructed(entry, (X, np.tile(Y, P)), kernel, Z, **options)
    with eagerly():
        model.update(data)
    return model


# --- three classes --------------------------------------------------------------------------------


def make_labels(seed=0):
    """Labels of a noisy largest function."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(N, D))
    F = np.sin(1.5 * X[:, :1] + 2.0 * np.arange(C)) + 0.5 * X[:, 1:] * (np.arange(C) - 1.0)
    return X, np.argmax(F + 0.3 * rng.normal(size=(N, C)), axis=1)[:, None].astype(float)


def parts(separate=False):
    """Kernel, likelihood and inducing variable; the likelihood's epsilon is trained too."""
    likelihood = MultiClassRobustMax(C, 0.02)
    gpflow.set_trainable(likelihood.epsilon, True)
    if not separate:
        return SquaredExponential(1.2, lengthscales=[0.8, 1.1]), likelihood, Z
    kernels = [
        SquaredExponential(1.2 + 0.3 * c, lengthscales=[0.8, 1.1 - 0.1 * c]) for c in range(C)
    ]
    points = [InducingPoints(Z + 0.1 * c) for c in range(C)]
    return SeparateIndependent(kernels), likelihood, SeparateIndependentInducingVariables(points)


def model_of_classes(entry, setting, seed, fitted, *, separate=False, **options):
    """The seed selects data and q(u); a fitted stream has an earlier batch."""
    kernel, robust_max, points = parts(separate)
    options["mean_function"] = Constant(np.array([0.2, 0.0, -0.1], gpflow.default_float()))
    if entry.family == SITES:
        return entry.constructor(
            make_labels(seed), kernel, robust_max, points, tol=tolerance(), **options
        )
    likelihood = robust_max if setting.labels else Gaussian(0.2)
    q = random_q(np.random.default_rng(100 + seed), M, C)
    model = entry.constructor(kernel, likelihood, points, num_data=N, **q, **options)
    if entry.is_stream and fitted:
        model.update(make_labels(99))
        model.q_mu.assign(0.5 * model.q_mu + 0.3)
        model.inducing_variable.Z.assign(model.inducing_variable.Z + 0.1)
    return model


# --- the contract ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A setting of the registry: its models, and how they are evaluated."""

    name: str

    @property
    def is_regression(self):
        return self.name in REGRESSION

    @property
    def columns(self):
        """A number of outputs, greater than one if the model takes several."""
        if self.name == "BlockPEP":
            return 1
        return 2 if self.is_regression else C

    def new(self, P=1, seed=0, fitted=True, **options):
        """A new model; equal for equal arguments."""
        entry, setting = (REGRESSION if self.is_regression else CLASSES)[self.name]
        options = {**setting.options, **options}
        if self.is_regression:
            return regression_model(entry, P, seed, **options)
        return model_of_classes(entry, setting, seed, fitted, **options)

    def observations(self, model, seed=0):
        """X, and Y in the format of the likelihood."""
        if self.is_regression:
            return make_data(model.num_latent_gps, seed)
        X, Y = make_labels(seed)
        return X, np.eye(C)[Y[:, 0].astype(int)] if is_gaussian(model) else Y

    def loss(self, model):
        return (
            model.training_loss
            if holds_data(model)
            else lambda: model.training_loss(self.observations(model))
        )

    def compiled_loss(self, model):
        data = () if holds_data(model) else (self.observations(model),)
        return model.training_loss_closure(*data, compile=True)

    def change_settings(self, model):
        """Change alpha and the data or their number."""
        if hasattr(model, "alpha"):
            model.alpha = 0.0 * model.alpha if self.is_regression else 0.4
        if not holds_data(model):
            model.num_data = 2 * N
            return
        X, Y = (values.numpy() for values in model.data)
        model.data = X, -Y if self.is_regression else (Y + 1.0) % C


def is_gaussian(model):
    return isinstance(model.likelihood, Gaussian)


def holds_data(model):
    return hasattr(model, "data")


XNEW = np.random.default_rng(42).uniform(-2.5, 2.5, size=(7, D))


def perturb(model, seed=1, size=0.3):
    """Perturb all trainable variables."""
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(
            tf.constant(size * generator.normal(size=variable.shape), variable.dtype)
        )


def same_predictions(first, second, rtol=1e-12):  # with or without a graph
    """Assert that predictions are close."""
    assert_all_close(first, second, rtol=rtol, atol=rtol)


def value_and_gradient(model, loss):
    """Return a loss and its derivatives in the trainable variables, as tensors."""
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, model.trainable_variables)
    return value, [tf.convert_to_tensor(gradient) for gradient in gradients]
