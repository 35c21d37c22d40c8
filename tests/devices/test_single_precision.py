"""
In single precision every model trains and predicts, and its objective is that of double precision
at the same parameters; or an error says which jitter to use.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from gpflow.config import Config, as_context
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Softmax, StudentT
from model_registry import COLLAPSED, OWN_Q, TRAINED

import gpflow_pep
from experiments.datasets import load
from gpflow_pep import PEP, PEPR, PEPClassifier
from gpflow_pep.likelihoods import Probit
from gpflow_pep.training import fit

pytestmark = pytest.mark.slow  # every model once more

N = 150
M = 15
# Kuu and B have condition numbers of up to 1e4 at this jitter, and the largest sums cancel by a
# factor of 10.
JITTER = 1e-5
CLOSE = 1e-3
SINGLE, DOUBLE = (Config(float=dtype, jitter=JITTER) for dtype in (np.float32, np.float64))


def rows(name):
    """The first rows, in the precision of now."""
    data = load(name)
    return tuple(
        values[:N].astype(gpflow.default_float()) for values in (data.X_train, data.Y_train)
    )


def of_sites(constructor, data, likelihood, **options):
    return constructor(data, kernel(data[0]), likelihood, data[0][:M], **options)


def kernel(X):
    D = X.shape[1]
    return SquaredExponential(lengthscales=np.full(D, D**0.5, X.dtype))


def made(name):
    """A model of the registry, in the precision of now, and the data that its loss is given."""
    if name in OTHERS:
        return OTHERS[name](), None
    entry, setting = TRAINED[name]
    data = X, Y = rows("breast-cancer" if setting.labels else "diabetes")
    likelihood = Probit() if setting.labels else Gaussian(0.5)
    if entry.family == OWN_Q:
        return entry.constructor(kernel(X), likelihood, X[:M], num_data=N, **setting.options), data
    start = data if not entry.is_stream else (X[:50], Y[:50])
    if entry.family == COLLAPSED:
        model = entry.constructor(start, kernel(X), X[:M], noise_variance=0.5, **setting.options)
    else:
        model = of_sites(entry.constructor, start, likelihood, **setting.options)
    if entry.is_stream:
        model.update((X[50:], Y[50:]))
    return model, None


OTHERS = {
    "VFE of chunks": lambda: of_rows(alpha=0.0, chunk_size=64),
    "PEPR of blocks": lambda: of_rows(blocks=10),
    "PEP of Student's t": lambda: of_sites(PEP, rows("diabetes"), StudentT(0.5)),
    "EP": lambda: of_sites(PEPClassifier, rows("breast-cancer"), Probit(), alpha=1.0),
    "GPflow's probit": lambda: of_sites(PEPClassifier, rows("breast-cancer"), Bernoulli()),
    "quantile propagation": lambda: of_sites(
        PEPClassifier, rows("breast-cancer"), Probit(), projection="wasserstein", tol=1e-4
    ),  # whose updates have a rounding error of 1e-5
    "robust-max": lambda: of_sites(PEPClassifier, rows("three-classes"), None),
    "softmax": lambda: of_sites(PEPClassifier, rows("three-classes"), Softmax(3)),
}


def of_rows(**options):
    X, Y = rows("diabetes")
    return PEPR((X, Y), kernel(X), X[:M], noise_variance=0.5, **options)


def loss_of(model, data):
    return model.training_loss() if data is None else model.training_loss(data)


@pytest.mark.parametrize(
    "name", [*(name for name in TRAINED if hasattr(gpflow_pep, name)), *OTHERS]
)
def test_training_and_predictions(name):
    with as_context(SINGLE):
        model, data = made(name)
        before = loss_of(model, data)
        fit(model, data, max_iterations=5 if data is None else 50)
        loss = loss_of(model, data)
        parameters = gpflow.utilities.read_values(model)
        X_new, _ = rows(
            "diabetes" if isinstance(model.likelihood, (Gaussian, StudentT)) else "breast-cancer"
        )
        X_new = X_new[:20, : model.inducing_variable.Z.shape[1]]
        predicted = model.predict_f(X_new)
        assert {values.dtype for values in (*predicted, *model.trainable_variables)} == {tf.float32}
        assert loss < before
    with as_context(DOUBLE):
        model, data = made(name)
        gpflow.utilities.multiple_assign(
            model, {n: np.float64(values) for n, values in parameters.items()}
        )
        expected = [loss_of(model, data), *model.predict_f(X_new.astype(np.float64))]
        for one, other in zip([loss, *predicted], expected, strict=True):
            assert_near(one, other, CLOSE * np.abs(other).max())
