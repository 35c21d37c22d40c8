"""The tilted rule of robust-max likelihoods, which tie the C latent values of a row."""

from collections.abc import Callable

import tensorflow as tf
from gpflow.likelihoods import MultiClass
from typing_extensions import override

from ..likelihoods import MultiClassRobustMax
from ..likelihoods.robust_max import class_labels, log_power_mean
from ..maths import largest
from ..runtime.tracing import no_autograph
from .rule import KL, Cavity, Observations, Projection, Scalar, Tilted, TiltedRule, tilted_rule


class RobustMaxTilting(TiltedRule):
    """Robust-max: p takes two values, and E[p^α] is a function of the probability that f_y is the largest."""

    is_shift_invariant = True

    def __init__(self, num_classes: int, log_values: Callable[[], tuple[tf.Tensor, tf.Tensor]]):
        """
        :param log_values: log p if f_y is the largest, and if it is not, [] each.
        """
        self._num_classes, self._log_values = num_classes, log_values

    @override
    @no_autograph
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0) -> Tilted:
        label = class_labels(observations.Y, self._num_classes)
        top = largest(label, cavity.mean, cavity.variance)
        P = tf.exp(top.log_prob)
        log_Z, share = log_power_mean(P, *self._log_values(), alpha)
        d1 = share * top.slope
        d2 = share * (top.curvature + tf.square(top.slope)) - alpha * tf.square(d1)
        hit = alpha * share  # the part of Z with the largest f_y
        between = hit * (1.0 - hit) * cavity.variance * tf.square(top.slope)
        return Tilted(log_Z[None], d1, d2, 1.0 - hit + hit * top.ratio + between)


@tilted_rule.register(MultiClassRobustMax, KL)
def _robust_max(likelihood: MultiClassRobustMax, projection: Projection) -> TiltedRule:
    return RobustMaxTilting(likelihood.num_classes, lambda: likelihood.log_values)


@tilted_rule.register(MultiClass, KL)
def _gpflow_robust_max(likelihood: MultiClass, projection: Projection) -> TiltedRule:
    """GPflow's link is the same but for its quadrature: its ε is ε (C - 1)/C of ours."""
    link = likelihood.invlink
    return RobustMaxTilting(likelihood.num_classes, lambda: (tf.math.log1p(-link.epsilon), tf.math.log(link.eps_k1)))
