"""What all learners have in common: they take batches, predict, and carry something from one batch to the next."""

from collections.abc import Callable
from typing import Any, Protocol

import gpflow
import numpy as np

from experiments.ingredients.initialization import Floats

STEPS_OF_ADAM = 5  # in place of an iteration of L-BFGS: 100 a batch, as published

Train = Callable[[gpflow.models.GPModel, int], object]
"""Trains a model that holds its data for a number of iterations, at most."""

_CHUNK = 2000  # rows that are predicted at a time


class Learner(Protocol):
    """Learns from batches."""

    def begin(self, iterations: int) -> None:
        """Train on the first batch, for so many iterations at most."""

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch [n, D] and [n, 1], and train."""

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the observations at X, [n, 1] each; of labels the probability of 1 and its variance."""

    @property
    def inducing_points(self) -> Floats:
        """Where they are, [M, D]; [0, D] of a learner without any."""

    @property
    def carried(self) -> int:
        """Bytes of what is kept from batch to batch."""


def in_chunks(predict: Callable[[Floats], Any], X: Floats) -> tuple[Floats, Floats]:
    """Two arrays of predictions, made of some rows at a time."""
    parts = [predict(X[start : start + _CHUNK]) for start in range(0, len(X), _CHUNK)]
    mean, variance = (np.concatenate([np.asarray(part[k]) for part in parts]) for k in (0, 1))
    return mean, variance


def predictions(model: gpflow.models.GPModel, X: Floats) -> tuple[Floats, Floats]:
    """Of a regression model, whose matrices are factorized once."""
    posterior = model.posterior()
    return in_chunks(lambda rows: model.likelihood.predict_mean_and_var(rows, *posterior.predict_f(rows)), X)
