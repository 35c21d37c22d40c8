"""The model ingredient of classification, ``gp``: a sparse or dense GP classifier at its initial parameters.

Two classes have one latent function. With more, each class has one; they share kernel and inducing points, or not.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Mapping
from functools import partial
from typing import Any

import gpflow
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.models import SVGP, GPModel

import gpflow_pep
from experiments.datasets import Floats
from experiments.ingredients.dense_ep import DenseEP
from experiments.ingredients.initialization import cluster_centers
from experiments.ingredients.kernel import kernel_of
from experiments.ingredients.label_regression import LabelRegression
from experiments.ingredients.monte_carlo import MonteCarlo
from experiments.recording.experiment import ingredient_of
from gpflow_pep import APEP, ARPEP, RPAPEP, MultiClassRobustMax, PEPClassifier
from gpflow_pep.likelihoods import Logit, Probit

gp = ingredient_of("gp")

MODELS = ("PEP", "QP", "SVGP", "APEP", "ARPEP", "RPAPEP", "LABELS", "MCMC", "EP")
POWERED = ("PEP", "QP", "APEP", "ARPEP", "RPAPEP", "LABELS")
"""Models that have an alpha."""

_BINARY = {"probit": Probit, "logit": Logit}


@gp.config
def _config() -> None:
    # PEP, EP (dense), QP (quantile propagation), SVGP and MCMC (GPflow's), APEP, ARPEP, RPAPEP, LABELS (one-hot Y)
    model = "PEP"

    # the power of all but SVGP, MCMC and EP, from 0 (variational, as SVGP) to 1 (EP)
    alpha = 0.5

    # number of inducing points, initially k-means centers of the training inputs; None: all inputs (dense)
    M = 50

    # more than two classes: True if each has its own kernel and inducing points, False if they share both
    separate = True

    # train inducing points
    train_inducing = M is not None

    # probit or logit for two classes, robust-max for more; None: probit or robust-max
    likelihood = None

    # robust-max: probability of a label drawn at random, and True to train it
    epsilon = 1e-3
    train_epsilon = True

    # variance of a White kernel that is added; None: no White kernel
    white = None

    # train the kernel
    train_kernel = True

    # give the trained parameters of the kernel weak priors (gpflow_pep.weak_priors)
    weak_priors = False

    # PEP and QP: largest number of sweeps per evaluation of the evidence; 1: one update a step
    max_sweeps = 1000

    # PEP and QP: largest jitter of Kuu if it cannot be factorized; None: raise an error
    max_jitter = None


_stationary_kernel = kernel_of(gp)


def classifier_title(config: Mapping[str, Any]) -> str:
    """Return the model's name in tables and figures for a ``gp`` configuration."""
    name = config["model"]
    power = "" if name not in POWERED else f" α={config['alpha']:g}"
    return f"{name}{power}{', dense' if config['M'] is None else ''}"


def is_lower_bound(config: Mapping[str, Any]) -> bool:
    """Return True if the objective is a lower bound on the log evidence when sites have converged."""
    return config["model"] == "SVGP" or (config["model"] in POWERED and config["alpha"] == 0)


@gp.capture
def build_classifier(
    X: Floats,
    Y: Floats,
    num_classes: int,
    model: str,
    alpha: float,
    M: int | None,
    separate: bool,
    train_inducing: bool,
    white: float | None,
    train_kernel: bool,
    weak_priors: bool,
    max_sweeps: int,
    max_jitter: float | None,
    _seed: int,
) -> GPModel:
    """Build the model of the configuration for inputs X [N, D] and labels Y [N, 1]."""
    C = 1 if num_classes == 2 else num_classes  # latent functions
    parts = range(C if separate else 1)
    kernels = [_stationary_kernel(X) for _ in parts]
    if white is not None:
        kernels = [kernel + gpflow.kernels.White(white) for kernel in kernels]
    Z = [
        InducingPoints(cluster_centers(X, len(X) if M is None else M, _seed + k)) for k in parts
    ]  # [M, D] each
    pep = partial(PEPClassifier, (X, Y), alpha=alpha, max_sweeps=max_sweeps, max_jitter=max_jitter)
    constructors = {
        "PEP": partial(pep, projection="kl"),
        "QP": partial(pep, projection="wasserstein"),
        "SVGP": partial(SVGP, num_data=len(X), num_latent_gps=C),
        "MCMC": partial(MonteCarlo, (X, Y), num_latent_gps=C),
        "EP": partial(DenseEP, (X, Y)),
        **{
            tied.__name__: partial(tied, alpha=alpha, num_data=len(X), num_latent_gps=C)
            for tied in (APEP, ARPEP, RPAPEP)
        },
    }
    if model not in MODELS:
        raise ValueError(f"model is {model!r}; accepted are {', '.join(MODELS)}.")
    if model == "LABELS":
        built = LabelRegression(
            (X, Y),
            num_classes,
            kernels[0],
            Z[0],
            alpha=alpha,
            noise_variance=0.1,
            max_jitter=max_jitter,
        )
    else:
        built = constructors[model](
            kernel=kernels[0] if len(parts) == 1 else gpflow.kernels.SeparateIndependent(kernels),
            likelihood=_likelihood(num_classes=num_classes),
            inducing_variable=Z[0] if len(parts) == 1 else SeparateIndependentInducingVariables(Z),
        )
    gpflow.set_trainable(built.inducing_variable, train_inducing)
    gpflow.set_trainable(built.kernel, train_kernel)
    if weak_priors:
        stores_data = isinstance(getattr(built, "data", None), tuple)
        gpflow_pep.weak_priors(built, None if stores_data else (X, Y))
    return built


@gp.capture
def _likelihood(
    likelihood: str | None, num_classes: int, epsilon: float, train_epsilon: bool
) -> gpflow.likelihoods.Likelihood:
    accepted = [*_BINARY] if num_classes == 2 else ["robust-max"]
    name = accepted[0] if likelihood is None else likelihood
    if name not in accepted:
        raise ValueError(
            f"likelihood is {name!r}; accepted are {', '.join(accepted)} for {num_classes} classes."
        )
    if num_classes == 2:
        return _BINARY[name]()
    robust_max = MultiClassRobustMax(num_classes, epsilon)
    gpflow.set_trainable(robust_max, train_epsilon)
    return robust_max
