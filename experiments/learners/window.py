"""GPflow's GPR and SGPR on a sliding window of the last rows."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.models import GPR, SGPR

from experiments.datasets import Floats
from experiments.learners.learner import Learner, Train

WindowModel = GPR | SGPR


def _resizable(values: Floats) -> tf.Variable:
    """Return a variable whose number of rows may change."""
    return tf.Variable(values, trainable=False, shape=[None, values.shape[1]])


class SlidingWindow(Learner):
    """
    A model of the last rows; its inducing points, if any, are chosen again from the window after
    every batch.
    """

    def __init__(
        self,
        build: Callable[..., WindowModel],
        train: Train,
        X: Floats,
        Y: Floats,
        *,
        iterations: int,
        window: int,
    ):
        """
        :param build: function from the data, which are variables, to the model.
        :param window: number of rows.
        """
        self._window, self._rows = window, (_resizable(X[-window:]), _resizable(Y[-window:]))
        super().__init__(build(self._rows), train, iterations)

    def _take(self, X: Floats, Y: Floats) -> None:
        """Replace the oldest rows by the batch."""
        for variable, new in zip(self._rows, (X, Y), strict=True):
            variable.assign(np.concatenate([variable.numpy(), new])[-self._window :])
        if isinstance(self.model, SGPR):
            rows, M = self._rows[0].numpy(), len(self.inducing_points)
            self.model.inducing_variable.Z.assign(
                rows[np.linspace(0, len(rows) - 1, M).astype(int)]
            )

    @property
    def carried(self) -> int:
        """Return the bytes of the window."""
        return sum(variable.numpy().nbytes for variable in self._rows)
