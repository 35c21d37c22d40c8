"""The L2 Wasserstein projection of tilted distributions (quantile propagation, Zhang et al. 2020).

The Gaussian closest to a tilted distribution with distribution function F has its mean, and the
standard deviation

    σ = ∫ φ(Φ⁻¹(F(f))) df,

which is at most the tilted standard deviation, and equal to it if the likelihood is Gaussian.
"""

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from typing_extensions import override

from ..maths.adaptive_quadrature import Panels
from ..maths.normal import LOG_ROOT_2PI
from ..runtime.custom_gradients import WithGradient
from .densities import LogDensity
from .quadrature import RULE, QuadratureRule, on_panels, panel_nodes
from .rule import Cavity, Observations, Scalar, Tilted, TiltedRule, Wasserstein, tilted_rule
from .trapezoid import TiltedRows


class WassersteinRule(QuadratureRule):
    """Project tilted distributions of a scalar likelihood; at α = 0 both projections coincide."""

    @override
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        rows = TiltedRows.of(cavity, observations, alpha)
        tilted, center = self.moments_and_center(rows, negligible)
        tilted_on_panels, panels = on_panels(self._density, rows, center, keep=True)
        deviation = _quantile_deviation(panels, tf.shape(cavity.mean)[0])
        # Squared, in units of v.
        distance = tf.nn.relu(tilted_on_panels.variance_ratio - tf.square(deviation))
        distance = tf.where(alpha == 0.0, tf.zeros_like(distance), distance)
        d2 = tilted.d2 - tf.math.divide_no_nan(distance, alpha * cavity.variance)
        return tilted._replace(d2=d2, variance_ratio=tilted.variance_ratio - distance)


def _quantile_deviation(panels: tuple[tf.Tensor, ...], num_rows: tf.Tensor) -> tf.Tensor:
    """
    Return σ in units of the cavity standard deviation [R], from the panels of :func:`on_panels`.
    """
    row, left, half, density = panels
    dtype = density.dtype
    left_order = tf.argsort(left)
    row_order = tf.argsort(tf.gather(row, left_order), stable=True)
    order = tf.gather(left_order, row_order)  # by row, then left to right
    row, half, density = (tf.gather(part, order) for part in (row, half, density))
    panel_mass = half * tf.linalg.matvec(density, tf.constant(RULE.weights, dtype))  # [W]
    within = half[:, None] * tf.matmul(density, tf.constant(RULE.antiderivative, dtype))  # [W, K]
    mass = tf.gather(tf.math.segment_sum(panel_mass, row), row)  # [W]
    number = tf.range(tf.size(row))
    position = number - tf.gather(tf.math.unsorted_segment_min(number, row, num_rows), row)
    at = tf.stack([row, position], axis=1)  # [W, 2]
    # A table instead of one cumulative sum: a NaN in one row does not spread.
    table = tf.scatter_nd(at, panel_mass / mass, [num_rows, tf.reduce_max(position) + 1])
    before = tf.gather_nd(tf.cumsum(table, axis=1, exclusive=True), at)  # [W]
    F = tf.clip_by_value(before[:, None] + within / mass[:, None], 0.0, 1.0)
    integral = half * tf.linalg.matvec(_normal_at(F), tf.constant(RULE.weights, dtype))  # [W]
    return tf.math.unsorted_segment_sum(integral, row, num_rows)


@tf.custom_gradient
def _normal_at(F: tf.Tensor) -> WithGradient:
    """
    Return φ(Φ⁻¹(F)), 0 if F is 0 or 1; its derivative is -Φ⁻¹(F), which is replaced by 0 there.
    """
    z = tf.math.ndtri(F)
    slope = -tf.where(tf.math.is_finite(z), z, tf.zeros_like(z))
    return tf.exp(-0.5 * tf.square(z) - LOG_ROOT_2PI), lambda bar: bar * slope


def fixed_panels(likelihood: ScalarLikelihood, rows: TiltedRows) -> Panels:
    """
    Return panels that resolve the tilted distributions, in units of f, for
    :func:`projected_moments`.
    """
    rule = WassersteinRule(likelihood)
    center = rule.moments_and_center(rows, 0.0)[1]
    _, (row, left, half, _) = on_panels(rule._density, rows, center, keep=True)
    center, sd = (tf.gather(value, row) for value in (center, tf.sqrt(rows.cavity.variance)))
    return Panels(row, center + sd * left, sd * half)


def projected_moments(
    density: LogDensity, panels: Panels, rows: TiltedRows
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return mean and standard deviation of the projections, [R] each, differentiable on fixed panels.
    """
    row, left, half = panels
    ((m, v), alpha, observations), count = rows.take(row), tf.shape(rows.alpha)[0]
    F = panel_nodes(left, half)  # [K, W]

    def log_pi(F: tf.Tensor) -> tf.Tensor:
        return alpha * density.log_prob(F, *observations) - 0.5 * tf.square(F - m) / v

    value = tf.stop_gradient(log_pi(F))
    height = tf.gather(tf.math.unsorted_segment_max(tf.reduce_max(value, axis=0), row, count), row)
    is_visible = value > height - 300.0  # elsewhere derivatives may be NaN
    density_at = tf.where(
        is_visible, tf.exp(log_pi(tf.where(is_visible, F, m)) - height), tf.zeros_like(F)
    )
    sums = [
        half * tf.linalg.matvec(values, tf.constant(RULE.weights, F.dtype), transpose_a=True)
        for values in (density_at, density_at * F)
    ]
    mass, first = (tf.math.unsorted_segment_sum(each, row, count) for each in sums)
    return first / mass, _quantile_deviation((*panels, tf.transpose(density_at)), count)


@tilted_rule.register(ScalarLikelihood, Wasserstein)
def _wasserstein(likelihood: ScalarLikelihood, projection: Wasserstein) -> TiltedRule:
    return WassersteinRule(likelihood)
