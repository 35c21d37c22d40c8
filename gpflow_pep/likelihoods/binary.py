"""Binary likelihoods p(y | f) = S(±f) without the offset of GPflow's probit, for labels 0, 1 or -1, +1."""

from abc import abstractmethod

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from typing_extensions import override

_LABELS = ((0, 1), (-1, 1))
_SERIES_BELOW = -12.0
_SERIES_TERMS = 12  # the first one neglected, 23!!/12^24 of 1, is below machine epsilon


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """
    log Phi(x), to machine precision *relative* to log Phi: also where Phi(x) is nearly 1 or underflows.

    Above 0 log1p(-erfc(x/√2)/2), below it log(erfc(-x/√2)/2); below -12 the asymptotic series of Mills' ratio.
    """
    far = x < _SERIES_BELOW
    magnitude = tf.where(x > 0.0, x, -x)  # tf.abs has no derivative at 0, log Phi has
    tail = 0.5 * tf.math.erfc(np.sqrt(0.5) * tf.where(far, tf.zeros_like(x), magnitude))  # Phi(-|x|)
    near = tf.where(x > 0.0, tf.math.log1p(-tail), tf.math.log(tail))

    def with_series() -> tf.Tensor:
        return tf.where(far, _log_ndtr_series(tf.where(far, x, _SERIES_BELOW * tf.ones_like(x))), near)

    return tf.cond(tf.reduce_any(far), with_series, lambda: near)


def hazard(x: tf.Tensor, log_cdf: tf.Tensor) -> tf.Tensor:
    """phi(x)/Phi(x), the derivative of log Phi, from log Phi(x)."""
    return tf.exp(-0.5 * tf.square(x) - 0.5 * np.log(2.0 * np.pi) - log_cdf)


def _log_ndtr_series(x: tf.Tensor) -> tf.Tensor:
    """log of phi(x)/|x| (1 - 1/x^2 + 3/x^4 - 15/x^6 ...), by Horner's rule."""
    z = 1.0 / tf.square(x)
    total = tf.ones_like(x)
    for term in range(_SERIES_TERMS, 0, -1):
        total = 1.0 - (2 * term - 1) * z * total
    return -0.5 * tf.square(x) - tf.math.log(-x) - 0.5 * np.log(2.0 * np.pi) + tf.math.log(total)


class _Binary(ScalarLikelihood):
    """
    p(y | f) = S(f) for the larger label, S(-f) for the smaller; S(f) + S(-f) = 1.

    `predict_y` gives mean and variance of y: with labels 0, 1 the mean is the probability of a 1.
    """

    def __init__(self, *, labels: tuple[int, int] = (0, 1)):
        """
        :param labels: how the classes are coded, (0, 1) or (-1, 1).
        :raises ValueError: for any other coding.
        """
        if tuple(labels) not in _LABELS:
            raise ValueError(f"labels must be (0, 1) or (-1, 1), got {labels!r}.")
        super().__init__()
        self.labels = tuple(int(label) for label in labels)

    @staticmethod
    @abstractmethod
    def log_cdf(x: tf.Tensor) -> tf.Tensor:
        """log S(x), elementwise."""

    def sign(self, Y: TensorType) -> tf.Tensor:
        """-1 and +1 in place of the labels, the shape of Y."""
        Y = tf.convert_to_tensor(Y)
        return 2.0 * Y - 1.0 if self.labels == (0, 1) else Y

    def _moments(self, probability: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of y from the probability of the larger label."""
        low, high = self.labels
        width = float(high - low)
        return low + width * probability, width**2 * probability * (1.0 - probability)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.log_cdf(self.sign(Y) * F)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(tf.exp(self.log_cdf(F)))[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(tf.exp(self.log_cdf(F)))[1]


class Probit(_Binary):
    """p(y | f) = Phi(±f), exactly; `gpflow.likelihoods.Bernoulli` mixes 0.002 of a fair coin into it."""

    @staticmethod
    @override
    def log_cdf(x: tf.Tensor) -> tf.Tensor:
        return log_ndtr(x)

    @inherit_check_shapes
    def _predict_mean_and_var(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        return self._moments(tf.exp(log_ndtr(Fmu / tf.sqrt(1.0 + Fvar))))

    @inherit_check_shapes
    def _predict_log_density(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.reduce_sum(log_ndtr(self.sign(Y) * Fmu / tf.sqrt(1.0 + Fvar)), axis=-1)


class Logit(_Binary):
    """p(y | f) = 1 / (1 + exp(∓f)), whose logarithm neither overflows nor underflows."""

    @staticmethod
    @override
    def log_cdf(x: tf.Tensor) -> tf.Tensor:
        return tf.math.log_sigmoid(x)
