"""The robust-max likelihood of several classes: the label of the largest latent function, with label noise."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import Likelihood

from .. import validation
from ..engine import Chunk, SingleRows, log1p_ratio
from ..maths import largest
from ..runtime.checks import asserted
from ..runtime.custom_gradients import once_differentiable
from ..runtime.tracing import in_xla, no_autograph

_VALUES_PER_CHUNK = 2**13  # rows times classes that are integrated at a time, with some 2^8 numbers each at most


class MultiClassRobustMax(Likelihood):
    r"""
    Several classes: the label of the largest of C latent functions, or with probability ε one drawn at random.

    .. math::

        p(y | f) = (1 - \varepsilon) \, 1\{f_y \text{ is the largest}\} + \varepsilon/C, \qquad y = 0, 1, \ldots, C - 1

    It is GPflow's ``MultiClass(C, RobustMax(C, ε (C - 1)/C))``; probabilities that f_y is the largest have a relative
    error of 1e-10 or less here, whatever the variances, and are not squashed. (Villacampa-Calvo and
    Hernández-Lobato 2020.)

    >>> likelihood = MultiClassRobustMax(3, epsilon=0.03)
    >>> mean, variance = likelihood.predict_mean_and_var(X=np.zeros((1, 1)), Fmu=np.zeros((1, 3)), Fvar=np.ones((1, 3)))
    >>> mean.numpy().round(6)
    array([[0.333333, 0.333333, 0.333333]])
    """

    def __init__(self, num_classes: int, epsilon: float = 1e-3):
        """
        :param num_classes: C, at least 2; there is a latent function for each.
        :param epsilon: the probability of a label drawn at random, in (0, 1); a parameter, not trainable by default.
        :raises ValueError: naming the argument that cannot be used.
        """
        num_classes = validation.positive_integer(num_classes, "num_classes")
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2, got {num_classes}.")
        if not 0.0 < epsilon < 1.0:
            raise ValueError(f"epsilon must be in (0, 1), got {epsilon!r}.")
        super().__init__(input_dim=None, latent_dim=num_classes, observation_dim=1)
        self.num_classes = num_classes
        self.epsilon = Parameter(epsilon, transform=tfp.bijectors.Sigmoid(), trainable=False)

    @property
    def log_values(self) -> tuple[tf.Tensor, tf.Tensor]:
        """log p(y | f) where f_y is the largest, and where it is not, [] each."""
        epsilon = tf.convert_to_tensor(self.epsilon)
        share = 1.0 / self.num_classes
        return tf.math.log1p(-epsilon * (1.0 - share)), tf.math.log(epsilon * share)

    def log_prob_largest(self, label: tf.Tensor, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """
        log Pr(f_y is the largest) for independent f_k of the given means and variances; differentiable once.

        :param label: y, integers [n].
        :param Fmu: [n, C].
        :param Fvar: [n, C].
        :return: [n].
        """

        @tf.custom_gradient
        def value(mean: tf.Tensor, variance: tf.Tensor) -> Any:
            size = max(1, _VALUES_PER_CHUNK // self.num_classes)
            log_prob, slope, curvature = _in_chunks(label, of_labels(mean, label), variance, size)

            def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
                in_variance = 0.5 * (curvature + tf.square(slope))
                return once_differentiable(bar[:, None] * slope, bar[:, None] * in_variance)

            return log_prob, gradient

        return value(tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar))

    def log_expectation(self, probability: tf.Tensor) -> tf.Tensor:
        """log E[p(y | f)] from the probability that f_y is the largest, elementwise."""
        return log_power_mean(probability, *self.log_values, tf.ones([], probability.dtype))[0]

    @inherit_check_shapes
    @no_autograph
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        label = class_labels(Y, self.num_classes)
        hits = tf.equal(tf.argmax(F, axis=-1, output_type=tf.int32), label)
        return of_labels(tf.where(hits, *self.log_values), label)

    @inherit_check_shapes
    @no_autograph
    def _variational_expectations(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        probability = tf.exp(self.log_prob_largest(class_labels(Y, self.num_classes), Fmu, Fvar))
        return log_power_mean(probability, *self.log_values, tf.zeros([], probability.dtype))[0]

    @inherit_check_shapes
    @no_autograph
    def _predict_log_density(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return self.log_expectation(tf.exp(self.log_prob_largest(class_labels(Y, self.num_classes), Fmu, Fvar)))

    @inherit_check_shapes
    @no_autograph
    def _predict_mean_and_var(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        C = self.num_classes
        label = tf.repeat(tf.range(C), tf.shape(Fmu)[0])
        log_prob = self.log_prob_largest(label, tf.tile(Fmu, [C, 1]), tf.tile(Fvar, [C, 1]))
        probability = tf.exp(self.log_expectation(tf.exp(log_prob)))
        probability = tf.transpose(tf.reshape(probability, [C, -1]))  # [n, C]
        return probability, probability * (1.0 - probability)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        hit, miss = (tf.exp(value) for value in self.log_values)
        return tf.where(tf.one_hot(tf.argmax(F, axis=-1), self.num_classes, True, False), hit, miss)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        probability = self.conditional_mean(X, F)
        return probability * (1.0 - probability)


def log_power_mean(
    probability: tf.Tensor, log_hit: tf.Tensor, log_miss: tf.Tensor, alpha: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    log E[p^α] / α, or E[log p] where α = 0, and its derivative in the logarithm of the probability P, elementwise.

    E[p^α] = b^α + (a^α - b^α) P, where p is a with probability P and b otherwise.

    :param log_hit: log a, [].
    :param log_miss: log b, [].
    """
    gain = log_hit - log_miss
    safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
    slope = tf.where(alpha == 0.0, gain, tf.math.expm1(alpha * gain) / safe) * probability
    return log_miss + log1p_ratio(alpha, slope), slope / (1.0 + alpha * slope)


def class_labels(Y: TensorType, num_classes: int) -> tf.Tensor:
    """
    Y [..., 1] as integers [...]. In functions that XLA compiles, where there are no errors, a label is -1 if it is none
    of 0, ..., C - 1: see :func:`of_labels`.

    :raises tf.errors.InvalidArgumentError: if one of them is none of 0, ..., C - 1.
    """
    Y = tf.convert_to_tensor(Y)[..., 0]
    label = tf.cast(Y, tf.int32)
    accepted = (tf.cast(label, Y.dtype) == Y) & (label >= 0) & (label < num_classes)
    if in_xla():
        return tf.where(accepted, label, -1)
    return asserted(label, accepted, f"Y must hold the labels 0, 1, ..., {num_classes - 1}", Y)


def of_labels(value: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
    """`value` itself, but NaN where XLA compiles this and one of the labels is none: :func:`class_labels`."""
    return asserted(value, label >= 0) if in_xla() else value


def _in_chunks(label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, size: int) -> tuple[tf.Tensor, ...]:
    """log P [n], and its slope and curvature [n, C], some rows at a time."""

    def part(chunk: Chunk) -> tuple[tf.Tensor, ...]:
        y, m, v = chunk.data
        integral = largest(y, tf.transpose(m), tf.transpose(v))
        return integral.log_prob, tf.transpose(integral.slope), tf.transpose(integral.curvature)

    chunks = SingleRows(size).split((label, mean, variance))
    return chunks.concatenate(part, mean.dtype, ([None], mean.shape, mean.shape))
