"""The streaming models of gpflow_pep as learners."""

from typing import Generic, TypeVar

import numpy as np

from experiments.ingredients.initialization import Floats
from experiments.learners.learner import Train, in_chunks, predictions
from gpflow_pep import StreamingPEP, StreamingSGPR, StreamState


def carried_bytes(state: StreamState) -> int:
    """Of all numbers that a stream carries but the batch itself, and the sites that are its."""
    kept = (array for name, array in state.arrays.items() if not name.startswith(("data.", "sites.")))
    return sum(array.nbytes for array in kept if array.dtype.kind != "U")


_Model = TypeVar("_Model", StreamingSGPR, StreamingPEP)


class _Online(Generic[_Model]):
    """A model that absorbs its posterior, takes the batch, and is trained."""

    def __init__(self, model: _Model, train: Train, *, iterations: int, fraction_to_move: float):
        """
        :param iterations: on a batch that is not the first, at most.
        :param fraction_to_move: of the inducing points, which may go to inputs of a new batch before it is trained.
        """
        self.model: _Model = model
        self._train, self._iterations, self._fraction_to_move = train, iterations, fraction_to_move

    def begin(self, iterations: int) -> None:
        """Train on the first batch."""
        self._train(self.model, iterations)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self.model.update((X, Y), fraction_to_move=self._fraction_to_move)
        self.begin(self._iterations)

    @property
    def inducing_points(self) -> Floats:
        """Where they are."""
        return np.asarray(self.model.inducing_variable.Z)

    @property
    def carried(self) -> int:
        """Bytes of the state without the batch."""
        return carried_bytes(self.model.state)


class OnlineRegression(_Online[StreamingSGPR]):
    """StreamingSGPR."""

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the observations at X."""
        return predictions(self.model, X)


class OnlineClassification(_Online[StreamingPEP]):
    """StreamingPEP of labels, trained at converged sites."""

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """The probability of label 1 at X, and its variance."""
        return in_chunks(self.model.predict_y, X)
