"""The L2 Wasserstein projection of tilted distributions (quantile propagation, Zhang et al. 2020).

The Gaussian that is closest to a tilted distribution with distribution function F has the same mean, and the standard
deviation

    σ = ∫ φ(Φ⁻¹(F(f))) df,

which is never more than the tilted one and equal to it if the likelihood is Gaussian.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from typing_extensions import override

from ..maths.adaptive_quadrature import INTEGRALS, WEIGHTS
from ..runtime.tracing import refuse_xla
from .adaptive import AdaptivePanels, Resolved
from .densities import log_density
from .quadrature import QuadratureRule
from .registry import Wasserstein, tilted_rule
from .rule import Cavity, Observations, Size, Tilted, TiltedRule


class WassersteinRule(TiltedRule):
    """Projects tilted distributions of a scalar likelihood; at α = 0, where tilting is infinitesimal, as KL does."""

    def __init__(self, likelihood: ScalarLikelihood):
        self._panels = AdaptivePanels(log_density(likelihood))
        self._kl = QuadratureRule(likelihood)

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        refuse_xla('the "wasserstein" projection by quadrature, whose panels depend on the data')
        alpha = tf.broadcast_to(alpha, tf.shape(cavity.mean))
        tilted, center = self._kl.moments_and_center(cavity, observations, alpha, negligible)
        on_panels, resolved = self._panels.moments_and_panels(cavity, observations, alpha, center)
        deviation = _quantile_deviation(resolved, tf.shape(cavity.mean)[0])
        distance = tf.nn.relu(on_panels.variance_ratio - tf.square(deviation))  # squared, in units of v
        distance = tf.where(alpha == 0.0, tf.zeros_like(distance), distance)
        safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
        return tilted._replace(
            d2=tilted.d2 - distance / (safe * cavity.variance), variance_ratio=tilted.variance_ratio - distance
        )

    @override
    def log_partition_vjp(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        return self._kl.log_partition_vjp(cavity, observations, alpha, bar, sources)


def _quantile_deviation(resolved: Resolved, num_rows: tf.Tensor) -> tf.Tensor:
    """σ in units of the cavity's standard deviation, [R]."""
    dtype = resolved.density.dtype
    by_left = tf.argsort(resolved.left)
    order = tf.gather(by_left, tf.argsort(tf.gather(resolved.row, by_left), stable=True))  # by row, then left to right
    row, half, density = (tf.gather(part, order) for part in (resolved.row, resolved.half, resolved.density))
    within = half[:, None] * tf.matmul(density, tf.constant(INTEGRALS, dtype), transpose_b=True)  # [W, K]
    mass = tf.math.segment_sum(within[:, -1], row)  # [R]
    within /= tf.gather(mass, row)[:, None]
    number = tf.range(tf.size(row))
    at = tf.stack(
        [row, number - tf.gather(tf.math.unsorted_segment_min(number, row, num_rows), row)], axis=1
    )  # row, place in it
    table = tf.scatter_nd(at, within[:, -1], [num_rows, tf.reduce_max(at[:, 1]) + 1])  # one row cannot spoil another
    before = tf.gather_nd(tf.cumsum(table, axis=1, exclusive=True), at)  # [W]
    F = tf.clip_by_value(before[:, None] + within, 0.0, 1.0)
    normal = tf.exp(-0.5 * tf.square(tf.math.ndtri(F)))  # φ(Φ⁻¹(F)) sqrt(2π), 0 where F is 0 or 1
    integral = half * tf.linalg.matvec(normal, tf.constant(WEIGHTS[0], dtype))  # [W]
    return tf.math.unsorted_segment_sum(integral, row, num_rows) * tf.constant(0.3989422804014327, dtype)


@tilted_rule.register(ScalarLikelihood, Wasserstein)
def _wasserstein(likelihood: ScalarLikelihood, projection: Wasserstein) -> TiltedRule:
    return WassersteinRule(likelihood)
