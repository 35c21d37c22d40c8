"""Random models of every kind, with parameters over many orders of magnitude."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Gaussian, Poisson, StudentT

import gpflow_pep
from campaign.running import Rng
from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Logit, Probit


class Case(NamedTuple):
    """The parts of a model."""

    seed: int
    model: str
    likelihood: str
    X: AnyNDArray
    Y: AnyNDArray
    Z: AnyNDArray
    Xnew: AnyNDArray
    alpha: float
    variance: float
    lengthscale: float
    noise: float
    q: tuple[AnyNDArray, AnyNDArray]
    """q_mu and q_sqrt of models that have them."""


class Found(NamedTuple):
    """The compared results."""

    objective: AnyNDArray
    mean: AnyNDArray
    variance: AnyNDArray


LIKELIHOODS: dict[str, Callable[[float], gpflow.likelihoods.Likelihood]] = {
    "Gaussian": Gaussian,
    "Probit": lambda noise: Probit(),
    "Logit": lambda noise: Logit(),
    "robust-max": lambda noise: MultiClassRobustMax(3),
    "Poisson": lambda noise: Poisson(),
    "Student-t": lambda noise: StudentT(scale=np.sqrt(noise)),
}
BINARY = ("Probit", "Logit")
# Classes of regression models, and names of arguments besides the noise variance.
REGRESSION: dict[str, tuple[str, ...]] = {
    "PEPR": ("alpha",),
    "PEPR blocks": ("alpha", "blocks"),
    "TSGPR": (),
    "BTSGPR": ("blocks",),
    "StreamingSGPR": ("alpha",),
}
SITES = ("PEP", "StreamingPEP", "PEPClassifier")
_WITHOUT_ALPHA = ("TSVGP", "BTSVGP", "StreamingSVGP")
MINIBATCH = ("PEPSVGP", "APEP", "ARPEP", "RPAPEP", *_WITHOUT_ALPHA)
MODELS = (*REGRESSION, *SITES, *MINIBATCH)
_GAUSSIAN = (*REGRESSION, "BTSVGP", "PEPSVGP")  # models whose noise is Gaussian


def _blocks(case: Case) -> AnyNDArray:
    """
    Labels of blocks that go with the rows: by their first input, whatever its unit and origin.
    """
    return np.argsort(np.argsort(case.X[:, 0], kind="stable")) // 3


def kernel_of(case: Case) -> gpflow.kernels.Kernel:
    """Make the kernel of a case."""
    constructor = (gpflow.kernels.SquaredExponential, gpflow.kernels.Matern52)[case.seed % 2]
    return constructor(case.variance, case.lengthscale)


def make(case: Case, **options: Any) -> Any:
    """Make the model of a case, with other arguments in place of those of the case."""
    constructor = getattr(gpflow_pep, case.model.removesuffix(" blocks"))
    parts = {"kernel": kernel_of(case), "inducing_variable": case.Z}
    if "likelihood" not in options and case.model not in REGRESSION:
        parts["likelihood"] = LIKELIHOODS[case.likelihood](case.noise)
    if case.model in MINIBATCH:
        q_mu, q_sqrt = case.q
        parts |= {"num_data": len(case.X), "num_latent_gps": q_mu.shape[1]}
        parts |= {"q_mu": q_mu, "q_sqrt": q_sqrt}
        if case.model not in _WITHOUT_ALPHA:
            parts["alpha"] = case.alpha
        return constructor(**parts | options)
    parts["data"] = (case.X, case.Y)
    if case.model in SITES:
        return constructor(**parts | {"alpha": case.alpha, "tol": 1e-9} | options)
    if "likelihood" not in options:
        parts["noise_variance"] = case.noise
    given = {"alpha": case.alpha, "blocks": _blocks(case)}
    return constructor(**parts | {name: given[name] for name in REGRESSION[case.model]} | options)


def batch_of(case: Case, model: Any) -> tuple[Any, ...]:
    """Return the rows for a model that takes them from outside; otherwise nothing."""
    return () if hasattr(model, "data") else ((tf.constant(case.X), tf.constant(case.Y)),)


def found_by(case: Case, model: Any) -> Found:
    """Compute objective and predictions by a model of the rows of a case."""
    objective = model.maximum_log_likelihood_objective(*batch_of(case, model))
    numbers = (objective, *model.predict_f(tf.constant(case.Xnew)))
    return Found(*(each.numpy() for each in numbers))


def _possible(model: str) -> list[str]:
    """Return the likelihoods that a model takes."""
    if model in _GAUSSIAN:
        return ["Gaussian"]
    if model == "PEPClassifier":
        return [*BINARY, "robust-max"]
    return [name for name in LIKELIHOODS if model != "TSVGP" or name != "robust-max"]


def drawn(
    seed: int,
    rng: Rng,
    models: Sequence[str] = MODELS,
    likelihoods: Sequence[str] = tuple(LIKELIHOODS),
    spread: float = 1.0,
) -> Case:
    """
    Draw a case.

    :param spread: of parameters, on a logarithmic scale.
    """
    model = models[rng.integers(len(models))]
    likelihood = str(rng.choice([name for name in _possible(model) if name in likelihoods]))
    N = int(rng.integers(1, 30)) + 1
    M = int(rng.integers(1, 7))
    D = int(rng.integers(1, 4))
    X, Z, Xnew = (rng.normal(size=(rows, D)) for rows in (N, M, 5))
    variance = 10.0 ** (spread * rng.uniform(-2.0, 2.0))
    lengthscale = 10.0 ** (spread * rng.uniform(-1.0, 1.0))
    f = np.sin(2.0 * X[:, :1]) * np.sqrt(variance) + 0.3 * rng.normal(size=(N, 1))
    observed: dict[str, Callable[[], AnyNDArray]] = {
        "Probit": lambda: f > 0.0,
        "Logit": lambda: f > 0.0,
        "robust-max": lambda: rng.integers(0, 3, size=(N, 1)),
        "Poisson": lambda: rng.poisson(np.exp(np.clip(f, -3.0, 2.0))),
    }
    Y = observed.get(likelihood, lambda: f)().astype(float)
    C = 3 if likelihood == "robust-max" else 1
    q = 0.5 * rng.normal(size=(M, C)), np.tril(0.2 * rng.normal(size=(C, M, M))) + np.eye(M)
    alpha = float(rng.choice([0.0, 0.01, 0.3, 0.5, 1.0]))
    noise = 10.0 ** (spread * rng.uniform(-4.0, 1.0))
    return Case(seed, model, likelihood, X, Y, Z, Xnew, alpha, variance, lengthscale, noise, q)


def converged(model: Any) -> bool:
    """Return whether the sites of a model, if any, have converged."""
    return not isinstance(model, PEP) or model.sites_status.converged
