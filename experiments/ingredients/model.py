"""The model ingredient, ``gp``: a sparse GP regression model at its initial parameters."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gpflow
from sacred import Ingredient

from experiments.initialisation import Floats, cluster_centres, median_distance, neighbour_blocks
from experiments.recording import SAVE_GIT_INFO
from gpflow_pep import BTSGPR, PEPR, TSGPR

gp = Ingredient("gp", save_git_info=SAVE_GIT_INFO)

MODELS = ("SGPR", "GPRFITC", "PEPR", "TPEP", "TSGPR", "BTSGPR")
LOWER_BOUNDS = ("SGPR", "TSGPR", "BTSGPR")


@gp.config
def _config() -> None:
    # SGPR, GPRFITC (GPflow's own), PEPR, TPEP (PEPR with a learned scale), TSGPR or BTSGPR
    model = "PEPR"

    # the power of PEPR and TPEP, from 0 (variational) to 1 (FITC; with blocks PITC)
    alpha = 0.5

    # scale m of the structured conditional m D: fixed in PEPR, where learning starts in TPEP
    scale = 1.0

    # rows per block of neighbouring inputs; None: single rows (PEPR, TPEP). BTSGPR needs blocks
    block_size = 20 if model == "BTSGPR" else None

    # number of inducing points; they start at k-means centres of the training inputs
    M = 50

    # class in gpflow.kernels with one lengthscale per input: SquaredExponential, Matern52, Matern32, ...
    kernel = "SquaredExponential"

    # where all lengthscales start; None: at the median distance between training inputs
    lengthscales = None

    # where the kernel's variance starts
    kernel_variance = 1.0

    # where the noise variance starts
    noise_variance = 0.1

    # gpflow_pep's models: raise the jitter of Kuu up to this where it cannot be factorised; None: that is an error
    max_jitter = None


def title(config: Mapping[str, Any]) -> str:
    """What tables and figures call the model of a ``gp`` configuration."""
    blocks = "" if config["block_size"] is None else f", blocks of {config['block_size']}"
    names = {
        "GPRFITC": "FITC (GPflow)",
        "PEPR": f"PEP α={config['alpha']:g}{blocks}",
        "TPEP": f"T-PEP α={config['alpha']:g}{blocks}",
        "TSGPR": "T-SGPR",
        "BTSGPR": f"BT-SGPR{blocks}",
    }
    return names.get(config["model"], str(config["model"]))


@gp.capture
def build(
    X: Floats,
    Y: Floats,
    model: str,
    alpha: float,
    scale: float,
    block_size: int | None,
    M: int,
    kernel: str,
    lengthscales: float | None,
    kernel_variance: float,
    noise_variance: float,
    max_jitter: float | None,
    _seed: int,
) -> gpflow.models.GPModel:
    """The model that the configuration asks for, for inputs X [N, D] and targets Y [N, 1]."""
    blocks = None if block_size is None else neighbour_blocks(X, block_size)
    pepr = partial(PEPR, alpha=alpha, blocks=blocks, max_jitter=max_jitter)
    constructors: dict[str, Callable[..., gpflow.models.GPModel]] = {
        "SGPR": gpflow.models.SGPR,
        "GPRFITC": gpflow.models.GPRFITC,
        "PEPR": partial(pepr, scale=scale),
        "TPEP": partial(pepr, scale=gpflow.Parameter(scale, transform=gpflow.utilities.positive())),
        "TSGPR": partial(TSGPR, max_jitter=max_jitter),
        "BTSGPR": partial(BTSGPR, blocks=blocks, max_jitter=max_jitter),
    }
    if model not in constructors:
        raise ValueError(f"model is {model!r}; accepted are {', '.join(MODELS)}.")
    Z = cluster_centres(X, M, _seed)  # [M, D]
    covariance = stationary_kernel(X, kernel, lengthscales, kernel_variance, _seed)
    return constructors[model]((X, Y), covariance, Z, noise_variance=noise_variance)


def stationary_kernel(
    X: Floats, kernel: str, lengthscales: float | None, kernel_variance: float, seed: int
) -> gpflow.kernels.Kernel:
    """A kernel of gpflow.kernels for inputs X [N, D], with a lengthscale for each of them."""
    constructor: Any = getattr(gpflow.kernels, kernel, None)
    if not (isinstance(constructor, type) and issubclass(constructor, gpflow.kernels.Stationary)):
        raise ValueError(f"kernel is {kernel!r}; a stationary kernel of gpflow.kernels is accepted.")
    start = median_distance(X, seed) if lengthscales is None else lengthscales
    return constructor(variance=kernel_variance, lengthscales=[start] * X.shape[1])
