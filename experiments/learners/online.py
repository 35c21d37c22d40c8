"""The streaming models of gpflow_pep as learners."""

from typing import Any

from experiments.datasets import Floats
from experiments.learners.learner import Learner, Train
from gpflow_pep import StreamingSVGP


class Online(Learner):
    """StreamingSGPR, or StreamingPEP for labels, updated and trained with each batch."""

    def __init__(self, model: Any, train: Train, *, iterations: int, fraction_to_move: float):
        """
        :param fraction_to_move: fraction of inducing points that may move to inputs of a new batch
            before training.
        """
        super().__init__(model, train, iterations)
        self._fraction_to_move = fraction_to_move

    def _take(self, X: Floats, Y: Floats) -> None:
        self.model.update((X, Y), fraction_to_move=self._fraction_to_move)

    @property
    def carried(self) -> int:
        """Return the bytes of the state, without the batch and its sites."""
        arrays = self.model.state.arrays.items()
        kept = (array for name, array in arrays if not name.startswith(("data.", "sites.")))
        return sum(array.nbytes for array in kept if array.dtype.kind != "U")


class OnlineMinibatches(Online):
    """StreamingSVGP for numbers or labels, trained by Adam and natural gradients of q(u)."""

    def __init__(
        self, model: StreamingSVGP, data: tuple[Floats, Floats], train: Train, **options: Any
    ):
        """
        :param data: the first batch.
        """
        super().__init__(model, train, **options)
        self.data = (data,)

    def _take(self, X: Floats, Y: Floats) -> None:
        self.data = ((X, Y),)
        super()._take(X, Y)
