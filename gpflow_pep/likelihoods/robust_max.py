"""
The robust-max likelihood for multi-class classification: the largest latent function, with label
noise.
"""

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import Likelihood

from .. import validation
from ..engine import Chunk, RowChunks, log1p_ratio
from ..maths.largest import largest
from ..runtime import Tensors, WithGradient, asserted, no_autograph, once_differentiable, refuse_xla

_VALUES_PER_CHUNK = 2**13  # rows times classes in a chunk; each needs at most about 2^8 numbers


class MultiClassRobustMax(Likelihood):
    r"""
    Multi-class classification: the label of the largest of C latent functions, or, with probability
    ε, a random label.

    .. math::

        p(y | f) = (1 - \varepsilon) \, 1\{f_y \text{ is the largest}\} + \varepsilon/C, \qquad y =
        0, 1, \ldots, C - 1

    It equals GPflow's ``MultiClass(C, RobustMax(C, ε (C - 1)/C))``, but the probability that f_y is
    the largest has a relative error of at most 1e-10 for any variances, unsquashed
    (Villacampa-Calvo and Hernández-Lobato 2020).

    >>> likelihood = MultiClassRobustMax(3, epsilon=0.03)
    >>> mean, variance = likelihood.predict_mean_and_var(X=np.zeros((1, 1)), Fmu=np.zeros((1, 3)), Fvar=np.ones((1, 3)))
    >>> mean.numpy().round(6)
    array([[0.333333, 0.333333, 0.333333]])
    """

    def __init__(self, num_classes: int, epsilon: float = 1e-3):
        """
        :param num_classes: C, at least 2: the number of latent functions.
        :param epsilon: the probability of a label drawn at random, in (0, 1); a parameter, not
            trainable by default.
        :raises ValueError: for an argument out of range.
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
        """log p(y | f) if f_y is the largest, and log p(y | f) otherwise, each []."""
        epsilon = tf.convert_to_tensor(self.epsilon)
        uniform = 1.0 / self.num_classes
        return tf.math.log1p(-epsilon * (1.0 - uniform)), tf.math.log(epsilon * uniform)

    def log_prob_largest(self, label: tf.Tensor, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """
        Compute log Pr(f_y is the largest), [n], for labels y [n] and f_k of moments [n, C];
        differentiable once.
        """

        def of_chunk(chunk: Chunk) -> Tensors:
            label, mean, variance = chunk.data
            integral = largest(label, tf.transpose(mean), tf.transpose(variance))
            return integral.log_prob, tf.transpose(integral.slope), tf.transpose(integral.curvature)

        @tf.custom_gradient
        def value(mean: tf.Tensor, variance: tf.Tensor) -> WithGradient:
            chunks = RowChunks(max(1, _VALUES_PER_CHUNK // self.num_classes)).split(
                (label, mean, variance)
            )
            shape = [None, self.num_classes]
            log_prob, slope, curvature = chunks.concatenate(
                of_chunk, mean.dtype, [[None], shape, shape]
            )

            def gradient(bar: tf.Tensor) -> Tensors:
                in_variance = 0.5 * (curvature + tf.square(slope))
                return once_differentiable(bar[:, None] * slope, bar[:, None] * in_variance)

            return log_prob, gradient

        return value(tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar))

    def _log_mean(
        self, label: tf.Tensor, Fmu: TensorType, Fvar: TensorType, power: float
    ) -> tf.Tensor:
        """Compute log E[p^power] / power, or E[log p] if power = 0, [n]."""
        probability = tf.exp(self.log_prob_largest(label, Fmu, Fvar))
        return log_power_mean(probability, *self.log_values, tf.constant(power, probability.dtype))[
            0
        ]

    @inherit_check_shapes
    @no_autograph
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        hits = tf.equal(
            tf.argmax(F, axis=-1, output_type=tf.int32), class_labels(Y, self.num_classes)
        )
        return tf.where(hits, *self.log_values)

    @inherit_check_shapes
    @no_autograph
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._log_mean(class_labels(Y, self.num_classes), Fmu, Fvar, 0.0)

    @inherit_check_shapes
    @no_autograph
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._log_mean(class_labels(Y, self.num_classes), Fmu, Fvar, 1.0)

    @inherit_check_shapes
    @no_autograph
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        C = self.num_classes
        label = tf.repeat(tf.range(C), tf.shape(Fmu)[0])
        log_mean = self._log_mean(label, tf.tile(Fmu, [C, 1]), tf.tile(Fvar, [C, 1]), 1.0)
        probability = tf.transpose(tf.reshape(tf.exp(log_mean), [C, -1]))  # [n, C]
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
    Compute log E[p^α] / α, or E[log p] if α = 0, and its derivative in log P, elementwise: E[p^α] =
    b^α + (a^α - b^α) P if p = a with probability P and p = b otherwise, with the logarithms
    `log_hit` of a and `log_miss` of b, [].
    """
    gain = log_hit - log_miss
    slope = (
        tf.where(alpha == 0.0, gain, tf.math.divide_no_nan(tf.math.expm1(alpha * gain), alpha))
        * probability
    )
    return log_miss + log1p_ratio(alpha, slope), slope / (1.0 + alpha * slope)


def class_labels(Y: TensorType, num_classes: int) -> tf.Tensor:
    """
    Return Y [..., 1] as integers [...]; raise an error if a label is not one of 0, ..., C - 1, or
    under XLA.
    """
    refuse_xla("a multi-class likelihood, whose labels are checked")
    Y = tf.convert_to_tensor(Y)[..., 0]
    label = tf.cast(Y, tf.int32)
    accepted = (tf.cast(label, Y.dtype) == Y) & (label >= 0) & (label < num_classes)
    return asserted(label, accepted, f"Y must hold the labels {listed_labels(num_classes)}", Y)


def listed_labels(num_classes: int) -> str:
    """Name the labels of C classes, for error messages."""
    if num_classes == 2:
        return "0 and 1"
    return f"0, 1, ..., {num_classes - 1}"
