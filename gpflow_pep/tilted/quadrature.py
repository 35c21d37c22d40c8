"""The rule of any scalar likelihood: its tilted distributions by quadrature, projected with the KL divergence."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from typing_extensions import override

from .adaptive import AdaptivePanels
from .densities import log_density
from .registry import KL, tilted_rule
from .rule import Cavity, Flag, Observations, Tilted, TiltedRule


class QuadratureRule(TiltedRule):
    """
    Integrates the tilted distributions of a scalar likelihood that is twice differentiable in f.

    The relative error of log Z, d1 and d2 is below 1e-8 for cavity means of some tens and variances from 1e-4 to 1e3.
    """

    def __init__(self, likelihood: ScalarLikelihood):
        self._panels = AdaptivePanels(log_density(likelihood))

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, accurate: Flag = True) -> Tilted:
        return self._panels.moments(cavity, observations, tf.broadcast_to(alpha, tf.shape(cavity.mean)))

    @override
    def log_partition_vjp(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        powers = tf.broadcast_to(alpha, tf.shape(cavity.mean))
        return self._panels.log_partition_vjp(cavity, observations, powers, bar, sources)


@tilted_rule.register(ScalarLikelihood, KL)
def _by_quadrature(likelihood: ScalarLikelihood, projection: KL) -> TiltedRule:
    return QuadratureRule(likelihood)
