"""Models small enough to be trained in seconds, each made anew with the same values."""

import gpflow
import numpy as np

import gpflow_pep
from gpflow_pep.likelihoods import Probit

rng = np.random.default_rng(3)
X = rng.uniform(-2.0, 2.0, (60, 1))
Y = np.sin(2.5 * X) + 0.2 * rng.normal(size=X.shape)
LABELS = np.where(Y > 0.0, 1.0, 0.0)
X_NEW = rng.uniform(-2.0, 2.0, (25, 1))
Y_NEW = np.sin(2.5 * X_NEW) + 0.2 * rng.normal(size=X_NEW.shape)
Z = np.linspace(-1.8, 1.8, 6)[:, None]


def kernel():
    return gpflow.kernels.SquaredExponential(1.0, lengthscales=0.9)


def collapsed(constructor, **options):
    return constructor((X, Y), kernel(), Z.copy(), noise_variance=0.3, **options)


def of_minibatches(constructor, likelihood=None, **options):
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    return constructor(kernel(), likelihood, Z.copy(), num_data=len(X), **options)


def classifier(constructor=gpflow_pep.PEPClassifier, data=(X, LABELS), **options):
    """Its inducing points stay, or L-BFGS would take hundreds of iterations."""
    model = constructor(data, kernel(), Probit(), Z.copy(), **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def stream():
    """With a batch behind it."""
    model = classifier(gpflow_pep.StreamingPEP, (X[:10], LABELS[:10]))
    model.update((X[10:], LABELS[10:]))
    return model


MAKERS = {
    "PEPR": lambda: collapsed(gpflow_pep.PEPR),
    "TSGPR": lambda: collapsed(gpflow_pep.TSGPR),
    "BTSGPR": lambda: collapsed(gpflow_pep.BTSGPR, blocks=10),
    "StreamingSGPR": lambda: collapsed(gpflow_pep.StreamingSGPR),
    "SGPR": lambda: collapsed(gpflow.models.SGPR),
    "PEPClassifier": classifier,
    "StreamingPEP": stream,
    "TSVGP": lambda: of_minibatches(gpflow_pep.TSVGP),
    "BTSVGP": lambda: of_minibatches(gpflow_pep.BTSVGP),
    "PEPSVGP": lambda: of_minibatches(gpflow_pep.PEPSVGP, alpha=0.5),
    "StreamingSVGP": lambda: of_minibatches(gpflow_pep.StreamingSVGP),
    "APEP": lambda: of_minibatches(gpflow_pep.APEP, Probit()),
    "ARPEP": lambda: of_minibatches(gpflow_pep.ARPEP, Probit()),
    "RPAPEP": lambda: of_minibatches(gpflow_pep.RPAPEP, Probit()),
    "SVGP": lambda: of_minibatches(gpflow.models.SVGP),
}
WITH_LABELS = ("PEPClassifier", "StreamingPEP", "APEP", "ARPEP", "RPAPEP")
WITH_SITES = ("PEPClassifier", "StreamingPEP")
WITH_DATA = ("PEPR", "TSGPR", "BTSGPR", "StreamingSGPR", "SGPR", *WITH_SITES)


def data_for(name):
    """What fit needs beside the model."""
    if name in WITH_DATA:
        return None
    return X, LABELS if name in WITH_LABELS else Y


def held_out_for(name):
    return X_NEW, np.where(Y_NEW > 0.0, 1.0, 0.0) if name in WITH_LABELS else Y_NEW


def values(model):
    return {name: value.copy() for name, value in gpflow.utilities.read_values(model).items()}


def options_for(name):
    """A training that has some records, of twenty steps in minibatches; of L-BFGS until it converges."""
    if name in WITH_DATA:
        return {"max_iterations": 200}
    return {"max_iterations": 100, "interval": 10, "batch_size": 7, "learning_rate": 0.05}
