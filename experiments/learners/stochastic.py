"""GPflow's SVGP as a learner: stochastic variational inference, whose minibatches are the batches as they arrive."""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf

from experiments.ingredients.initialization import Floats
from experiments.learners.learner import predictions
from experiments.learners.steps import Loss, Steps
from experiments.learners.window import resizable


class Stochastic:
    """
    Steps of Adam on each batch, as if all rows so far were like those in it (Hensman et al. 2013).

    Its inducing points start all over the stream, which is more than the other learners are told.
    """

    def __init__(
        self,
        build: Callable[[tf.Variable], gpflow.models.SVGP],
        make_steps: Callable[[Loss, gpflow.models.SVGP], Steps],
        X: Floats,
        Y: Floats,
    ):
        """
        :param build: the model, of its number of data, which is a variable.
        """
        self._num_data = tf.Variable(len(X), trainable=False, dtype=tf.int64)
        self._data = resizable(X), resizable(Y)
        self.model = build(self._num_data)
        self._steps = make_steps(lambda: self.model.training_loss(self._data), self.model)

    def begin(self, evaluations: int) -> None:
        """Train on the first batch."""
        self._steps(evaluations)

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        for variable, new in zip(self._data, (X, Y), strict=True):
            variable.assign(new)
        self._num_data.assign_add(len(X))
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
        """Bytes of all parameters: Adam keeps two averages of each beside its value."""
        return int(sum(3 * 8 * tf.size(variable).numpy() for variable in self.model.trainable_variables))
