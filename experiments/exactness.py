"""
Compare a stream at fixed hyperparameters with the model of all rows at once: they are equal.

    python -m experiments.exactness with alpha=0.5 rows=600 batches=6

Online objectives are added up and compared with the objective of all rows, and so are predictions;
with inducing points at all inputs both equal the exact GP's (Bui, Nguyen and Turner 2017). Protocol
T8 of `experiments.papers` runs it.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from typing import Any

import gpflow
import numpy as np

from experiments.datasets import Floats
from experiments.recording.experiment import RecordedExperiment
from gpflow_pep import PEPR, StreamingSGPR

_NOISE = 0.05  # variance
_DENSE_ROWS = 60

ex = RecordedExperiment("exactness", ingredients=[])


@ex.config
def _config() -> None:
    # the power
    alpha = 0.5

    # rows, and batches of them
    rows = 600
    batches = 6

    # compare with the exact GP of 60 rows, with inducing points at all inputs; False: with PEPR, M
    # = 20
    exact = False


def difference(
    at_once: Any, X: Floats, Y: Floats, Z: Floats, alpha: float, num_batches: int
) -> dict[str, float]:
    """
    Compare a stream, with inducing points at Z throughout, with a model of all rows.

    :return: difference of the sum of online objectives (relative), and largest of predictive means
        and variances.
    """
    first, *others = zip(*(np.array_split(rows, num_batches) for rows in (X, Y)), strict=True)
    model = StreamingSGPR(first, kernel(), Z, alpha=alpha, noise_variance=_NOISE)
    total = model.maximum_log_likelihood_objective()
    for batch in others:
        model.update(batch)
        total += model.maximum_log_likelihood_objective()
    objective = at_once.maximum_log_likelihood_objective()
    Xnew = np.linspace(-0.5, 10.5, 200)[:, None]
    differences = np.subtract(model.predict_f(Xnew), at_once.predict_f(Xnew))  # [2, 200, 1]
    mean, variance = np.abs(differences).max(axis=(1, 2)).tolist()
    return {
        "objective": float(abs(total - objective) / abs(objective)),
        "mean": mean,
        "variance": variance,
    }


def kernel() -> gpflow.kernels.Kernel:
    """Return the kernel of all models."""
    return gpflow.kernels.SquaredExponential(lengthscales=0.7)


def noisy_function(number: int) -> tuple[Floats, Floats]:
    """Draw rows of a noisy function of one input, in order."""
    rng = np.random.RandomState(0)
    X = np.sort(rng.uniform(0.0, 10.0, number))[:, None]
    return X, np.sin(2.0 * X) + 0.5 * np.cos(5.0 * X) + np.sqrt(_NOISE) * rng.normal(size=X.shape)


@ex.automain
def exactness(alpha: float, rows: int, batches: int, exact: bool) -> dict[str, float]:
    """Return the largest differences."""
    X, Y = noisy_function(rows)
    if exact:
        few = np.sort(np.random.RandomState(1).permutation(rows)[:_DENSE_ROWS])
        X, Y, Z = X[few], Y[few], X[few]
        at_once = gpflow.models.GPR((X, Y), kernel(), noise_variance=_NOISE)
    else:
        Z = X[np.linspace(0, rows - 1, 20).astype(int)]
        at_once = PEPR((X, Y), kernel(), Z, alpha=alpha, noise_variance=_NOISE)
    return difference(at_once, X, Y, Z, alpha, batches)
