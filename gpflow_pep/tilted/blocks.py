r"""
Tilted distributions N(f; m, C) ∏_i p(y_i|f_i)^α of blocks of d rows: in closed form for Gaussian
noise, otherwise by a product rule.

With Z the integral and π the normalized integrand, log Z / α has the derivatives in m

    g = E_π[∂ log p],    H = E_π[∂² log p] + α Cov_π[∂ log p],

without differences that cancel for small α or a singular C. At α = 0, π is the cavity, and E[log p]
takes the place of log Z / α.

The product rule is trapezoidal in x, f = m + L x, with a triangular L, C = L L', so that
p(y_i|f_i) has Kⁱ different values on K^d points. Coordinates are x = s sinh(t/s) with equispaced t,
which reach far at little cost. From level to level K grows, and windows shrink to where π is
visible.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood, ScalarLikelihood
from typing_extensions import override

from ..engine.block_sites import log_det_ratio
from ..engine.rows import noise_at
from ..maths.linalg import inverse_of_product, plus_identity
from ..maths.normal import LOG_ROOT_2PI
from ..runtime import Tensors, derivatives, watching
from .densities import Density, log_density

MOST_ROWS = 4  # of a block by the product rule
_MOST_POINTS = 2**18  # of a block: K is at most 58 for d = 3, and 22 for d = 4
_NUMBERS = (12, 16, 22, 30, 42, 58, 80)  # K of the levels
# Change between two levels after which the next is the last. If errors of K points are e, those of
# 1.4 K are about e^1.4: the last error is about 1e-9.
_TOLERANCE = 1e-5
_STRETCH = 3.0  # s; with K = 24 it is the best of 1.5 to 4 for probit, Poisson and Student's t
_HALF = 8.5  # half width of the first window in standard deviations of the cavity
_LEAST = -1e30  # of log p
# Largest change at the last level, and largest distance of points in f in units of the radius within
# which p is analytic: beyond either, moments are NaN. Of 9,450 single rows with cavity standard
# deviations of 0.03 to 100 all others have errors below 2e-5.
_LARGEST_CHANGE = 1e-3
_LARGEST_STEP = 0.35
# π is neglected below exp(-32) = 1e-14 of its maximum; the first levels may miss the maximum.
_VISIBLE = 32.0


class BlockCavity(NamedTuple):
    """The Gaussians that a likelihood tilts."""

    mean: tf.Tensor  # m, [G, d]
    covariance: tf.Tensor  # C, [G, d, d]


class BlockObservations(NamedTuple):
    """Inputs and observations of G blocks of d rows; smaller blocks are padded."""

    X: tf.Tensor  # [G, d, D]
    Y: tf.Tensor  # [G, d, P]
    mask: tf.Tensor  # 1 for rows, 0 for padding, [G, d]


class BlockTilted(NamedTuple):
    """
    log Z / α (E[log p] for α = 0) and its derivatives in m; 0 for padding, NaN if they are not
    resolved.
    """

    log_partition: tf.Tensor  # [G]
    slope: tf.Tensor  # g, [G, d]
    curvature: tf.Tensor  # H, [G, d, d]


class BlockRule(ABC):
    """Compute tilted distributions of blocks; powers alpha are [G]."""

    most_points = 1  #: of an array, for each block

    @abstractmethod
    def moments(
        self, cavity: BlockCavity, block: BlockObservations, alpha: tf.Tensor
    ) -> BlockTilted:
        """Compute the moments of each block."""

    def in_likelihood(
        self,
        cavity: BlockCavity,
        block: BlockObservations,
        alpha: tf.Tensor,
        variables: Sequence[tf.Variable],
    ) -> Tensors:
        """Differentiate the sum of log Z / α in variables of the likelihood."""
        with watching(variables) as tape:
            total = tf.reduce_sum(self.moments(cavity, block, alpha).log_partition)
        return derivatives(tape, total, variables)


def block_rule(likelihood: Likelihood, size: int) -> BlockRule:
    """
    Return the rule for blocks of at most `size` rows.

    :raises ValueError: if the likelihood has none.
    """
    if isinstance(likelihood, Gaussian):
        return GaussianBlocks(likelihood)
    name = type(likelihood).__name__
    if not isinstance(likelihood, ScalarLikelihood):
        raise ValueError(
            f"likelihood must have one latent function with blocks, got {name}; use gpflow_pep.PEP."
        )
    if size > MOST_ROWS:
        raise ValueError(
            f"blocks must have at most {MOST_ROWS} rows for {name}, got a block of {size}."
        )
    return ProductRule(likelihood, size)


class GaussianBlocks(BlockRule):
    """∏ N(y_i; f_i, s_i)^α is proportional to a Gaussian of variances s_i/α."""

    def __init__(self, likelihood: Gaussian):
        self._likelihood = likelihood

    @override
    def moments(
        self, cavity: BlockCavity, block: BlockObservations, alpha: tf.Tensor
    ) -> BlockTilted:
        X = tf.reshape(block.X, [-1, block.X.shape[-1]])
        noise = tf.reshape(noise_at(self._likelihood, X), tf.shape(block.mask))  # s
        error = block.Y[..., 0] - cavity.mean
        root = block.mask / tf.sqrt(noise)
        relative = root[:, :, None] * cavity.covariance * root[:, None, :]  # S^-1/2 C S^-1/2
        factor = tf.linalg.cholesky(plus_identity(alpha[:, None, None] * relative))
        inverse = inverse_of_product(factor)
        curvature = -root[:, :, None] * inverse * root[:, None, :]  # -(S + α C)^-1
        slope = -tf.linalg.matvec(curvature, error)
        constant = tf.reduce_sum(block.mask * tf.math.log(2.0 * np.pi * noise), axis=1)
        quadratic = tf.reduce_sum(slope * error, axis=1)
        log_partition = -0.5 * (constant + log_det_ratio(alpha, relative) + quadratic)
        return BlockTilted(log_partition, slope, curvature)


class ProductRule(BlockRule):
    """The product rule of a likelihood for blocks of `size` rows."""

    def __init__(self, likelihood: ScalarLikelihood, size: int):
        self._density = log_density(likelihood)
        self._numbers = [number for number in _NUMBERS if number**size <= _MOST_POINTS]
        self.most_points = self._numbers[-1] ** size

    @override
    def moments(
        self, cavity: BlockCavity, block: BlockObservations, alpha: tf.Tensor
    ) -> BlockTilted:
        lower = tf.linalg.matrix_transpose(tf.linalg.qr(symmetric_root(cavity.covariance)).r)
        numbers = tf.constant(self._numbers)
        sd = tf.sqrt(tf.linalg.diag_part(cavity.covariance))

        def integrated(level: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> _Level:
            return self._integrated(cavity.mean, lower, block, alpha, numbers[level], low, high)

        def step(
            level: tf.Tensor, _: tf.Tensor, low: tf.Tensor, high: tf.Tensor, last: tf.Tensor
        ) -> Tensors:
            tilted, low, high, _ = integrated(level, low, high)
            values = normalized(tilted)
            return level + 1, change_of(values, last), low, high, values

        def normalized(tilted: BlockTilted) -> tf.Tensor:
            curvature = sd[:, :, None] * tilted.curvature * sd[:, None, :]
            return tf.concat([(tilted.slope * sd)[:, None], curvature], axis=1)

        def change_of(values: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
            return tf.reduce_max(tf.abs(values - last) / (1.0 + tf.abs(values)), axis=[1, 2])

        def goes_on(level: tf.Tensor, change: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            is_accurate = tf.reduce_all(change <= _TOLERANCE)
            return (level < len(self._numbers) - 1) & ((level < 2) | ~is_accurate)

        end = _STRETCH * np.arcsinh(_HALF / _STRETCH) + tf.zeros_like(sd)
        values = tf.concat([sd[:, None], cavity.covariance], axis=1)
        state = (tf.constant(0), tf.zeros_like(alpha), -end, end, values)
        level, _, low, high, previous = tf.while_loop(goes_on, step, state, parallel_iterations=1)
        last = integrated(level, tf.stop_gradient(low), tf.stop_gradient(high))
        change = change_of(normalized(last.tilted), previous)
        is_resolved = last.is_resolved & (change <= _LARGEST_CHANGE)
        missing = tf.where(is_resolved, tf.zeros_like(alpha), np.nan)
        log_partition, slope, curvature = last.tilted
        return BlockTilted(
            log_partition + missing,
            slope + missing[:, None],
            curvature + missing[:, None, None],
        )

    def _integrated(
        self,
        mean: tf.Tensor,
        lower: tf.Tensor,
        block: BlockObservations,
        alpha: tf.Tensor,
        number: tf.Tensor,
        low: tf.Tensor,
        high: tf.Tensor,
    ) -> "_Level":
        """Integrate on `number` points in t from low to high, [G, d], in each coordinate."""
        d = block.mask.shape[1]
        axes = list(range(d))
        step = (high - low) / tf.cast(number - 1, low.dtype)
        t = [low[:, i] + step[:, i] * tf.cast(tf.range(number), low.dtype)[:, None] for i in axes]
        x: list[tf.Tensor] = []
        densities: list[Density] = []
        log_pi = -d * LOG_ROOT_2PI
        log_weight = 0.0
        for i in axes:
            shape = [*[1] * i, number, *[1] * (d - 1 - i), -1]
            x.append(tf.reshape(_STRETCH * tf.sinh(t[i] / _STRETCH), shape))
            log_weight += tf.reshape(tf.math.log(tf.cosh(t[i] / _STRETCH) * step[:, i]), shape)
            f = mean[:, i] + sum(lower[:, i, j] * x[j] for j in range(i + 1))  # K^(i + 1) values
            densities.append(self._at(f, block, i))
            log_pi += alpha * densities[i].log_prob - 0.5 * tf.square(x[i])
        peak = tf.reduce_max(log_pi + log_weight, axis=axes)
        P = tf.exp(log_pi + log_weight - peak)  # [K, ..., K, G]
        mass = tf.reduce_sum(P, axis=axes)  # [G]
        P /= mass
        expected: list[tf.Tensor] = []
        slopes: list[tf.Tensor] = []
        curvatures: list[tf.Tensor] = []
        rows: list[tf.Tensor] = []
        for i in reversed(axes):
            value, slope, curvature = densities[i]
            for found, each in (expected, value), (slopes, slope), (curvatures, curvature):
                found.insert(0, tf.reduce_sum(P * each, axis=axes))
            row = [tf.reduce_sum(P * slope * densities[j].slope, axis=axes) for j in range(i + 1)]
            rows.insert(0, tf.stack([*row, *[tf.zeros_like(mass)] * (d - 1 - i)], axis=-1))
            P = tf.reduce_sum(P, axis=i, keepdims=True)  # of f_1, ..., f_i
        log_Z = peak + tf.math.log(mass)
        log_partition = tf.where(alpha > 0.0, tf.math.divide_no_nan(log_Z, alpha), sum(expected))
        g = tf.stack(slopes, axis=-1)
        products = tf.stack(rows, axis=1)  # E[∂ log p ∂ log p'], the lower triangle
        products += tf.linalg.matrix_transpose(tf.linalg.set_diag(products, tf.zeros_like(g)))
        H = alpha[:, None, None] * (products - g[:, :, None] * g[:, None, :])
        H += tf.linalg.diag(tf.stack(curvatures, axis=-1))

        threshold = tf.reduce_max(log_pi, axis=axes) - _VISIBLE
        ends = []
        is_resolved = tf.fill(tf.shape(mass), True)
        for i in axes:
            others = [axis for axis in axes if axis != i]
            is_visible = tf.reduce_max(log_pi, axis=others) >= threshold  # [K, G]
            radius = tf.cast(self._density.radius(block.X[:, i]), mass.dtype)
            distance = tf.reduce_max(step * tf.abs(lower[:, i]), axis=1)
            is_fine = (distance <= _LARGEST_STEP * radius) | tf.equal(radius, 0.0)
            is_inside = ~is_visible[0] & ~is_visible[-1]
            is_resolved &= (is_fine & is_inside) | (block.mask[:, i] == 0.0)
            far = tf.where(is_visible, tf.zeros_like(t[i]), np.inf)
            ends.append((tf.reduce_min(t[i] + far, axis=0), tf.reduce_max(t[i] - far, axis=0)))
        low, high = (tf.stack(end, axis=1) for end in zip(*ends, strict=True))
        return _Level(BlockTilted(log_partition, g, H), low - step, high + step, is_resolved)

    def _at(self, f: tf.Tensor, block: BlockObservations, i: int) -> Density:
        """Return the density of row i of each block at f [..., G]: 1 for padding."""
        density = self._density(tf.reshape(f, [-1, tf.shape(f)[-1]]), block.X[:, i], block.Y[:, i])
        is_zero = density.log_prob < _LEAST  # then derivatives may be infinite
        is_row = block.mask[:, i] > 0.0
        values = (
            tf.where(is_row, tf.where(is_zero, tf.cast(least, f.dtype), each), 0.0)
            for each, least in zip(density, (_LEAST, 0.0, 0.0), strict=True)
        )
        return Density(*(tf.reshape(each, tf.shape(f)) for each in values))


class _Level(NamedTuple):
    """Moments on the points of a level, and the window in which π is visible, [G, d]."""

    tilted: BlockTilted
    low: tf.Tensor
    high: tf.Tensor
    # The points are close enough for the likelihood and reach beyond the visible part of π, [G].
    is_resolved: tf.Tensor


def symmetric_root(S: tf.Tensor) -> tf.Tensor:
    """Return the symmetric root of positive semidefinite matrices [G, d, d], up to rounding."""
    eigenvalues, U = tf.linalg.eigh(S)
    return tf.matmul(U * tf.sqrt(tf.nn.relu(eigenvalues))[:, None, :], U, transpose_b=True)
