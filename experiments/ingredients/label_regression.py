"""Regression on labels, a baseline of classification."""

from typing import Any

import numpy as np
import tensorflow as tf

from experiments.datasets import Floats
from gpflow_pep import PEPR
from gpflow_pep.estimators.calibration import of_all_classes

_SMALLEST = 1e-3  # probability of a label whose mean is below it


class LabelRegression(PEPR):
    """
    `PEPR` on one-hot labels: their mean estimates the probability of each class.

    Means below 0.001 count as 0.001; the estimates of more than two classes are divided by their sum.
    """

    def __init__(
        self, data: tuple[Floats, Floats], num_classes: int, *arguments: Any, **options: Any
    ):
        """
        :param data: inputs X [N, D] and labels Y [N, 1].
        """
        X, Y = data
        targets = Y if num_classes == 2 else np.eye(num_classes)[Y[:, 0].astype(int)]
        super().__init__((X, targets), *arguments, **options)

    def predict_y(self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False) -> Any:
        """Return the probability of label 1 [N, 1] or of every label [N, C], and the variance."""
        mean, variance = super().predict_y(Xnew, full_cov, full_output_cov)
        probability = tf.clip_by_value(mean, _SMALLEST, 1.0 - _SMALLEST)
        if probability.shape[1] > 1:
            probability /= tf.reduce_sum(probability, axis=1, keepdims=True)
        return probability, variance

    def predict_log_density(
        self, data: Any, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Return the log probability of the labels [N]."""
        X, Y = data
        probability = of_all_classes(self.predict_y(X)[0].numpy())
        return tf.math.log(np.take_along_axis(probability, Y.astype(int), axis=1)[:, 0])
