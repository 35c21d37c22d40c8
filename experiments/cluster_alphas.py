"""
Choose a power for each cluster of rows by leave-one-out densities, and compare it with the best
power of all rows.

    python -m experiments.cluster_alphas with dataset=yacht clusters=3

The best power of all rows comes first. Then each cluster in turn takes the power of the largest
density, the others keep theirs. Every candidate is a new PEPR, with a power for each row. Protocol
A2 of `experiments.papers` runs it.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from functools import cache
from typing import Any

import numpy as np
from scipy.cluster.vq import vq

from experiments.alpha_choice import model_of
from experiments.ingredients.data import data, load
from experiments.ingredients.initialization import cluster_centers
from experiments.recording.experiment import RecordedExperiment
from gpflow_pep.training import fit, uninterrupted

ex = RecordedExperiment("cluster_alphas", ingredients=[data])


@ex.config
def _config() -> None:
    # powers to choose from
    alphas = [0.0, 0.5, 1.0]

    # number of clusters of rows, by k-means
    clusters = 3

    # number of inducing points
    M = 20

    # iterations of L-BFGS, at most
    maxiter = 60


@ex.automain
def cluster_alphas(alphas: list[float], clusters: int, M: int, maxiter: int) -> dict[str, Any]:
    """Return the powers, and mean leave-one-out and held-out log densities, in nats a row."""
    dataset = load()
    X, Y = dataset.X_train, dataset.Y_train
    cluster, _ = vq(X, cluster_centers(X, clusters, 0))  # [N]

    @cache
    def densities(powers: tuple[float, ...]) -> tuple[float, float]:
        model = model_of((X, Y), np.array(powers)[cluster], M)
        uninterrupted(fit(model, max_iterations=maxiter))
        held_out = model.predict_log_density((dataset.X_test, dataset.Y_test))
        return float(np.mean(model.loo_log_predictive_density())), float(np.mean(held_out))

    single = max(((alpha,) * clusters for alpha in alphas), key=densities)
    powers = single
    for number in range(clusters):
        before, after = powers[:number], powers[number + 1 :]
        powers = max(((*before, alpha, *after) for alpha in alphas), key=densities)
    single_loo, single_held_out = densities(single)
    loo, held_out = densities(powers)
    return {
        "single": single[0],
        "single_loo": single_loo,
        "single_held_out": single_held_out,
        "powers": list(powers),
        "loo": loo,
        "held_out": held_out,
    }
