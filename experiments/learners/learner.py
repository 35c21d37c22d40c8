"""The interface of learners: take batches, predict, and carry a state from batch to batch."""

from collections.abc import Callable
from typing import Any, Protocol

import gpflow
import numpy as np

from experiments.ingredients.initialization import Floats

STEPS_OF_ADAM = 5  # per iteration of L-BFGS: 100 a batch, as published

Train = Callable[..., object]
"""Train a model for a largest number of iterations, on data if it does not hold them."""

_CHUNK = 2000  # rows per prediction


class Learner(Protocol):
    """A model that learns from batches."""

    model: gpflow.models.GPModel
    """The model in its present state."""

    def begin(self, iterations: int) -> None:
        """Train on the first batch, for at most `iterations`."""

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch [n, D] and [n, 1], and train."""

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the observations at X, [n, 1] each; for labels of the probability of 1."""

    def objective(self) -> float:
        """Return the objective of the last batch, or of the window, in nats."""

    @property
    def inducing_points(self) -> Floats:
        """Return the inducing points [M, D]; [0, D] if the learner has none."""

    @property
    def carried(self) -> int:
        """Return the bytes kept from batch to batch."""


def in_chunks(predict: Callable[[Floats], Any], X: Floats) -> tuple[Floats, Floats]:
    """Predict two arrays, in chunks of rows."""
    parts = [predict(X[start : start + _CHUNK]) for start in range(0, len(X), _CHUNK)]
    mean, variance = (np.concatenate([np.asarray(part[k]) for part in parts]) for k in (0, 1))
    return mean, variance


def predictions(model: gpflow.models.GPModel, X: Floats) -> tuple[Floats, Floats]:
    """Predict by a regression model, with one factorization."""
    posterior = model.posterior()
    return in_chunks(lambda rows: model.likelihood.predict_mean_and_var(rows, *posterior.predict_f(rows)), X)
