"""GPflow's SVGP as a learner: stochastic variational inference with the arriving batches as minibatches."""

import math
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from experiments.ingredients.initialization import Floats
from experiments.learners.learner import STEPS_OF_ADAM, predictions


class Stochastic:
    """
    Steps of Adam on each batch, which represents all rows so far (Hensman et al. 2013).

    Its initial inducing points cover the whole stream, unlike the other learners'.
    """

    def __init__(
        self,
        build: Callable[[tf.Variable], gpflow.models.SVGP],
        X: Floats,
        Y: Floats,
        *,
        iterations: int,
        learning_rate: float,
    ):
        """
        :param build: function from the number of data, a variable, to the model.
        :param iterations: number on later batches, each of some steps of Adam.
        """
        self._num_data = tf.Variable(len(X), trainable=False, dtype=tf.int64)
        self._data, self._iterations = (X, Y), iterations
        self.model = build(self._num_data)
        self._variables = self.model.trainable_variables
        self._optimizer = tf_keras.optimizers.Adam(learning_rate)
        self._optimizer.build(self._variables)
        self._step = tf.function(self._take_step, autograph=False, reduce_retracing=True)

    def begin(self, iterations: int) -> None:
        """Train on the first batch."""
        for _ in range(STEPS_OF_ADAM * iterations):
            loss = float(self._step(*map(tf.constant, self._data)))
            if not math.isfinite(loss):
                raise FloatingPointError(f"the training loss is {loss}.")

    def _take_step(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """Take a step of Adam, whose averages continue from batch to batch; return the loss before it."""
        with tf.GradientTape() as tape:
            loss = self.model.training_loss((X, Y))
        slopes = tape.gradient(loss, self._variables)
        self._optimizer.apply_gradients(zip(slopes, self._variables, strict=True))
        return loss

    def absorb(self, X: Floats, Y: Floats) -> None:
        """Take the next batch, and train."""
        self._data = X, Y
        self._num_data.assign_add(len(X))
        self.begin(self._iterations)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the observations at X."""
        return predictions(self.model, X)

    def objective(self) -> float:
        """Return the bound, estimated from the last batch, in nats."""
        return float(self.model.maximum_log_likelihood_objective(self._data))

    @property
    def inducing_points(self) -> Floats:
        """Return the inducing points [M, D]."""
        return np.asarray(self.model.inducing_variable.Z)

    @property
    def carried(self) -> int:
        """Return the bytes of all parameters and of Adam's two averages of each."""
        return int(sum(3 * 8 * tf.size(variable).numpy() for variable in self.model.trainable_variables))
