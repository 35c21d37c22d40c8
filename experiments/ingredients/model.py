"""The model ingredient, ``gp``: a GP regression model, sparse or exact, at its initial parameters."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gpflow
import numpy as np
from gpflow.inducing_variables import InducingPoints
from gpflow.models import GPRFITC, SGPR, SVGP, GPModel

from experiments.datasets import Floats
from experiments.datasets.sources import Rows
from experiments.ingredients.exact import ExactGPR
from experiments.ingredients.initialization import cluster_centers
from experiments.ingredients.kernel import kernel_of
from experiments.recording.experiment import ingredient_of
from gpflow_pep import BTSGPR, BTSVGP, PEPR, TSGPR, TSVGP
from gpflow_pep.inducing import greedy_variance, neighbor_blocks, uniform

gp = ingredient_of("gp")

MODELS = ("GPR", "SGPR", "GPRFITC", "PEPR", "TPEP", "TSGPR", "BTSGPR", "SVGP", "TSVGP", "BTSVGP")
POWERED = ("PEPR", "TPEP")
"""Models that have an alpha."""

_STOCHASTIC = ("SVGP", "TSVGP", "BTSVGP")
_LOWER_BOUNDS = ("SGPR", "TSGPR", "BTSGPR", *_STOCHASTIC)


@gp.config
def _config() -> None:
    # GPR, SGPR, GPRFITC, PEPR, TPEP (learned scale), TSGPR, BTSGPR; with minibatches and Adam SVGP, TSVGP, BTSVGP
    model = "PEPR"

    # the power of PEPR and TPEP, from 0 (variational) to 1 (FITC; with blocks PITC)
    alpha = 0.5

    # scale m of the structured conditional m D: fixed in PEPR, the initial value in TPEP
    scale = 1.0

    # rows per block; None: single rows (PEPR, TPEP). BTSGPR needs blocks
    block_size = 20 if model == "BTSGPR" else None

    # blocks of neighbors (neighboring inputs), order (consecutive rows; max_train shuffles them) or random rows
    blocks = "neighbors"

    # number of inducing points (not GPR)
    M = 50

    # initial inducing points: k-means (centers of the training inputs), uniform or greedy (inputs)
    points = "k-means"

    # train inducing points
    train_inducing = True

    # initial noise variance
    noise_variance = 0.1

    # gpflow_pep's models: largest jitter of Kuu if it cannot be factorized; None: raise an error
    max_jitter = None


_stationary_kernel = kernel_of(gp)


def title(config: Mapping[str, Any]) -> str:
    """Return the model's name in tables and figures for a ``gp`` configuration."""
    kind = {"neighbors": "", "order": " in order", "random": " at random"}[config["blocks"]]
    blocks = "" if config["block_size"] is None else f", blocks of {config['block_size']}{kind}"
    names = {
        "GPR": "exact GP",
        "GPRFITC": "FITC (GPflow)",
        "PEPR": f"PEP α={config['alpha']:g}{blocks}",
        "TPEP": f"T-PEP α={config['alpha']:g}{blocks}",
        "TSGPR": "T-SGPR",
        "BTSGPR": f"BT-SGPR{blocks}",
        "TSVGP": "T-SVGP",
        "BTSVGP": "BT-SVGP",
    }
    return names.get(config["model"], config["model"])


def objective_kind(model: str) -> str:
    """Return the kind of the model's objective."""
    if model == "GPR":
        return "log evidence"
    return "lower bound" if model in _LOWER_BOUNDS else "approximate log evidence"


@gp.capture
def build(
    X: Floats,
    Y: Floats,
    model: str,
    alpha: float,
    scale: float,
    train_inducing: bool,
    noise_variance: float,
    max_jitter: float | None,
    _seed: int,
) -> GPModel:
    """Build the model of the configuration for inputs X [N, D] and targets Y [N, 1]."""
    labels = _block_labels(X, seed=_seed)
    pepr = partial(PEPR, alpha=alpha, blocks=labels, max_jitter=max_jitter)
    constructors: dict[str, Callable[..., GPModel]] = {
        "SGPR": SGPR,
        "GPRFITC": GPRFITC,
        "PEPR": partial(pepr, scale=scale),
        "TPEP": partial(pepr, scale=gpflow.Parameter(scale, transform=gpflow.utilities.positive())),
        "TSGPR": partial(TSGPR, max_jitter=max_jitter),
        "BTSGPR": partial(BTSGPR, blocks=labels, max_jitter=max_jitter),
        "SVGP": SVGP,
        "TSVGP": TSVGP,
        "BTSVGP": BTSVGP,
    }
    if model not in MODELS:
        raise ValueError(f"model is {model!r}; accepted are {', '.join(MODELS)}.")
    covariance = _stationary_kernel(X)
    if model == "GPR":
        return ExactGPR((X, Y), covariance, noise_variance=noise_variance)
    Z = InducingPoints(_initial_points(X, covariance, _seed))
    gpflow.set_trainable(Z, train_inducing)
    if model in _STOCHASTIC:
        return constructors[model](
            covariance, gpflow.likelihoods.Gaussian(noise_variance), Z, num_data=len(X)
        )
    return constructors[model]((X, Y), covariance, Z, noise_variance=noise_variance)


@gp.capture
def _initial_points(
    X: Floats, covariance: gpflow.kernels.Kernel, seed: int, M: int, points: str
) -> Floats:
    """Return inducing points [M, D]."""
    if points == "k-means":
        return cluster_centers(X, M, seed)
    if points == "uniform":
        return uniform(X, M, seed=seed)
    if points == "greedy":
        return greedy_variance(covariance, X, M)
    raise ValueError(f"points is {points!r}; accepted are k-means, uniform, greedy.")


@gp.capture
def _block_labels(X: Floats, block_size: int | None, blocks: str, seed: int) -> Rows | None:
    """Return labels [N] of blocks of nearly equal sizes; None without blocks."""
    if block_size is None:
        return None
    labels = neighbor_blocks(X, block_size)
    if blocks == "neighbors":
        return labels
    if blocks == "order":
        return np.sort(labels)
    if blocks == "random":
        return np.random.RandomState(seed).permutation(labels)
    raise ValueError(f"blocks is {blocks!r}; accepted are neighbors, order, random.")
