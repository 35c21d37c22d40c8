"""
The tilted rule of `gpflow.likelihoods.Softmax`, which depends on the C latent functions jointly.
"""

import tensorflow as tf
from gpflow.likelihoods import Softmax
from typing_extensions import override

from .. import validation
from ..engine import Chunk, RowChunks
from ..likelihoods.robust_max import class_labels
from ..runtime import Tensors, WithGradient, derivatives, no_autograph, watching
from ..tilted import KL, Cavity, Observations, Projection, Scalar, Tilted, TiltedRule, tilted_rule
from .integrals import COARSE, class_probabilities, softmax_power


class SoftmaxTilting(TiltedRule):
    """
    Softmax, p = exp(f_y)/Σ_k exp(f_k): E[p^α] is a one-dimensional integral over a product with one
    factor per class. For means up to a few tens and variances from 1e-4 to 1e3, the relative error of
    log Z / α is below 1e-8, of d1 and d2 below 1e-7; with variances of different sizes in a row,
    errors of its derivatives are relative to the largest over the classes, and up to 2e-6 if f_y
    alone is uncertain.
    """

    is_shift_invariant = True
    negligible_if_loose = COARSE

    def __init__(self, num_classes: int):
        self._num_classes = num_classes
        # At most 2^11 rows times classes per chunk: each takes up to 2^13 numbers.
        self._chunks = RowChunks(max(1, 2**11 // num_classes))

    @override
    @no_autograph
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        label = class_labels(observations.Y, self._num_classes)
        power = tf.broadcast_to(alpha, tf.shape(label))
        mean = tf.transpose(cavity.mean)  # [n, C]
        variance = tf.transpose(cavity.variance)  # [n, C]

        def part(chunk: Chunk) -> Tensors:
            y, m, v, a = chunk.data
            tilted = softmax_power(y, tf.transpose(m), tf.transpose(v), a, negligible)
            return tilted.log_normalizer, tf.transpose(tilted.d1), tf.transpose(tilted.d2)

        shape = [None, self._num_classes]
        chunks = self._chunks.split((label, mean, variance, power))
        log_partition, *both = chunks.concatenate(part, cavity.mean.dtype, ([None], shape, shape))
        d1, d2 = (tf.transpose(value) for value in both)
        # The curvature of -log p is between 0 and 1/4, which bounds the ratio; rounding may violate
        # it if v > 1e8.
        scale = alpha * cavity.variance
        ratio = 1.0 + scale * d2
        bounded = tf.clip_by_value(ratio, 1.0 / (1.0 + 0.25 * scale), 1.0)
        d2 = tf.where(tf.equal(ratio, bounded), d2, (bounded - 1.0) / scale)
        return Tilted(log_partition[None], d1, d2, bounded)

    @override
    @no_autograph
    def class_probabilities(self, cavity: Cavity, X: tf.Tensor) -> tf.Tensor:
        by_labels = super().class_probabilities

        def part(chunk: Chunk) -> Tensors:
            return (tf.transpose(class_probabilities(*map(tf.transpose, chunk.data))),)

        @tf.custom_gradient
        def value(mean: tf.Tensor, variance: tf.Tensor) -> WithGradient:
            def gradient(bar: tf.Tensor) -> Tensors:
                with watching([mean, variance]) as tape:
                    total = tf.reduce_sum(bar * by_labels(Cavity(mean, variance), X))
                return derivatives(tape, total, [mean, variance])

            chunks = self._chunks.split((tf.transpose(mean), tf.transpose(variance)))
            (p,) = chunks.concatenate(part, mean.dtype, [[None, self._num_classes]])
            return tf.transpose(p), gradient

        return value(*cavity)


@tilted_rule.register(Softmax, KL)
def _softmax(likelihood: Softmax, projection: Projection) -> TiltedRule:
    return SoftmaxTilting(
        validation.positive_integer(likelihood.num_classes, "likelihood.num_classes")
    )
