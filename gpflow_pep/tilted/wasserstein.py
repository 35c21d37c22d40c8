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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from scipy.special import sici
from typing_extensions import override

from ..maths.linalg import epsilon
from ..maths.normal import LOG_ROOT_2PI
from ..runtime import Sources, Tensors, WithGradient
from .densities import log_density
from .rule import KL, Cavity, Observations, Scalar, Tilted, TiltedRule, Wasserstein, tilted_rule
from .trapezoid import HALF, TiltedRows, placed, take, trapezoid_table, true_rows, with_rows

# Levels of accuracy: numbers of points, and windows. A window has the cavity up to ± HALF, but on
# either side of the tilted mean at least _NEAR and at most _FAR tilted standard deviations: 40 of
# them include exponential tails, and tails of Student's t reach farther.
_SIZES = 96, 192, 384, 384, 1536, 1536, 6144, 6144
_EASY = 4  # rows of lower levels share the points of the gradient
_NEAR = 7.5, *(len(_SIZES) - 1) * (9.0,)
_FAR = 12.0, 40.0, *((len(_SIZES) - 2) // 2 * (40.0, np.inf))
# The table of K points begins at K - 96, since each number of points is twice the one before.
_TABLE = np.concatenate(
    [trapezoid_table(size)[[0, 2, 3]] for size in (96, 192, 384, 768, 1536, 3072, 6144)], axis=1
)
_STEPS = 0.5 + sici(np.pi * np.arange(1 - _SIZES[-1], _SIZES[-1]))[0] / np.pi
# A row is resolved if these are below √ε: its errors, which are the amplitudes of φ(T) near the
# Nyquist frequency times _WAVE and the values of π at the ends times _END; and the relative
# differences of mean and variance from the KL projection, which may itself be inaccurate. With an
# error above _LARGEST at the last level the result is NaN.
_WAVE = 10.0
_END = 1e3
_LARGEST = 1e-3


class Points(NamedTuple):
    """Quadrature points f of R rows, with the weights of the trapezoid rule."""

    row: tf.Tensor  # Numbers of the rows, [R]
    f: tf.Tensor  # [K, R]
    weight: tf.Tensor  # Of the trapezoid rule, [K, R]
    steps: tf.Tensor  # 1/2 + Si(π i)/π for i = -K + 1 ... K - 1, [2 K - 1]
    waves: tf.Tensor  # Cosine and sine near the Nyquist frequency, [2, K]


class WassersteinRule(TiltedRule):
    """
    Project tilted distributions of a scalar likelihood. At α = 0 both projections coincide. With
    `negligible` infinite, moments are those of the KL projection. If a cavity is about a thousand
    times as wide as its likelihood, d2 and the ratio of variances may be NaN.
    """

    def __init__(self, likelihood: ScalarLikelihood):
        self._density = log_density(likelihood)
        self.kl = tilted_rule(likelihood, KL())

    @override
    def check(self, observations: Observations, num_latent_gps: int) -> None:
        self.kl.check(observations, num_latent_gps)

    @override
    def log_partition_vjp(
        self,
        cavity: Cavity,
        observations: Observations,
        alpha: tf.Tensor,
        bar: tf.Tensor,
        sources: Sources,
    ) -> Tensors:
        """Compute the gradient of log Z, which does not depend on the projection."""
        return self.kl.log_partition_vjp(cavity, observations, alpha, bar, sources)

    @override
    def moments(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Scalar = 0.0
    ) -> Tilted:
        rows = TiltedRows.of(cavity, observations, alpha)
        tilted = self.kl.moments(cavity, observations, alpha, negligible)
        none = tf.zeros_like(cavity.mean)
        distance = tf.cond(
            tf.less(negligible, np.inf), lambda: self._distances(rows, tilted)[1], lambda: none
        )
        distance = tf.where(alpha == 0.0, none, distance)
        d2 = tilted.d2 - tf.math.divide_no_nan(distance, alpha * cavity.variance)
        return tilted._replace(d2=d2, variance_ratio=tilted.variance_ratio - distance)

    def points(self, rows: TiltedRows) -> list[Points]:
        """
        Return points that resolve the tilted distributions, for :meth:`projections`: as many as the
        levels of most rows need, and more for the other rows.
        """
        tilted = self.kl.moments(rows.cavity, rows.observations, rows.alpha)
        levels = self._distances(rows, tilted)[0]
        is_easy = levels < _EASY
        masks = is_easy, ~is_easy
        return [self._visible(true_rows(mask), levels, rows, tilted) for mask in masks]

    def projections(self, points: Sequence[Points], rows: TiltedRows) -> tf.Tensor:
        """Return means and standard deviations of the projections, [2, R]; differentiable."""
        moments = []
        for each in points:
            p, heights = self._projected(each, take(rows, each.row))
            moments.append(tf.reduce_sum(tf.stack([p * each.f, heights]), axis=1))
        order = tf.concat([each.row for each in points], axis=0)
        return tf.gather(tf.concat(moments, axis=1), tf.argsort(order), axis=1)

    def _visible(
        self, row: tf.Tensor, levels: tf.Tensor, rows: TiltedRows, tilted: Tilted
    ) -> Points:
        """Return the points of rows, without those where derivatives may be NaN."""
        taken = take(rows, row)
        level = tf.gather(levels, row)
        size = tf.reduce_max(tf.concat([_SIZES[:1], tf.gather(_SIZES, level)], axis=0))
        points = self._placed(size, level, row, taken, take(tilted, row))
        log_pi = self._log_pi(points.f, taken)
        is_visible = log_pi > tf.reduce_max(log_pi, axis=0) - 300.0
        f = tf.where(is_visible, points.f, taken.cavity.mean)
        weight = tf.where(is_visible, points.weight, 0.0)
        return points._replace(f=f, weight=weight)

    def _projected(self, points: Points, rows: TiltedRows) -> Tensors:
        """
        Return π times weights, and φ(T) times weights, [K, R]; differentiable. The sum of the
        latter is σ.
        """
        log_pi = self._log_pi(points.f, rows)
        pi = points.weight * tf.exp(log_pi - tf.reduce_max(log_pi, axis=0))
        p = pi / tf.reduce_sum(pi, axis=0)
        F = tf.clip_by_value(_convolved(p, points.steps), 0.0, 1.0)
        return p, points.weight * _normal_at(F)

    def _log_pi(self, f: tf.Tensor, rows: TiltedRows) -> tf.Tensor:
        (m, v), alpha, observations = rows
        return alpha * self._density.log_prob(f, *observations) - 0.5 * tf.square(f - m) / v

    def _distances(self, rows: TiltedRows, tilted: Tilted) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the level of each row, and the squared distance over v, [R]."""
        eps = epsilon(rows.alpha.dtype)

        def level(
            number: tf.Tensor, row: tf.Tensor, levels: tf.Tensor, distances: tf.Tensor
        ) -> Tensors:
            taken, target = take((rows, tilted), row)
            size = tf.constant(_SIZES)[number]
            points = self._placed(size, number, row, taken, target)
            p, heights = self._projected(points, taken)
            v = taken.cavity.variance
            change = points.f - taken.cavity.mean
            mean = tf.reduce_sum(p * change, axis=0)
            variance = tf.reduce_sum(p * tf.square(change - mean), axis=0)
            sigma = tf.reduce_sum(heights, axis=0)
            expected = taken.alpha * v * target.d1
            differences = [
                (mean - expected) / (tf.abs(expected) + tf.sqrt(variance)),
                variance / (v * target.variance_ratio) - 1.0,
            ]
            own = [*tf.unstack(_WAVE * (points.waves @ heights) / sigma), _END * (p[0] + p[-1])]
            error = tf.reduce_max(tf.abs(own), axis=0)
            difference = tf.reduce_max(tf.abs(differences), axis=0)
            is_last = tf.equal(number, len(_SIZES) - 1)
            # False for NaN.
            is_open = (tf.maximum(error, difference) > eps**0.5) & ~is_last
            is_lost = (error > _LARGEST) & is_last
            shorter = tf.nn.relu(1.0 - tf.square(sigma) / variance - 64.0 * eps)
            distance = tf.where(is_lost, np.nan * sigma, target.variance_ratio * shorter)
            levels, distances = (
                with_rows(old, row, new)
                for old, new in ((levels, number + tf.zeros_like(row)), (distances, distance))
            )
            return number + 1, tf.boolean_mask(row, is_open), levels, distances

        distances = tf.zeros_like(rows.alpha)
        row = tf.range(tf.size(distances))
        _, _, levels, distances = tf.while_loop(
            lambda number, row, *_: tf.size(row) > 0,
            level,
            (tf.constant(0), row, tf.zeros_like(row), distances),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None]),
                row.shape,
                distances.shape,
            ),
        )
        return levels, distances

    def _placed(
        self, size: tf.Tensor, level: tf.Tensor, row: tf.Tensor, rows: TiltedRows, tilted: Tilted
    ) -> Points:
        """
        Return K = `size` points in the windows of a level, [] or [R], for rows that have these
        tilted moments.
        """
        (m, v), alpha, _ = rows
        dtype = m.dtype
        sd = tf.sqrt(v)
        mean = alpha * sd * tilted.d1
        deviation = tf.sqrt(tilted.variance_ratio)
        near, far = (
            tf.gather(tf.constant(reach, dtype), level) * deviation for reach in (_NEAR, _FAR)
        )
        lower = tf.minimum(mean - near, tf.maximum(mean - far, -HALF))
        upper = tf.maximum(mean + near, tf.minimum(mean + far, HALF))
        begin = size - _SIZES[0]
        columns = tf.constant(_TABLE, dtype)[:, begin : begin + size]
        unit, waves = tf.split(tf.ensure_shape(columns, [3, None]), [1, 2])
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        # With more points also a likelihood that is narrow and far from the cavity is resolved.
        spread = 0.1 * tf.square(_SIZES[0] / tf.cast(size, dtype))
        x, weight, *_ = placed(self._density, rows, middle, half, unit, spread)
        steps = tf.constant(_STEPS, dtype)[_SIZES[-1] - size : _SIZES[-1] + size - 1]
        return Points(row, m + sd * x, sd * weight, steps, waves)


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
    slope = -tf.where(tf.math.is_finite(z), z, 0.0)
    return tf.exp(-0.5 * tf.square(z) - LOG_ROOT_2PI), lambda bar: bar * slope


@tilted_rule.register(ScalarLikelihood, Wasserstein)
def _wasserstein(likelihood: ScalarLikelihood, projection: Wasserstein) -> TiltedRule:
    return WassersteinRule(likelihood)
