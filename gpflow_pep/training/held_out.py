"""Scores of held-out rows during training."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from ..engine import AllRows, NumberedChunks, SingleRows
from ..graphs import compiled
from ..likelihoods.predictive import predicted_log_density
from .declared import without_warnings
from .objectives import rows_for

_ROWS = 4096  # predicted at a time


class HeldOut:
    """Held-out scores at the current parameters; smaller is better."""

    def __init__(self, model: GPModel, data: RegressionData):
        """
        :param data: X [n, D] and Y [n, P].
        :raises ValueError: if they are not valid regression data.
        """
        self._model = model
        self._data = tuple(map(tf.constant, rows_for(model, data)))

    @property
    def names(self) -> list[str]:
        """Names of the scores."""
        return ["nlpd", "rmse"] if isinstance(self._model.likelihood, Gaussian) else ["nlpd"]

    def __call__(self) -> dict[str, float]:
        """Compute the mean negative log predictive density in nats and, for Gaussian noise, the RMSE."""
        with without_warnings(self._model):
            density, square = map(float, self._sums(*self._data))
        n, P = self._data[1].shape
        scores = {"nlpd": -density / n}
        return scores | ({"rmse": float(np.sqrt(square / (n * P)))} if "rmse" in self.names else {})

    @compiled
    def _sums(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Log predictive densities and squared errors, summed over rows, [] each. The posterior is computed once."""
        chunks: NumberedChunks = AllRows() if X.shape[0] <= _ROWS else SingleRows(_ROWS)
        # Each prediction of this library's models with data would read all of these.
        predict = self._model.posterior().predict_f if hasattr(self._model, "check_data") else self._model.predict_f

        def part(chunk: Any) -> tuple[tf.Tensor, tf.Tensor]:
            inputs, outputs = chunks.rows((X, Y), chunk)
            mean, variance = predict(inputs)
            density = predicted_log_density(self._model.likelihood, inputs, mean, variance, outputs)
            is_real = "rmse" in self.names
            square = tf.reduce_sum(tf.square(outputs - mean)) if is_real else tf.zeros([], density.dtype)
            return tf.reduce_sum(density), square

        zero = tf.zeros([], X.dtype)
        return chunks.sum((X, Y), part, (zero, zero))
