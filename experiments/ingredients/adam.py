"""
Adam for minibatch models in two cases that `gpflow_pep.fit` does not cover: streams, which have more rows than the
current batch, and natural gradients of q(u) under a non-Gaussian likelihood.
"""

import math

import gpflow
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.keras import tf_keras
from gpflow.utilities import set_trainable

from gpflow_pep.models.tied import TiedFactors


class Adam:
    """Steps of Adam on given rows; its averages continue from step to step."""

    def __init__(
        self, model: gpflow.models.SVGP | TiedFactors, learning_rate: float, natural_step: float | None = None
    ):
        """
        :param natural_step: length of a step along the natural gradient of q(u), from the same rows, before each step
            of Adam, which then trains the hyperparameters alone; None: Adam trains q(u) too.
        """
        self._model, self._natural = model, None
        if natural_step is not None:
            self._natural = gpflow.optimizers.NaturalGradient(gamma=natural_step)
            for parameter in (model.q_mu, model.q_sqrt):
                set_trainable(parameter, False)
        self._variables = model.trainable_variables
        self._optimizer = tf_keras.optimizers.Adam(learning_rate)
        self._optimizer.build(self._variables)
        self._compiled = tf.function(self._step, autograph=False, reduce_retracing=True)

    def __call__(self, X: AnyNDArray, Y: AnyNDArray) -> float:
        """
        Take a step.

        :return: the loss before Adam's step; with natural gradients, after the step of q(u).
        :raises FloatingPointError: if the loss is not finite.
        """
        loss = float(self._compiled(tf.constant(X), tf.constant(Y)))
        if not math.isfinite(loss):
            raise FloatingPointError(f"the training loss is {loss}.")
        return loss

    def _step(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        def loss() -> tf.Tensor:
            return self._model.training_loss((X, Y))

        if self._natural is not None:
            self._natural.minimize(loss, [(self._model.q_mu, self._model.q_sqrt)])
        with tf.GradientTape() as tape:
            value = loss()
        slopes = tape.gradient(value, self._variables)
        self._optimizer.apply_gradients(zip(slopes, self._variables, strict=True))
        return value
