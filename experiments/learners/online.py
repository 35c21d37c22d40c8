"""The streaming models of gpflow_pep as learners."""

from typing import Any, Generic, TypeVar

import numpy as np

from experiments.ingredients.initialization import Floats
from experiments.learners.learner import Train, in_chunks, predictions
from gpflow_pep import StreamingPEP, StreamingSGPR, StreamingSVGP, StreamState


def carried_bytes(state: StreamState) -> int:
    """Return the bytes that a stream carries, without the batch and its sites."""
    kept = (array for name, array in state.arrays.items() if not name.startswith(("data.", "sites.")))
    return sum(array.nbytes for array in kept if array.dtype.kind != "U")


_Model = TypeVar("_Model", StreamingSGPR, StreamingPEP, StreamingSVGP)


class _Online(Generic[_Model]):
    """A streaming model, updated and trained with each batch."""

    def __init__(self, model: _Model, train: Train, *, iterations: int, fraction_to_move: float):
        """
        :param iterations: largest number on later batches.
        :param fraction_to_move: fraction of inducing points that may move to inputs of a new batch before training.
        """
        self.model: _Model = model
        self._train, self._iterations, self._fraction_to_move = train, iterations, fraction_to_move

    def begin(self, iterations: int) -> None:
        """Train on the first batch."""
        self._train(self.model, iterations)

    def objective(self) -> float:
        """Return the objective of the last batch in nats."""
        model: Any = self.model
        return float(model.maximum_log_likelihood_objective())

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self.model.update((X, Y), fraction_to_move=self._fraction_to_move)
        self.begin(self._iterations)

    @property
    def inducing_points(self) -> Floats:
        """Return the inducing points [M, D]."""
        return np.asarray(self.model.inducing_variable.Z)

    @property
    def carried(self) -> int:
        """Return the bytes of the state without the batch."""
        return carried_bytes(self.model.state)


class OnlineRegression(_Online[StreamingSGPR]):
    """StreamingSGPR."""

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the observations at X."""
        return predictions(self.model, X)


class OnlineClassification(_Online[StreamingPEP]):
    """StreamingPEP for labels, trained at converged sites."""

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the probability of label 1 at X, and its variance."""
        return in_chunks(self.model.predict_y, X)


class OnlineMinibatches(_Online[StreamingSVGP]):
    """StreamingSVGP, trained by Adam and natural gradients of q(u)."""

    def __init__(self, model: StreamingSVGP, data: tuple[Floats, Floats], train: Train, **options: Any):
        """
        :param data: the first batch.
        """
        super().__init__(model, train, **options)
        self._data = data

    def begin(self, iterations: int) -> None:
        """Train on the present batch."""
        self._train(self.model, iterations, self._data)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self._data = X, Y
        super().absorb(X, Y)

    def objective(self) -> float:
        """Return the bound of the last batch in nats."""
        return float(self.model.maximum_log_likelihood_objective(self._data))

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the observations at X; for labels of the probability of 1."""
        return in_chunks(self.model.predict_y, X)
