"""The streaming models of gpflow_pep as learners."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from typing_extensions import override

from experiments.ingredients.initialization import Floats
from experiments.learners.learner import in_chunks, predictions
from experiments.learners.steps import Steps
from gpflow_pep import StreamingPEP, StreamingSGPR, StreamState
from gpflow_pep.training import fit


def carried_bytes(state: StreamState) -> int:
    """Of all numbers that a stream carries but the batch itself, and the sites that are its."""
    kept = (array for name, array in state.arrays.items() if not name.startswith(("data.", "sites.")))
    return sum(array.nbytes for array in kept if array.dtype.kind != "U")


_Model = TypeVar("_Model", StreamingSGPR, StreamingPEP)


class _Online(Generic[_Model]):
    """A model that absorbs its posterior, takes the batch, and is trained."""

    def __init__(self, model: _Model, fraction_to_move: float):
        """
        :param fraction_to_move: of the inducing points, which may go to inputs of a new batch before it is trained.
        """
        self.model: _Model = model
        self._fraction_to_move = fraction_to_move

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self.model.update((X, Y), fraction_to_move=self._fraction_to_move)
        self._train()

    @abstractmethod
    def _train(self) -> None:
        """Train on a batch that is not the first."""

    @property
    def inducing_points(self) -> Floats:
        """Where they are."""
        return np.asarray(self.model.inducing_variable.Z)

    @property
    def carried(self) -> int:
        """Bytes of the state without the batch."""
        return carried_bytes(self.model.state)


class OnlineRegression(_Online[StreamingSGPR]):
    """StreamingSGPR, trained by a few steps."""

    def __init__(self, model: StreamingSGPR, make_steps: Callable[[StreamingSGPR], Steps], fraction_to_move: float):
        super().__init__(model, fraction_to_move)
        self._steps = make_steps(model)

    def begin(self, evaluations: int) -> None:
        """Train on the first batch."""
        self._steps(evaluations)

    @override
    def _train(self) -> None:
        self._steps()

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the observations at X."""
        return predictions(self.model, X)


class OnlineClassification(_Online[StreamingPEP]):
    """StreamingPEP of labels, trained at converged sites."""

    def __init__(self, model: StreamingPEP, evaluations: int, fraction_to_move: float):
        """
        :param evaluations: iterations of L-BFGS after a batch, at most.
        """
        super().__init__(model, fraction_to_move)
        self._evaluations = evaluations

    def begin(self, evaluations: int) -> None:
        """Train on the first batch."""
        fit(self.model, max_iterations=evaluations)

    @override
    def _train(self) -> None:
        fit(self.model, max_iterations=self._evaluations)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """The probability of label 1 at X, and its variance."""
        return in_chunks(self.model.predict_y, X)
