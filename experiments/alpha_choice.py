"""
Compare the alpha that `gpflow_pep.select_alpha` chooses from training rows with the best alpha on
held-out rows.

    python -m experiments.alpha_choice with dataset=boston folds=5

`select_alpha` scores PEPR for each alpha on the training rows, by leave-one-out or
cross-validation. A model of all training rows is scored on the test rows. Protocol A1 of
`experiments.papers` runs it.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from functools import partial
from typing import Any

import numpy as np
from gpflow.base import RegressionData

from experiments.ingredients.data import data, load
from experiments.ingredients.initialization import cluster_centers
from experiments.ingredients.kernel import initial_kernel
from experiments.recording.experiment import RecordedExperiment
from gpflow_pep import PEPR, select_alpha
from gpflow_pep.training import fit, uninterrupted

ex = RecordedExperiment("alpha_choice", ingredients=[data])


@ex.config
def _config() -> None:
    # powers to choose from
    alphas = [0.0, 0.5, 1.0]

    # folds of cross-validation; None: leave-one-out
    folds = 5

    # number of inducing points
    M = 50

    # iterations of L-BFGS, at most
    maxiter = 100


def model_of(data: RegressionData, alpha: Any, M: int) -> PEPR:
    """Return PEPR before training; `alpha`: a power, or one for each row."""
    X, Y = (np.asarray(values) for values in data)
    Z = cluster_centers(X, M, 0)
    return PEPR((X, Y), initial_kernel(X), Z, alpha=alpha, noise_variance=0.1, max_jitter=1e-3)


@ex.automain
def alpha_choice(alphas: list[float], folds: int | None, M: int, maxiter: int) -> dict[str, Any]:
    """
    Return the mean log densities of the selection and of held-out rows for each alpha, in nats a
    row.
    """
    dataset = load()
    rows = dataset.X_train, dataset.Y_train

    def train(model: PEPR) -> None:
        uninterrupted(fit(model, max_iterations=maxiter))

    def held_out(alpha: float) -> float:
        model = model_of(rows, alpha, M)
        train(model)
        return float(np.mean(model.predict_log_density((dataset.X_test, dataset.Y_test))))

    selection = select_alpha(partial(model_of, M=M), rows, alphas, folds=folds, train=train)
    return {
        "alphas": list(alphas),
        "selection": [float(score) for score in selection.scores],
        "held_out": [held_out(alpha) for alpha in alphas],
    }
