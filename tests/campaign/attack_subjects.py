"""Attacks, and the random models that are attacked."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Matern32, Matern52, SquaredExponential
from gpflow.likelihoods import Gaussian, Poisson, StudentT
from gpflow.mean_functions import MeanFunction

import gpflow_pep
from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Logit, Probit

Numbers = Mapping[str, Any]
"""Arrays by name."""
Pair = tuple[Numbers, Numbers]
"""The numbers found, and the expected numbers."""


class Attack(NamedTuple):
    """Something that a user may do to a subject."""

    subject: Callable[[np.random.Generator], Any]
    """Makes a random subject, whose `numbers()` an attack that is refused must not change."""
    act: Callable[[Any], Any]
    """
    Performs the attack; unless it must be refused, returns the numbers found and the expected
    numbers.
    """
    names: str | None = None
    """
    A regular expression that the error message must match; None if the attack must give the right
    numbers.
    """


class NotConverged(Exception):
    """The sites of a subject have not converged: nothing can be compared."""


Attacks = Mapping[str, Attack]


def one_of(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """Draw one of any objects."""
    return values[int(rng.integers(len(values)))]


def drawn(subject: Any, values: Sequence[Any]) -> Any:
    """Draw a value; a function returns it for the subject."""
    value = one_of(subject.rng, values)
    return value(subject) if isinstance(value, FunctionType) else value


def masked(values: AnyNDArray) -> Any:
    """Return an array with a masked first row."""
    mask = np.zeros(values.shape, bool)
    mask[0] = True
    return np.ma.MaskedArray(values, mask=mask)


class FunctionOf(MeanFunction):
    """A mean function, or a noise variance, that is any function of the inputs."""

    def __init__(self, function: Callable[[Any], Any]):
        super().__init__()
        self._function = function

    def __call__(self, X: Any) -> Any:
        return self._function(X)


class Rows:
    """Random rows X [N, D] and Y [N, 1], and new inputs."""

    def __init__(self, rng: np.random.Generator):
        N, D = int(rng.integers(6, 20)), int(rng.integers(1, 3))
        self.rng = rng
        self.X: AnyNDArray = rng.uniform(-2.0, 2.0, (N, D))
        self.f: AnyNDArray = np.sin(2.0 * self.X[:, :1]) + 0.2 * rng.standard_normal((N, 1))
        self.Y = self.f
        self.Xnew: AnyNDArray = rng.uniform(-2.0, 2.0, (4, D))

    def numbers(self) -> Numbers:
        """Nothing: arrays cannot change."""
        return {}


def _alpha(rng: np.random.Generator) -> float:
    return float(one_of(rng, [0.0, 0.01, 0.3, 0.5, 1.0]))


Arguments = Callable[[np.random.Generator, int], dict[str, Any]]
_COLLAPSED: dict[str, tuple[Any, Arguments]] = {
    "PEPR": (gpflow_pep.PEPR, lambda rng, N: {"alpha": _alpha(rng)}),
    "PEPR scale": (
        gpflow_pep.PEPR,
        lambda rng, N: {"alpha": _alpha(rng), "scale": float(rng.uniform(0.5, 2.0))},
    ),
    "StreamingSGPR": (gpflow_pep.StreamingSGPR, lambda rng, N: {"alpha": _alpha(rng)}),
    "TSGPR": (gpflow_pep.TSGPR, lambda rng, N: {}),
    "BTSGPR": (gpflow_pep.BTSGPR, lambda rng, N: {"blocks": 3}),
    "PEPR blocks": (
        gpflow_pep.PEPR,
        lambda rng, N: {"alpha": rng.uniform(size=-(-N // 3)), "blocks": 3},
    ),
}
_SITES: dict[str, tuple[Any, Arguments]] = {
    name: (
        getattr(gpflow_pep, name),
        lambda rng, N: {"alpha": float(rng.uniform(0.0, 0.6)), "tol": 1e-9},
    )
    for name in ("PEP", "StreamingPEP", "PEPClassifier")
}
_MINIBATCH: dict[str, tuple[Any, Arguments]] = {
    **{
        name: (getattr(gpflow_pep, name), lambda rng, N: {})
        for name in ("TSVGP", "BTSVGP", "StreamingSVGP")
    },
    "PEPSVGP": (gpflow_pep.PEPSVGP, lambda rng, N: {"alpha": _alpha(rng), "scale": 0.8}),
    **{
        name: (getattr(gpflow_pep, name), lambda rng, N: {"alpha": _alpha(rng)})
        for name in ("APEP", "ARPEP", "RPAPEP")
    },
}
KINDS = _COLLAPSED | _SITES | _MINIBATCH
COLLAPSED, SITES, MINIBATCH = tuple(_COLLAPSED), tuple(_SITES), tuple(_MINIBATCH)
ONE_BLOCK = COLLAPSED[:4]
"""Collapsed models that take any number of rows."""
WITH_DATA = (*COLLAPSED, *SITES)
OF_NOISE = (*COLLAPSED, "BTSVGP", "PEPSVGP")
"""Models that take a Gaussian likelihood only."""

LIKELIHOODS: dict[
    str, tuple[Callable[[np.random.Generator], Any], Callable[[Rows], AnyNDArray]]
] = {
    "Gaussian": (
        lambda rng: Gaussian(10.0 ** rng.uniform(-2.0, 0.0)),
        lambda rows: rows.f,
    ),
    "Student-t": (
        lambda rng: StudentT(10.0 ** rng.uniform(-1.0, 0.0)),
        lambda rows: rows.f,
    ),
    "Poisson": (
        lambda rng: Poisson(),
        lambda rows: rows.rng.poisson(np.exp(rows.f)).astype(float),
    ),
    "Probit": (lambda rng: Probit(), lambda rows: (rows.f > 0.0).astype(float)),
    "Logit": (lambda rng: Logit(), lambda rows: (rows.f > 0.0).astype(float)),
    "robust-max": (
        lambda rng: MultiClassRobustMax(3),
        lambda rows: np.digitize(rows.f, [-0.4, 0.4]).astype(float),
    ),
}
BINARY = ("Probit", "Logit")


def _possible(kind: str) -> Sequence[str]:
    """Names of the likelihoods that a kind of models takes."""
    if kind in OF_NOISE:
        return ["Gaussian"]
    if kind == "PEPClassifier":
        return [*BINARY, "robust-max"]
    return ["Gaussian", *BINARY] if kind == "TSVGP" else list(LIKELIHOODS)


def new_kernel(rng: np.random.Generator, D: int = 0) -> Kernel:
    """Draw a kernel, with a lengthscale for each of D > 0 columns or one for all."""
    constructor = one_of(rng, [SquaredExponential, Matern32, Matern52])
    return constructor(
        rng.uniform(0.5, 2.0), lengthscales=rng.uniform(0.5, 2.0, [D] if D else None)
    )


class Model(Rows):
    """
    A random model, which has computed, and its arguments, from which another one is constructed.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        kinds: Sequence[str] = tuple(KINDS),
        likelihoods: Sequence[str] = (),
    ):
        super().__init__(rng)
        pairs = [
            (kind, name)
            for kind in kinds
            for name in _possible(kind)
            if not likelihoods or name in likelihoods
        ]
        self.kind = str(one_of(rng, sorted({kind for kind, _ in pairs})))
        self.likelihood = str(one_of(rng, [name for kind, name in pairs if kind == self.kind]))
        make_likelihood, observe = LIKELIHOODS[self.likelihood]
        self.Y = observe(self)
        N, M = len(self.X), int(rng.integers(2, 6))
        self.arguments: dict[str, Any] = {
            "kernel": new_kernel(rng, int(rng.integers(2)) * self.X.shape[1]),
            "likelihood": make_likelihood(rng),
            "inducing_variable": rng.uniform(-2.0, 2.0, (M, self.X.shape[1])),
            **KINDS[self.kind][1](rng, N),
        }
        if self.kind in MINIBATCH:
            C = 3 if self.likelihood == "robust-max" else 1
            q_sqrt = np.tril(0.2 * rng.normal(size=(C, M, M))) + np.eye(M)
            q = {"q_mu": 0.5 * rng.normal(size=(M, C)), "q_sqrt": q_sqrt}
            self.arguments |= {"num_data": N, "num_latent_gps": C, **q}
        else:
            self.arguments["data"] = (self.X, self.Y)
        self.model = self.make()

    @property
    def batch(self) -> tuple[Any, ...]:
        """All rows, if the model takes its data from outside; otherwise nothing."""
        return () if "data" in self.arguments else ((tf.constant(self.X), tf.constant(self.Y)),)

    def make(self, **replaced: Any) -> Any:
        """Construct a model of copies of the arguments, some of them replaced."""
        arguments = deepcopy(self.arguments | replaced)
        return KINDS[self.kind][0](**arguments)

    def numbers(self, model: Any = None) -> Numbers:
        """Compute objective and predictions, by default of the attacked model."""
        model = self.model if model is None else model
        objective = model.maximum_log_likelihood_objective(*self.batch)
        mean, variance = model.predict_f(self.Xnew)
        found = {
            "objective": objective,
            "mean": mean,
            "variance": variance,
            "y": model.predict_y(self.Xnew)[0],
        }
        if isinstance(model, PEP) and not model.sites_status.converged:
            raise NotConverged(str(model.sites_status))
        return {name: value.numpy() for name, value in found.items()}

    def compared(self, **replaced: Any) -> tuple[Numbers, Numbers]:
        """Return the numbers of the attacked model, and of a new one of such arguments."""
        return self.numbers(), self.numbers(self.make(**replaced))


def models(
    kinds: Sequence[str] = tuple(KINDS), likelihoods: Sequence[str] = ()
) -> Callable[..., Model]:
    """Return a function that draws a model of one of these kinds and likelihoods."""
    return lambda rng: Model(rng, kinds, likelihoods)
