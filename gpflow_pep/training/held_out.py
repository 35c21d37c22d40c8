"""Scores of held-out rows during training."""

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

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
        X, Y = rows_for(model, data)
        starts = range(0, len(X), _ROWS)
        self._parts = [tuple(tf.constant(values[start : start + _ROWS]) for values in (X, Y)) for start in starts]
        self._of = compiled(self._of_rows, reduce_retracing=True)

    @property
    def names(self) -> list[str]:
        """Names of the scores."""
        return ["nlpd", "rmse"] if isinstance(self._model.likelihood, Gaussian) else ["nlpd"]

    def __call__(self) -> dict[str, float]:
        """Compute the mean negative log predictive density in nats and, for Gaussian noise, the RMSE."""
        with without_warnings(self._model):
            scored = [self._of(X, Y) for X, Y in self._parts]
        densities, squares = (np.concatenate(values) for values in zip(*scored, strict=True))
        scores = {"nlpd": -float(np.mean(densities))}
        return scores | ({"rmse": float(np.sqrt(np.mean(squares)))} if "rmse" in self.names else {})

    def _of_rows(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Log predictive densities [n], and squared errors [n, P] of a Gaussian likelihood's observations."""
        mean, variance = self._model.predict_f(X)
        density = predicted_log_density(self._model.likelihood, X, mean, variance, Y)
        return density, tf.square(Y - mean) if "rmse" in self.names else tf.zeros([0, 1], density.dtype)
