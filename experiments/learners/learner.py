"""The base of learners: they take batches, predict, and carry a state from batch to batch."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np

from experiments.datasets import Floats
from experiments.recording.predictions import inducing_points

STEPS_OF_ADAM = 5  # per iteration of L-BFGS: 100 a batch, as published

Train = Callable[..., object]
"""Train a model for a largest number of iterations, on data if it does not hold them."""

_CHUNK = 2000  # rows per prediction


class Learner:
    """
    A model that learns from batches; by default it holds its data and has a posterior for
    regression.
    """

    model: Any
    """The model in its present state."""

    def __init__(
        self,
        model: gpflow.models.GPModel,
        train: Train,
        iterations: int,
        *data: tuple[Floats, Floats],
    ):
        """
        :param iterations: largest number on later batches.
        :param data: the first batch, if the model does not hold its batch.
        """
        self.model, self._train, self._iterations = model, train, iterations
        self.data = data

    def begin(self, iterations: int) -> None:
        """Train on the present batch."""
        self._train(self.model, iterations, *self.data)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch [n, D] and [n, 1], and train."""
        if self.data:
            self.data = ((X, Y),)
        self._take(X, Y)
        self.begin(self._iterations)

    def _take(self, X: Floats, Y: Floats) -> None:
        raise NotImplementedError

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """
        Return mean and variance of the observations at X, [n, 1] each; for labels of the
        probability of 1.
        """
        posterior = self.model.posterior()  # one factorization
        likelihood = self.model.likelihood
        parts = [
            likelihood.predict_mean_and_var(rows, *posterior.predict_f(rows))
            for rows in np.split(X, range(_CHUNK, len(X), _CHUNK))
        ]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return mean, variance

    def objective(self) -> float:
        """Return the objective of the last batch, or of the window, in nats."""
        return float(self.model.maximum_log_likelihood_objective(*self.data))

    @property
    def inducing_points(self) -> Floats:
        """Return the inducing points [M, D]; [0, D] if the learner has none."""
        return inducing_points(self.model)

    @property
    def carried(self) -> int:
        """Return the bytes kept from batch to batch."""
        raise NotImplementedError
