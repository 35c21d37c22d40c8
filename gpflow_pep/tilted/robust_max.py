"""The tilted rule of robust-max likelihoods, which depend on the C latent functions jointly."""

from collections.abc import Callable

import tensorflow as tf
from gpflow.likelihoods import MultiClass
from typing_extensions import override

from ..likelihoods import MultiClassRobustMax
from ..likelihoods.robust_max import class_labels, log_power_mean
from ..maths.largest import largest
from ..runtime import no_autograph
from .rule import KL, Cavity, Observations, Projection, Scalar, Tilted, TiltedRule, tilted_rule


class RobustMaxTilting(TiltedRule):
    """
    Robust-max: p has two values, so E[p^α] is a function of the probability that f_y is the
    largest.
    """

    is_shift_invariant = True

    def __init__(self, num_classes: int, log_values: Callable[[], tuple[tf.Tensor, tf.Tensor]]):
        """:param log_values: returns log p if f_y is the largest, and log p otherwise, each []."""
        self._num_classes = num_classes
        self._log_values = log_values

    @override
    @no_autograph
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        top = largest(class_labels(observations.Y, self._num_classes), cavity.mean, cavity.variance)
        log_Z, weight = log_power_mean(tf.exp(top.log_prob), *self._log_values(), alpha)
        d1 = weight * top.slope
        d2 = weight * (top.curvature + tf.square(top.slope)) - alpha * tf.square(d1)
        prob_hit = alpha * weight  # tilted probability that f_y is the largest
        between = prob_hit * (1.0 - prob_hit) * cavity.variance * tf.square(top.slope)
        return Tilted(log_Z[None], d1, d2, 1.0 - prob_hit + prob_hit * top.ratio + between)


@tilted_rule.register(MultiClassRobustMax, KL)
def _robust_max(likelihood: MultiClassRobustMax, projection: Projection) -> TiltedRule:
    return RobustMaxTilting(likelihood.num_classes, lambda: likelihood.log_values)


@tilted_rule.register(MultiClass, KL)
def _gpflow_robust_max(likelihood: MultiClass, projection: Projection) -> TiltedRule:
    """GPflow's epsilon is ε (C - 1)/C in the parametrization of MultiClassRobustMax."""
    link = likelihood.invlink
    return RobustMaxTilting(
        likelihood.num_classes, lambda: (tf.math.log1p(-link.epsilon), tf.math.log(link.eps_k1))
    )
