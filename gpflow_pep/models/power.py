"""The power alpha of a model that has one for all observations."""

from typing import Any

import tensorflow as tf
from gpflow.config import default_float

from .. import validation


class SinglePower:
    """Holds alpha in a variable, so that compiled functions see it change."""

    _alpha: tf.Variable

    @staticmethod
    def _power_variable(alpha: Any) -> tf.Variable:
        return tf.Variable(validation.single_power(alpha), trainable=False, dtype=default_float())

    @property
    def alpha(self) -> tf.Variable:
        """
        The power, []. Set it, or ``.assign`` to it: compiled functions see the new value.

        :raises ValueError: when it is set to a value outside [0, 1].
        """
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self._alpha.assign(validation.single_power(alpha))

    def _checked_alpha(self) -> tf.Tensor:
        return validation.checked_power(self._alpha)
