"""
Random models and calls: each outcome is right, or one of our own errors that names what is wrong.

A case makes a regression model from data in some layout and place (far from the origin, in
clusters, duplicated, few rows, ...), with parameters over many orders of magnitude, and calls it.
Objective and predictions are compared with 50 digits. All follows from the seed of the case.

    python -m campaign.calls [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

import copy
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from campaign.reference import Reference, matern52, power_ep, squared_exponential
from campaign.running import Campaign, Outcome, Rng, guarded, judged
from gpflow_pep import PEPR, TSGPR

_TOLERANCE = 1e-6  # relative, of what is well conditioned
_EPS = float(np.finfo(float).eps)


KERNELS = {
    "squared exponential": (gpflow.kernels.SquaredExponential, squared_exponential),
    "Matern 5/2": (gpflow.kernels.Matern52, matern52),
}


class Case(NamedTuple):
    """The parts of a model."""

    seed: int
    model: str
    kernel: str
    place: str
    layout: str
    X: AnyNDArray
    Y: AnyNDArray
    Z: AnyNDArray
    Xnew: AnyNDArray
    chunk_size: Any
    alpha: float
    variance: float
    lengthscale: float
    noise: float


def _near(X: AnyNDArray, rng: Rng) -> AnyNDArray:
    return X


def _far(X: AnyNDArray, rng: Rng) -> AnyNDArray:
    return X + 10.0 ** rng.uniform(0.0, 7.0)


def _clusters(X: AnyNDArray, rng: Rng) -> AnyNDArray:
    return X + 10.0 ** rng.uniform(1.0, 5.0) * rng.integers(0, 3, (len(X), 1))


def _duplicated(X: AnyNDArray, rng: Rng) -> AnyNDArray:
    return X[rng.integers(0, max(1, len(X) // 2), len(X))]


def _line(X: AnyNDArray, rng: Rng) -> AnyNDArray:
    return np.column_stack([X[:, 0], *([np.zeros(len(X))] * (X.shape[1] - 1))])


PLACES = {
    "near": _near,
    "far": _far,
    "clusters": _clusters,
    "duplicated": _duplicated,
    "on a line": _line,
}
LAYOUTS: dict[str, Callable[[AnyNDArray], Any]] = {
    "array": lambda values: values,
    "Fortran order": np.asfortranarray,
    "strided": lambda values: np.repeat(values, 2, axis=0)[::2],
    "read-only": lambda values: _read_only(values),
    "list": lambda values: values.tolist(),
    "tensor": lambda values: tf.constant(values),
    "variable": lambda values: tf.Variable(values),
}


def _read_only(values: AnyNDArray) -> AnyNDArray:
    values = values.copy()
    values.flags.writeable = False
    return values


CHUNKS = (None, None, 1, 3, 10**6, np.int64(4), sys.maxsize)


def case_of(seed: int) -> Case:
    """Make the case of a seed."""
    rng = np.random.default_rng(seed)
    N = int(rng.choice([1, 2, 5, 12]))
    M = int(rng.choice([1, 2, 5, 8]))
    D = int(rng.choice([1, 2]))
    model, kernel, place = (
        str(rng.choice(list(names))) for names in (("PEPR", "TSGPR"), KERNELS, PLACES)
    )
    X = PLACES[place](rng.uniform(-1.0, 1.0, (N, D)), rng)
    points = X[rng.integers(0, N, M)] + 0.3 * rng.standard_normal((M, D))
    lengthscale = 10.0 ** rng.uniform(-1.5, 1.5)
    noise = 10.0 ** rng.uniform(-6.0, 2.0)
    variance = 10.0 ** rng.uniform(-3.0, 3.0)
    Y = np.sin(3.0 * (X[:, :1] - X[0, 0])) * np.sqrt(variance) + np.sqrt(
        noise
    ) * rng.standard_normal((N, 1))
    alpha = float(rng.choice([0.0, 1e-6, 0.1, 0.5, 0.9, 1.0])) if model == "PEPR" else 0.0
    chunk_size = CHUNKS[rng.integers(len(CHUNKS))]
    Xnew = X[rng.integers(0, N, 3)] + 0.1 * rng.standard_normal((3, D))
    layout = str(rng.choice(list(LAYOUTS)))
    return Case(
        seed,
        model,
        kernel,
        place,
        layout,
        X,
        Y,
        points,
        Xnew,
        chunk_size,
        alpha,
        variance,
        lengthscale,
        noise,
    )


def make(case: Case) -> Any:
    """Make the model of a case."""
    options = {"alpha": case.alpha} if case.model == "PEPR" else {}
    data = tuple(LAYOUTS[case.layout](values) for values in (case.X, case.Y))
    kernel = KERNELS[case.kernel][0](case.variance, lengthscales=case.lengthscale)
    constructor: Any = {"PEPR": PEPR, "TSGPR": TSGPR}[case.model]
    return constructor(
        data, kernel, case.Z, noise_variance=case.noise, chunk_size=case.chunk_size, **options
    )


def run(case: Case) -> Outcome:
    """Make the model of a case, call it, and judge what comes of it."""
    return guarded(lambda: compare(case, make(case)))


def compare(case: Case, model: Any) -> Outcome:
    """Compare objective and predictions, of the model and of a copy, with 50 digits."""
    kernel = KERNELS[case.kernel][1](
        *(float(value.numpy()) for value in (model.kernel.variance, model.kernel.lengthscales))
    )
    jitter = gpflow.default_jitter()
    noise = float(model.likelihood.variance.numpy())
    expected = power_ep(
        (case.X, case.Y), kernel, model.inducing_variable.Z.numpy(), case.Xnew,
        alpha=case.alpha, noise=noise, jitter=jitter, structured=case.model == "TSGPR",
    )  # fmt: skip
    objective = float(model.maximum_log_likelihood_objective())
    mean, variance = (value.numpy()[:, 0] for value in model.predict_f(case.Xnew))
    _, full = copy.deepcopy(model).predict_f(case.Xnew, full_cov=True)
    tolerated = _tolerated(case, expected, noise)
    errors = {
        "objective": abs(objective - expected.objective) / tolerated["objective"],
        "mean": np.abs(mean - expected.mean).max() / tolerated["mean"],
        "variance": np.abs(variance - expected.variance).max() / tolerated["variance"],
        "full covariance": np.abs(np.diagonal(full.numpy()[0]) - expected.variance).max()
        / tolerated["variance"],
    }
    return judged(errors)


def _tolerated(case: Case, expected: Reference, noise: float) -> dict[str, float]:
    """
    Errors that rounding explains: 1e-6 of the terms' size, and what a relative error of Kuu and Kuf
    does.

    The latter is eps, or eps r^2 at points r lengthscales from the mean of the inducing points,
    where squared distances of several inputs are products. It moves the variance of f given u by so
    much times variance |Kuu^-1 k|^2; the objective by that over the noise for each row, and a mean,
    whose weight is at most its own size over the noise, likewise.
    """
    Z = np.asarray(case.Z, dtype=float)
    points = (
        np.concatenate([Z, np.asarray(case.Xnew, dtype=float)]) - Z.mean(axis=0)
    ) / case.lengthscale
    squares = np.square(points).sum(axis=1).max() if Z.shape[1] > 1 else 0.0
    moved = _EPS * max(10.0 * len(Z), squares) * case.variance * (1.0 + expected.amplification)
    relative = _TOLERANCE + len(case.X) * moved / noise
    return {
        "objective": relative * (1.0 + expected.size),
        "mean": relative * (np.sqrt(case.variance) + float(np.abs(case.Y).max())),
        "variance": relative * case.variance + moved,
    }


CAMPAIGN = Campaign(run, words=lambda case: case[1:5], verdicts=("right",))

if __name__ == "__main__":
    CAMPAIGN.main(__doc__, case_of, 1000)
