"""
GPflow's SVGP as a learner: stochastic variational inference with the arriving batches as
minibatches.
"""

import math
from collections.abc import Callable

import gpflow
import tensorflow as tf
from gpflow.keras import tf_keras

from experiments.datasets import Floats
from experiments.learners.learner import STEPS_OF_ADAM, Learner


class Stochastic(Learner):
    """
    Steps of Adam on each batch, which represents all rows so far (Hensman et al. 2013).

    Its initial inducing points cover the whole stream, unlike the other learners'.
    """

    def __init__(
        self,
        build: Callable[..., gpflow.models.SVGP],
        X: Floats,
        Y: Floats,
        *,
        iterations: int,
        learning_rate: float,
    ):
        """
        :param build: function from `num_data`, a variable, to the model.
        :param iterations: number on later batches, each of some steps of Adam.
        """
        self._num_data = tf.Variable(len(X), trainable=False, dtype=tf.int64)
        super().__init__(build(num_data=self._num_data), self._take_steps, iterations, (X, Y))
        self._variables = self.model.trainable_variables
        self._optimizer = tf_keras.optimizers.Adam(learning_rate)
        self._optimizer.build(self._variables)
        self._step = tf.function(self._take_step, autograph=False, reduce_retracing=True)

    def _take_steps(
        self, model: gpflow.models.SVGP, iterations: int, data: tuple[Floats, Floats]
    ) -> None:
        for _ in range(STEPS_OF_ADAM * iterations):
            loss = float(self._step(*map(tf.constant, data)))
            if not math.isfinite(loss):
                raise FloatingPointError(f"the training loss is {loss}.")

    def _take_step(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """
        Take a step of Adam, whose averages continue from batch to batch; return the loss before it.
        """
        with tf.GradientTape() as tape:
            loss = self.model.training_loss((X, Y))
        self._optimizer.minimize(loss, self._variables, tape)
        return loss

    def _take(self, X: Floats, Y: Floats) -> None:
        self._num_data.assign_add(len(X))

    @property
    def carried(self) -> int:
        """Return the bytes of all parameters and of Adam's two averages of each."""
        return sum(3 * variable.numpy().nbytes for variable in self._variables)
