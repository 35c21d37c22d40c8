"""The streaming models of gpflow_pep as learners."""

import warnings
from collections.abc import Callable

import numpy as np

from experiments.initialisation import Floats
from experiments.learners.learner import in_chunks, predictions
from experiments.learners.steps import Steps
from gpflow_pep import PEPClassifier, StreamingSGPR, StreamState
from gpflow_pep.training import fit


def carried_bytes(state: StreamState) -> int:
    """Of all that a stream carries but the batch itself, and the sites that are its."""
    kept = [array for name, array in state.arrays.items() if not name.startswith(("data.", "sites."))]
    return sum(array.nbytes for array in kept)


class OnlineRegression:
    """StreamingSGPR: absorbs its posterior, takes the batch, and is trained by a few steps."""

    def __init__(self, model: StreamingSGPR, make_steps: Callable[[StreamingSGPR], Steps], moved_share: float):
        """
        :param moved_share: of the inducing points, which may go to inputs of a new batch before it is trained.
        """
        self.model, self._steps, self._moved_share = model, make_steps(model), moved_share

    def begin(self, evaluations: int) -> None:
        """Train on the first batch."""
        self._steps(evaluations)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self.model.update((X, Y), moved_share=self._moved_share)
        self._steps()

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the observations at X."""
        return predictions(self.model, X)

    @property
    def inducing_points(self) -> Floats:
        """Where they are."""
        return np.asarray(self.model.inducing_variable.Z)

    @property
    def carried(self) -> int:
        """Bytes of the state without the batch."""
        return carried_bytes(self.model.state)


class OnlineClassification:
    """PEPClassifier: absorbs its posterior, takes the batch, and is trained at converged sites."""

    def __init__(self, model: PEPClassifier, evaluations: int, moved_share: float):
        """
        :param evaluations: iterations of L-BFGS after a batch, at most.
        :param moved_share: of the inducing points, which may go to inputs of a new batch before it is trained.
        """
        self.model, self._evaluations, self._moved_share = model, evaluations, moved_share

    def begin(self, evaluations: int) -> None:
        """Train on the first batch."""
        fit(self.model, max_iterations=evaluations)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self.model.update((X, Y), moved_share=self._moved_share)
        fit(self.model, max_iterations=self._evaluations)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """The probability of label 1 at X, and its variance."""
        with warnings.catch_warnings():  # sites that have not quite converged
            warnings.filterwarnings("ignore", "hyperparameters, data or alpha have changed")
            return in_chunks(self.model.predict_y, X)

    @property
    def inducing_points(self) -> Floats:
        """Where they are."""
        return np.asarray(self.model.inducing_variable.Z)

    @property
    def carried(self) -> int:
        """Bytes of the state without the batch."""
        return carried_bytes(self.model.state)
