"""The streaming models of gpflow_pep as learners."""

from typing import Any

from experiments.datasets import Floats
from experiments.learners.learner import Learner


class Online(Learner):
    """
    StreamingSGPR, or StreamingPEP for labels, updated and trained with each batch; or
    StreamingSVGP, which does not hold its batch.
    """

    def __init__(self, *parts: Any, fraction_to_move: float):
        """
        :param fraction_to_move: fraction of inducing points that may move to inputs of a new batch
            before training.
        """
        super().__init__(*parts)
        self._fraction_to_move = fraction_to_move

    def _take(self, X: Floats, Y: Floats) -> None:
        self.model.update((X, Y), fraction_to_move=self._fraction_to_move)

    @property
    def carried(self) -> int:
        """Return the bytes of the state, without the batch and its sites."""
        arrays = self.model.state.arrays.items()
        kept = (array for name, array in arrays if not name.startswith(("data.", "sites.")))
        return sum(array.nbytes for array in kept if array.dtype.kind != "U")
