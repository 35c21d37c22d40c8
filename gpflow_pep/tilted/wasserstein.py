"""The L2 Wasserstein projection of tilted distributions (quantile propagation, Zhang et al. 2020).

The Gaussian closest to a tilted distribution π with distribution function F has its mean, and the
standard deviation

    σ = ∫ φ(T(f)) df,    T(f) = Φ⁻¹(F(f)),

which is at most the tilted standard deviation, and equal to it if the likelihood is Gaussian.

π and φ(T) are analytic, so the trapezoid rule converges exponentially (:mod:`.trapezoid`). So does
F at points with spacing h, the integral of the sinc interpolant of π (Stenger 1993; Si is the sine
integral):

    F(kh) = h Σ_j (1/2 + Si(π (k - j))/π) π(jh).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from scipy.special import sici
from typing_extensions import override

from ..maths.normal import LOG_ROOT_2PI
from ..runtime.custom_gradients import WithGradient
from .quadrature import QuadratureRule
from .rule import KL, Cavity, Observations, Scalar, Tilted, TiltedRule, Wasserstein, tilted_rule
from .trapezoid import HALF, TiltedRows, placed, trapezoid_table

# Numbers of points. The window has the cavity up to ± HALF, but on either side of the tilted mean at
# least _NEAR and at most _FAR tilted standard deviations, which include an exponential tail; tails
# of Student's t reach farther.
_SIZES = 96, 192, 384, 384, 768, 768, 1536, 1536, 3072, 3072, 6144, 6144
_NEAR = 7.5, *(len(_SIZES) - 1) * (9.0,)
_FAR = 12.0, 40.0, *((len(_SIZES) - 2) // 2 * (40.0, np.inf))
# Mean and variance must agree with the KL projection up to √ε. The amplitudes of φ(T) near the
# Nyquist frequency and the values of π at the ends must be smaller by these factors.
_WAVE = 10.0
_END = 1e3
_TABLE = np.concatenate([trapezoid_table(size)[[0, 2, 3]] for size in sorted({*_SIZES})], axis=1)
_STEPS = 0.5 + sici(np.pi * np.arange(1 - _SIZES[-1], _SIZES[-1]))[0] / np.pi


class Points(NamedTuple):
    """Quadrature points f of R rows, with the weights of the trapezoid rule."""

    F: tf.Tensor  # [K, R]
    weight: tf.Tensor  # Of the trapezoid rule, [K, R]
    steps: tf.Tensor  # 1/2 + Si(π i)/π for i = -K + 1 ... K - 1, [2 K - 1]
    waves: tf.Tensor  # Cosine and sine near the Nyquist frequency, [2, K]


class WassersteinRule(QuadratureRule):
    """
    Project tilted distributions of a scalar likelihood. At α = 0 both projections coincide. With
    `negligible` infinite, moments are those of the KL projection.
    """

    def __init__(self, likelihood: ScalarLikelihood):
        super().__init__(likelihood)
        self._kl = tilted_rule(likelihood, KL())

    @override
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        rows = TiltedRows.of(cavity, observations, alpha)
        tilted = self._kl.moments(cavity, observations, alpha, negligible)
        none = tf.zeros_like(cavity.mean)
        distance = tf.cond(
            tf.less(negligible, np.inf), lambda: self._distances(rows, tilted)[1], lambda: none
        )
        distance = tf.where(alpha == 0.0, none, distance)
        d2 = tilted.d2 - tf.math.divide_no_nan(distance, alpha * cavity.variance)
        return tilted._replace(d2=d2, variance_ratio=tilted.variance_ratio - distance)

    def points(self, rows: TiltedRows) -> Points:
        """Return points that resolve the tilted distributions, for :meth:`projected`."""
        tilted = self._kl.moments(rows.cavity, rows.observations, rows.alpha)
        points = self._placed(self._distances(rows, tilted)[0] - 1, rows, tilted)
        log_pi = self._log_pi(points.F, rows)
        # Elsewhere derivatives may be NaN.
        is_visible = log_pi > tf.reduce_max(log_pi, axis=0) - 300.0
        F = tf.where(is_visible, points.F, rows.cavity.mean)
        weight = tf.where(is_visible, points.weight, tf.zeros_like(F))
        return points._replace(F=F, weight=weight)

    def projected(self, points: Points, rows: TiltedRows) -> tuple[tf.Tensor, ...]:
        """
        Return π times weights, and φ(T) times weights, [K, R]; differentiable. The sum of the latter
        is σ.
        """
        log_pi = self._log_pi(points.F, rows)
        pi = points.weight * tf.exp(log_pi - tf.reduce_max(log_pi, axis=0))
        p = pi / tf.reduce_sum(pi, axis=0)
        F = tf.clip_by_value(_convolved(p, points.steps), 0.0, 1.0)
        return p, points.weight * _normal_at(F)

    def _log_pi(self, F: tf.Tensor, rows: TiltedRows) -> tf.Tensor:
        (m, v), alpha, observations = rows
        return alpha * self._density.log_prob(F, *observations) - 0.5 * tf.square(F - m) / v

    def _distances(self, rows: TiltedRows, tilted: Tilted) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the number of sizes that were tried, [], and squared distances over v, [R]."""
        eps = float(np.finfo(rows.alpha.dtype.as_numpy_dtype).eps)

        def level(number: tf.Tensor, row: tf.Tensor, distances: tf.Tensor) -> tuple[tf.Tensor, ...]:
            taken = rows.take(row)
            target = Tilted(*(tf.gather(value, row) for value in tilted))
            points = self._placed(number, taken, target)
            p, height = self.projected(points, taken)
            v = taken.cavity.variance
            change = points.F - taken.cavity.mean
            mean = tf.reduce_sum(p * change, axis=0)
            variance = tf.reduce_sum(p * tf.square(change - mean), axis=0) / v
            sigma = tf.reduce_sum(height, axis=0)
            expected = taken.alpha * v * target.d1
            errors = [
                (mean - expected) / (tf.abs(expected) + tf.sqrt(variance * v)),
                variance / target.variance_ratio - 1.0,
                *tf.unstack(_WAVE * (points.waves @ height) / sigma),
                _END * (p[0] + p[-1]),
            ]
            is_open = tf.reduce_max(tf.abs(errors), axis=0) > eps**0.5  # not if NaN
            distance = tf.nn.relu(variance - tf.square(sigma) / v - 64.0 * eps)
            distances = tf.tensor_scatter_nd_update(distances, row[:, None], distance)
            return number + 1, tf.boolean_mask(row, is_open), distances

        start = tf.zeros_like(rows.alpha)
        number, _, distances = tf.while_loop(
            lambda number, row, _: (tf.size(row) > 0) & (number < len(_SIZES)),
            level,
            (tf.constant(0), tf.range(tf.size(start)), start),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), start.shape),
        )
        return tf.maximum(number, 1), distances

    def _placed(self, number: tf.Tensor, rows: TiltedRows, tilted: Tilted) -> Points:
        (m, v), alpha, _ = rows
        dtype = m.dtype
        sd = tf.sqrt(v)
        mean = alpha * sd * tilted.d1
        deviation = tf.sqrt(tilted.variance_ratio)
        near, far = (tf.constant(reach, dtype)[number] * deviation for reach in (_NEAR, _FAR))
        lower = tf.minimum(mean - near, tf.maximum(mean - far, -HALF))
        upper = tf.maximum(mean + near, tf.minimum(mean + far, HALF))
        size = tf.constant(_SIZES)[number]
        begin = size - _SIZES[0]
        columns = tf.constant(_TABLE, dtype)[:, begin : begin + size]
        unit, waves = tf.split(tf.ensure_shape(columns, [3, None]), [1, 2])
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        x, weight, *_ = placed(self._density, rows, middle, half, unit)
        steps = tf.constant(_STEPS, dtype)[_SIZES[-1] - size : _SIZES[-1] + size - 1]
        return Points(m + sd * x, sd * weight, steps, waves)


def _convolved(values: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """
    Return Σ_j steps(k - j) values(j), [K, R], for `steps` at differences -K + 1 ... K - 1. The
    transform of length 2K wraps around only what is cut off.
    """
    size = tf.shape(values)[0]
    spectra = (tf.signal.rfft(each, [2 * size]) for each in (tf.transpose(values), steps))
    product = tf.signal.irfft(tf.multiply(*spectra), [2 * size])
    return tf.transpose(product[:, size - 1 : 2 * size - 1])


@tf.custom_gradient
def _normal_at(F: tf.Tensor) -> WithGradient:
    """
    Return φ(Φ⁻¹(F)), 0 if F is 0 or 1; its derivative is -Φ⁻¹(F), which is replaced by 0 there.
    """
    z = tf.math.ndtri(F)
    slope = -tf.where(tf.math.is_finite(z), z, tf.zeros_like(z))
    return tf.exp(-0.5 * tf.square(z) - LOG_ROOT_2PI), lambda bar: bar * slope


@tilted_rule.register(ScalarLikelihood, Wasserstein)
def _wasserstein(likelihood: ScalarLikelihood, projection: Wasserstein) -> TiltedRule:
    return WassersteinRule(likelihood)
