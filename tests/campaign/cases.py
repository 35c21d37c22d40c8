"""
Random cases for the campaign of calls: regression models from good and bad data and arguments.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from campaign.reference import matern52, squared_exponential
from gpflow_pep import PEPR, TSGPR

KERNELS = {
    "squared exponential": (gpflow.kernels.SquaredExponential, squared_exponential),
    "Matern 5/2": (gpflow.kernels.Matern52, matern52),
}


class Case(NamedTuple):
    """The parts of a valid model, before a flaw is added."""

    seed: int
    model: str
    kernel: str
    place: str
    layout: str
    flaw: str | None
    X: AnyNDArray
    Y: AnyNDArray
    Z: AnyNDArray
    Xnew: AnyNDArray
    options: dict[str, Any]
    alpha: float
    variance: float
    lengthscale: float
    noise: float


def _near(X: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
    return X


def _far(X: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
    return X + 10.0 ** rng.uniform(0.0, 7.0)


def _clusters(X: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
    return X + 10.0 ** rng.uniform(1.0, 5.0) * rng.integers(0, 3, (len(X), 1))


def _duplicated(X: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
    return X[rng.integers(0, max(1, len(X) // 2), len(X))]


def _line(X: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
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


def _with(values: AnyNDArray, value: Any) -> AnyNDArray:
    values = np.array(values)
    values[-1, 0] = value
    return values


Arguments = dict[str, Any]


class Flaw(NamedTuple):
    """A flaw of the arguments of a model."""

    names: str
    """A text that the error message must contain."""
    put: Callable[[Arguments], Arguments]


FLAWS = {
    "NaN in X": Flaw("X", lambda a: a | {"X": _with(a["X"], np.nan)}),
    "infinite Y": Flaw("Y", lambda a: a | {"Y": _with(a["Y"], np.inf)}),
    "NaN in Z": Flaw("inducing_variable", lambda a: a | {"Z": _with(a["Z"], np.nan)}),
    "masked X": Flaw("X", lambda a: a | {"X": np.ma.MaskedArray(a["X"], mask=True)}),
    "Y of one dimension": Flaw("Y", lambda a: a | {"Y": a["Y"][:, 0]}),
    "X of three dimensions": Flaw("X", lambda a: a | {"X": a["X"][None]}),
    "rows that differ": Flaw("X", lambda a: a | {"X": np.concatenate([a["X"], a["X"][:1]])}),
    "no rows": Flaw("X", lambda a: a | {"X": a["X"][:0], "Y": a["Y"][:0]}),
    "no inducing points": Flaw("inducing_variable", lambda a: a | {"Z": a["Z"][:0]}),
    "another width of Z": Flaw(
        "inducing_variable", lambda a: a | {"Z": np.column_stack([a["Z"], a["Z"]])}
    ),
    "text": Flaw("Y", lambda a: a | {"Y": a["Y"].astype(str)}),
    "complex numbers": Flaw("X", lambda a: a | {"X": a["X"] + 1j}),
    "objects": Flaw(
        "X", lambda a: a | {"X": np.array([["a"] * len(a["X"][0]), *a["X"][1:]], dtype=object)}
    ),
    "not a pair": Flaw("data", lambda a: a | {"Y": None}),
    "noise 0": Flaw("noise_variance", lambda a: a | {"noise_variance": 0.0}),
    "noise NaN": Flaw("noise_variance", lambda a: a | {"noise_variance": np.nan}),
    "noise below 0": Flaw("noise_variance", lambda a: a | {"noise_variance": -1.0}),
    "chunk size 0": Flaw("chunk_size", lambda a: a | {"chunk_size": 0}),
    "chunk size -1": Flaw("chunk_size", lambda a: a | {"chunk_size": -1}),
    "chunk size 2.5": Flaw("chunk_size", lambda a: a | {"chunk_size": 2.5}),
    "chunk size true": Flaw("chunk_size", lambda a: a | {"chunk_size": True}),
    "jitter below the default": Flaw("max_jitter", lambda a: a | {"max_jitter": 1e-12}),
    "kernel is no kernel": Flaw("kernel", lambda a: a | {"kernel": "rbf"}),
    "mean function is a number": Flaw("mean_function", lambda a: a | {"mean_function": 3.0}),
}
OF_PEPR = {
    "alpha above 1": Flaw("alpha", lambda a: a | {"alpha": 1.5}),
    "alpha below 0": Flaw("alpha", lambda a: a | {"alpha": -1e-9}),
    "alpha NaN": Flaw("alpha", lambda a: a | {"alpha": np.nan}),
    "alpha a word": Flaw("alpha", lambda a: a | {"alpha": "half"}),
    "alpha for too many": Flaw("alpha", lambda a: a | {"alpha": np.full(10**4, 0.5)}),
    "scale 0": Flaw("scale", lambda a: a | {"scale": 0.0}),
    "blocks that do not cover": Flaw("blocks", lambda a: a | {"blocks": [np.array([0])] * 2}),
    "blocks of size 0": Flaw("blocks", lambda a: a | {"blocks": 0}),
}
CHUNKS = (None, None, 1, 3, 10**6, np.int64(4), sys.maxsize)


def flaw_of(case: Case) -> Flaw:
    """Return the flaw of a case that has one."""
    return (FLAWS | OF_PEPR)[str(case.flaw)]


def case_of(seed: int) -> Case:
    """Make the case of a seed."""
    rng = np.random.default_rng(seed)
    N, M, D = int(rng.choice([1, 2, 5, 12])), int(rng.choice([1, 2, 5, 8])), int(rng.choice([1, 2]))
    model, kernel, place = (
        str(rng.choice(list(names))) for names in (("PEPR", "TSGPR"), KERNELS, PLACES)
    )
    X = PLACES[place](rng.uniform(-1.0, 1.0, (N, D)), rng)
    points = np.concatenate([X[rng.integers(0, N, M)] + 0.3 * rng.standard_normal((M, D))])
    flaws = list(FLAWS | (OF_PEPR if model == "PEPR" else {}))
    flaw = str(rng.choice(flaws)) if rng.uniform() < 0.5 else None
    lengthscale, noise = 10.0 ** rng.uniform(-1.5, 1.5), 10.0 ** rng.uniform(-6.0, 2.0)
    variance = 10.0 ** rng.uniform(-3.0, 3.0)
    Y = np.sin(3.0 * (X[:, :1] - X[0, 0])) * np.sqrt(variance) + np.sqrt(
        noise
    ) * rng.standard_normal((N, 1))
    alpha = float(rng.choice([0.0, 1e-6, 0.1, 0.5, 0.9, 1.0])) if model == "PEPR" else 0.0
    chunk_size = CHUNKS[rng.integers(len(CHUNKS))]
    Xnew = X[rng.integers(0, N, 3)] + 0.1 * rng.standard_normal((3, D))
    options: dict[str, Any] = {} if chunk_size is None else {"chunk_size": chunk_size}
    layout = str(rng.choice(list(LAYOUTS)))
    return Case(
        seed,
        model,
        kernel,
        place,
        layout,
        flaw,
        X,
        Y,
        points,
        Xnew,
        options,
        alpha,
        variance,
        lengthscale,
        noise,
    )


def make(case: Case) -> Any:
    """Make the model of a case, with its flaw."""
    constructor = KERNELS[case.kernel][0]
    arguments: Arguments = {
        "X": case.X,
        "Y": case.Y,
        "Z": case.Z,
        "kernel": constructor(case.variance, lengthscales=case.lengthscale),
        "noise_variance": case.noise,
        **case.options,
    }
    if case.model == "PEPR":
        arguments["alpha"] = case.alpha
    if case.flaw is not None:
        arguments = flaw_of(case).put(arguments)
    else:
        arguments |= {name: LAYOUTS[case.layout](arguments[name]) for name in "XY"}
    X, Y, Z, kernel = (arguments.pop(name) for name in ("X", "Y", "Z", "kernel"))
    data = X if Y is None else (X, Y)
    return {"PEPR": PEPR, "TSGPR": TSGPR}[case.model](data, kernel, Z, **arguments)
