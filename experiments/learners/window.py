"""GPflow's models of the last rows only: GPR and SGPR on a sliding window."""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf

from experiments.ingredients.initialization import Floats
from experiments.learners.learner import Train, predictions

WindowModel = gpflow.models.GPR | gpflow.models.SGPR


def _resizable(values: Floats) -> tf.Variable:
    """A variable that may be given another number of rows."""
    return tf.Variable(values, trainable=False, shape=[None, values.shape[1]], dtype=gpflow.default_float())


class SlidingWindow:
    """A model of the last rows that have arrived; its inducing points, if any, start anew all over the window."""

    def __init__(
        self,
        build: Callable[[tuple[tf.Variable, tf.Variable]], WindowModel],
        train: Train,
        X: Floats,
        Y: Floats,
        *,
        iterations: int,
        window: int,
    ):
        """
        :param build: the model of these data, which are variables.
        :param iterations: on a batch that is not the first, at most.
        :param window: rows.
        """
        self._train, self._iterations, self._window = train, iterations, window
        self._data = _resizable(X[-window:]), _resizable(Y[-window:])
        self.model = build(self._data)

    def begin(self, iterations: int) -> None:
        """Train on the first batch."""
        self._train(self.model, iterations)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """The oldest rows go, new ones come; train."""
        for variable, new in zip(self._data, (X, Y), strict=True):
            variable.assign(np.concatenate([variable.numpy(), new])[-self._window :])
        if isinstance(self.model, gpflow.models.SGPR):
            rows, M = self._data[0].numpy(), len(self.inducing_points)
            self.model.inducing_variable.Z.assign(rows[np.linspace(0, len(rows) - 1, M).astype(int)])
        self.begin(self._iterations)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the observations at X."""
        return predictions(self.model, X)

    @property
    def inducing_points(self) -> Floats:
        """Where they are; none of GPR."""
        if isinstance(self.model, gpflow.models.SGPR):
            return np.asarray(self.model.inducing_variable.Z)
        return np.empty((0, self._data[0].shape[1]))

    @property
    def carried(self) -> int:
        """Bytes of the window."""
        return int(sum(8 * tf.size(variable).numpy() for variable in self._data))
