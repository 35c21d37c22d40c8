"""
The models of `model_registry`, small enough to be trained in seconds, each made anew with the same
values.
"""

import gpflow
import numpy as np
from model_registry import COLLAPSED, OWN_Q, SITES, TRAINED

import gpflow_pep
from gpflow_pep.likelihoods import Probit

rng = np.random.default_rng(3)
X = rng.uniform(-2.0, 2.0, (60, 1))
Y = np.sin(2.5 * X) + 0.2 * rng.normal(size=X.shape)
LABELS = np.where(Y > 0.0, 1.0, 0.0)
X_NEW = rng.uniform(-2.0, 2.0, (25, 1))
Y_NEW = np.sin(2.5 * X_NEW) + 0.2 * rng.normal(size=X_NEW.shape)
Z = np.linspace(-1.8, 1.8, 6)[:, None]


class At:
    """A callback that keeps the records, and acts at the count-th."""

    def __init__(self, count, action):
        self.count, self.action, self.records = count, action, []

    def __call__(self, iteration, objective):
        self.records.append((iteration, objective))
        if len(self.records) == self.count:
            self.action()


def stop():
    """An action of a callback that ends training."""
    raise StopIteration


class Trend(gpflow.functions.Function):
    """A mean function with a Python function as its setting."""

    def __init__(self, trend):
        super().__init__()
        self.trend = trend

    def __call__(self, X):
        return self.trend(X)


def kernel():
    return gpflow.kernels.SquaredExponential(1.0, lengthscales=0.9)


def collapsed(constructor, **options):
    return constructor((X, Y), kernel(), Z, noise_variance=0.3, **options)


def of_minibatches(constructor, likelihood=None, **options):
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    return constructor(kernel(), likelihood, Z, num_data=len(X), **options)


def classifier(constructor=gpflow_pep.PEPClassifier, data=(X, LABELS), **options):
    """Its inducing points stay, or L-BFGS would take hundreds of iterations."""
    model = constructor(data, kernel(), Probit(), Z, **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def stream():
    """A stream after its first batch."""
    model = classifier(gpflow_pep.StreamingPEP, (X[:10], LABELS[:10]))
    model.update((X[10:], LABELS[10:]))
    return model


def _maker(entry, setting):
    def made():
        if entry.family == COLLAPSED:
            return collapsed(entry.constructor, **setting.options)
        if entry.family == OWN_Q:
            return of_minibatches(
                entry.constructor, Probit() if setting.labels else None, **setting.options
            )
        return stream() if entry.is_stream else classifier(entry.constructor, **setting.options)

    return made


MAKERS = {name: _maker(*trained) for name, trained in TRAINED.items()}
WITH_LABELS = tuple(name for name, (_, setting) in TRAINED.items() if setting.labels)
WITH_SITES = tuple(name for name, (entry, _) in TRAINED.items() if entry.family == SITES)
WITH_DATA = tuple(name for name, (entry, _) in TRAINED.items() if entry.family != OWN_Q)


def data_for(name):
    """Additional data arguments of fit."""
    if name in WITH_DATA:
        return None
    return X, LABELS if name in WITH_LABELS else Y


def held_out_for(name):
    return X_NEW, np.where(Y_NEW > 0.0, 1.0, 0.0) if name in WITH_LABELS else Y_NEW


def values(model):
    return {name: value.copy() for name, value in gpflow.utilities.read_values(model).items()}


def options_for(name):
    """
    A training that has some records, of twenty steps in minibatches; of L-BFGS until it converges.
    """
    if name in WITH_DATA:
        return {"max_iterations": 200}
    return {"max_iterations": 100, "interval": 10, "batch_size": 7, "learning_rate": 0.05}
