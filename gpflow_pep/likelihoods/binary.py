"""
Binary likelihoods p(y | f) = S(±f) without the offset of GPflow's probit, for labels 0, 1 or -1,
+1.
"""

from collections.abc import Callable

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood

from ..maths.normal import log_ndtr
from ..runtime import no_autograph


class _Binary(ScalarLikelihood):
    """
    p(y | f) = S(f) for the larger label, S(-f) for the smaller; S(f) + S(-f) = 1. `predict_y`
    returns mean and variance of y: with labels 0 and 1 the mean is the probability of label 1.
    """

    log_cdf: Callable[[tf.Tensor], tf.Tensor]  # log S(x), elementwise

    def __init__(self, *, labels: tuple[int, int] = (0, 1)):
        """
        :param labels: the labels of the classes, (0, 1) or (-1, 1); any others raise a ValueError.
        """
        if tuple(labels) not in ((0, 1), (-1, 1)):
            raise ValueError(f"labels must be (0, 1) or (-1, 1), got {labels!r}.")
        super().__init__()
        self.labels = tuple(int(label) for label in labels)

    def sign(self, Y: TensorType) -> tf.Tensor:
        """Convert labels to -1 and +1."""
        Y = tf.convert_to_tensor(Y)
        if self.labels == (0, 1):
            return 2.0 * Y - 1.0
        return Y

    def _moments(self, probability: tf.Tensor) -> MeanAndVariance:
        """Return mean and variance of y, given the probability of the larger label."""
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
    """
    p(y | f) = Phi(±f), without the squashing of `gpflow.likelihoods.Bernoulli` to [0.001, 0.999].

    >>> value = likelihoods.Probit().log_prob(X=[[0.0]], F=[[-30.0]], Y=[[1.0]])
    >>> round(float(value[0]), 2)
    -454.32
    """

    log_cdf = staticmethod(log_ndtr)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._moments(tf.exp(log_ndtr(Fmu / tf.sqrt(1.0 + Fvar))))

    @inherit_check_shapes
    @no_autograph
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(log_ndtr(self.sign(Y) * Fmu / tf.sqrt(1.0 + Fvar)), axis=-1)


class Logit(_Binary):
    """p(y | f) = 1 / (1 + exp(∓f)); the log density neither overflows nor underflows.

    >>> value = likelihoods.Logit().log_prob(X=[[0.0]], F=[[-1000.0]], Y=[[1.0]])
    >>> float(value[0])
    -1000.0
    """

    log_cdf = staticmethod(tf.math.log_sigmoid)
