"""The rule of any scalar likelihood: its tilted distributions by quadrature, projected with the KL divergence."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from typing_extensions import override

from .adaptive import AdaptivePanels
from .densities import log_density
from .levels import locate
from .registry import KL, tilted_rule
from .rule import Cavity, Flag, Observations, Tilted, TiltedRule


class QuadratureRule(TiltedRule):
    """
    Integrates the tilted distributions of a scalar likelihood that is twice differentiable in f.

    The relative error of log Z, d1 and d2 is below 1e-8 for cavity means of some tens and variances from 1e-4 to 1e3.
    Rows for which the trapezoid rule does not say that of itself take adaptive panels.
    """

    def __init__(self, likelihood: ScalarLikelihood):
        self._density = log_density(likelihood)
        self._panels = AdaptivePanels(self._density)

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, accurate: Flag = True) -> Tilted:
        return self.moments_and_centre(cavity, observations, alpha, accurate)[0]

    def moments_and_centre(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, accurate: Flag
    ) -> tuple[Tilted, tf.Tensor]:
        """Compute the tilted distributions and, [R], a point near the mode or mean of each."""
        alpha = tf.broadcast_to(alpha, tf.shape(cavity.mean))
        tilted, is_accurate, centre = locate(self._density, cavity, observations, alpha)
        rest = tf.where(~is_accurate)[:, 0]

        def with_panels() -> tuple[tf.Tensor, ...]:
            m, v, power, start, X, Y = (tf.gather(value, rest) for value in (*cavity, alpha, centre, *observations))
            better = self._panels.moments(Cavity(m, v), Observations(X, Y), power, start)
            pairs = zip(tilted, better, strict=True)
            return tuple(tf.tensor_scatter_nd_update(old, rest[:, None], new) for old, new in pairs)

        found = tf.cond((tf.size(rest) > 0) & accurate, with_panels, lambda: tuple(tilted))
        return Tilted(*found), centre

    @override
    def log_partition_vjp(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        alpha = tf.broadcast_to(alpha, tf.shape(cavity.mean))
        centre = locate(self._density, cavity, observations, alpha).centre
        return self._panels.log_partition_vjp(cavity, observations, alpha, centre, bar, sources)


@tilted_rule.register(ScalarLikelihood, KL)
def _by_quadrature(likelihood: ScalarLikelihood, projection: KL) -> TiltedRule:
    return QuadratureRule(likelihood)
