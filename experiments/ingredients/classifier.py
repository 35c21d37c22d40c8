"""The model ingredient of classification, ``gp``: a sparse or dense GP classifier at its initial parameters."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gpflow
from sacred import Ingredient

from experiments.ingredients.model import stationary_kernel
from experiments.initialisation import Floats, cluster_centres
from experiments.recording import SAVE_GIT_INFO
from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Logit, Probit

gp = Ingredient("gp", save_git_info=SAVE_GIT_INFO)

MODELS = ("PEP", "QP", "SVGP")
_LIKELIHOODS = {"probit": Probit, "logit": Logit}


@gp.config
def _config() -> None:
    # PEP (power EP), QP (quantile propagation: the same sites, projected in Wasserstein distance) or SVGP (GPflow's)
    model = "PEP"

    # the power of PEP and QP, from 0 (variational, as SVGP) to 1 (EP)
    alpha = 0.5

    # number of inducing points, which start at k-means centres of the training inputs; None: at all inputs (dense)
    M = 50

    # whether inducing points are trained
    train_inducing = M is not None

    # probit or logit
    likelihood = "probit"

    # class in gpflow.kernels with one lengthscale per input: SquaredExponential, Matern52, Matern32, ...
    kernel = "SquaredExponential"

    # where all lengthscales start; None: at the median distance between training inputs
    lengthscales = None

    # where the kernel's variance starts
    kernel_variance = 1.0

    # PEP and QP: raise the jitter of Kuu up to this where it cannot be factorised; None: that is an error
    max_jitter = None


def classifier_title(config: Mapping[str, Any]) -> str:
    """What tables and figures call the model of a ``gp`` configuration."""
    name = str(config["model"])
    power = "" if name == "SVGP" else f" α={config['alpha']:g}"
    return f"{name}{power}{', dense' if config['M'] is None else ''}"


def is_lower_bound(config: Mapping[str, Any]) -> bool:
    """Whether the model's objective is a lower bound of the log evidence, once sites have converged."""
    return bool(config["model"] == "SVGP" or config["alpha"] == 0)


@gp.capture
def build_classifier(
    X: Floats,
    Y: Floats,
    model: str,
    alpha: float,
    M: int | None,
    train_inducing: bool,
    likelihood: str,
    kernel: str,
    lengthscales: float | None,
    kernel_variance: float,
    max_jitter: float | None,
    _seed: int,
) -> gpflow.models.GPModel:
    """The model that the configuration asks for, for inputs X [N, D] and labels Y [N, 1]."""
    if likelihood not in _LIKELIHOODS:
        raise ValueError(f"likelihood is {likelihood!r}; accepted are {', '.join(_LIKELIHOODS)}.")
    pep = partial(PEPClassifier, (X, Y), alpha=alpha, max_jitter=max_jitter)
    constructors: dict[str, Callable[..., gpflow.models.GPModel]] = {
        "PEP": partial(pep, projection="kl"),
        "QP": partial(pep, projection="wasserstein"),
        "SVGP": partial(gpflow.models.SVGP, num_data=len(X)),
    }
    if model not in constructors:
        raise ValueError(f"model is {model!r}; accepted are {', '.join(MODELS)}.")
    built = constructors[model](
        kernel=stationary_kernel(X, kernel, lengthscales, kernel_variance, _seed),
        likelihood=_LIKELIHOODS[likelihood](),
        inducing_variable=cluster_centres(X, len(X) if M is None else M, _seed),  # [M, D]
    )
    gpflow.set_trainable(built.inducing_variable, train_inducing)
    return built
