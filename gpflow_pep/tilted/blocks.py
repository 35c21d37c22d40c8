r"""
Tilted distributions N(f; m, C) ∏_i p(y_i|f_i)^α of blocks of d rows: in closed form for Gaussian
noise, otherwise by a product rule.

With Z the integral and π the normalized integrand, log Z / α has the derivatives in m

    g = E_π[∂ log p],    H = E_π[∂² log p] + α Cov_π[∂ log p],

without differences that cancel for small α or a singular C. At α = 0, π is the cavity, and E[log p]
takes the place of log Z / α.

The product rule is trapezoidal in x, f = m + L x, with a triangular L, C = L L', so that
p(y_i|f_i) has Kⁱ different values on K^d points. A cavity may be much wider than the likelihood.
The points x_i are therefore dense near the point at which f_i, given the coordinates before, is at
the center c of the likelihood (see `trapezoid.py`): with equispaced t,

    x_i = z + a sinh(t),    z = (c_i - m_i - Σ_{j<i} L_ij x_j) / L_ii.

The first windows are about the mode of π. From level to level K grows, and windows shrink to where
π is visible.
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
from ..maths.linalg import epsilon, inverse_of_product, plus_identity
from ..maths.normal import LOG_ROOT_2PI
from ..runtime import Tensors, derivatives, watching
from .densities import Density, log_density
from .rule import Observations, overrides_density

MOST_ROWS = 4  # of a block by the product rule
_NUMBERS = (12, 16, 22, 30, 42, 58, 80)  # K of the levels
_MOST = (80, 80, 58, 30)  # K of the last level for 1 to 4 rows
# Change between two levels after which the next is the last. If errors of K points are e, those of
# 1.4 K are about e^1.4: the last error is about 1e-9, and 1e-6 for four rows.
_TOLERANCE = 1e-5
_TOLERANCE_OF_FOUR = 1e-3
_HALF = 8.5  # half width of the first window, in standard deviations of the cavity
_LEAST = -1e30  # of log p
_SMALLEST = 1e-30  # of divisors
# Smallest a as a share of the distance between center and conditional mean, so that points resolve
# the cavity.
_SPREAD = 0.1
_NEAR_MODE = 0.1  # accepted distance to the mode, in x
_FARTHEST = 1e3  # x of centers
# Beyond any of these, moments are NaN: the largest change at the last level and error of E[x], and,
# for a likelihood without a center, the largest distance of points in f in units of the radius
# within which p is analytic.
_LARGEST_CHANGE = 1e-4
_LARGEST_CHANGE_OF_FOUR = 1e-3
_LARGEST_STEP = 0.35
# π is neglected below exp(-32) = 1e-14 of its maximum; the first levels may miss the maximum.
_VISIBLE = 32.0
# At the ends of a window π may be larger than that by e^12, 2e-9 of its maximum: coarse points may
# miss where a window must be wider.
_MARGIN = 12.0


class BlockCavity(NamedTuple):
    """The Gaussians that a likelihood tilts."""

    mean: tf.Tensor  # m, [G, d]
    covariance: tf.Tensor  # C, [G, d, d]


class BlockObservations(NamedTuple):
    """Inputs and observations of G blocks of d rows; smaller blocks are padded."""

    X: tf.Tensor  # [G, d, D]
    Y: tf.Tensor  # [G, d, P]
    mask: tf.Tensor  # 1 for rows, 0 for padding, [G, d]

    def row(self, i: int) -> "_Rows":
        """Return row i of each block."""
        return _Rows(self.X[:, i], self.Y[:, i], self.mask[:, i])

    def rows(self) -> "_Rows":
        """Return all rows, block by block."""
        X, Y = (tf.reshape(values, [-1, values.shape[2]]) for values in (self.X, self.Y))
        return _Rows(X, Y, tf.reshape(self.mask, [-1]))


class _Rows(NamedTuple):
    """Inputs and observations of R rows, and a mask, 0 for padding."""

    X: tf.Tensor  # [R, D]
    Y: tf.Tensor  # [R, P]
    mask: tf.Tensor  # [R]


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
    if isinstance(likelihood, Gaussian) and not overrides_density(likelihood, (Gaussian,)):
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
        self._numbers = [number for number in _NUMBERS if number <= _MOST[size - 1]]
        is_coarse = size == MOST_ROWS
        self._tolerance = _TOLERANCE_OF_FOUR if is_coarse else _TOLERANCE
        self._largest_change = _LARGEST_CHANGE_OF_FOUR if is_coarse else _LARGEST_CHANGE
        self.most_points = self._numbers[-1] ** size

    @override
    def moments(
        self, cavity: BlockCavity, block: BlockObservations, alpha: tf.Tensor
    ) -> BlockTilted:
        sd = tf.sqrt(tf.nn.relu(tf.linalg.diag_part(cavity.covariance)))
        numbers = tf.constant(self._numbers)
        lower = tf.linalg.matrix_transpose(tf.linalg.qr(symmetric_root(cavity.covariance)).r)
        one = tf.ones_like(sd)
        sign = tf.where(tf.linalg.diag_part(lower) < 0.0, -one, one)
        lower *= sign[:, None, :]  # diagonal entries are not negative
        mode, height = map(tf.stop_gradient, self._mode(cavity.mean, lower, block, alpha))
        at_mode = cavity.mean + tf.linalg.matvec(lower, mode)
        centers = _Centers(*map(tf.stop_gradient, self._centers(at_mode, block, alpha)))

        def integrated(level: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> _Level:
            number = numbers[level]
            points = self._points(cavity.mean, lower, block, alpha, centers, low, high, number)
            tilted, expected_x = _moments(points, alpha)
            low, high, is_resolved = self._visible(points, block, number)
            slope = sd * tilted.slope
            curvature = sd[:, :, None] * tilted.curvature * sd[:, None, :]
            values = [tilted.log_partition[:, None], slope, tf.reshape(curvature, [-1, d * d])]
            # By integration by parts E[x] = α L'g.
            by_parts = alpha[:, None] * tf.linalg.matvec(lower, tilted.slope, transpose_a=True)
            is_resolved &= _distance(expected_x, by_parts) <= self._largest_change
            return _Level(tilted, low, high, tf.concat(values, axis=1), is_resolved)

        def step(
            level: tf.Tensor, _: tf.Tensor, low: tf.Tensor, high: tf.Tensor, last: tf.Tensor
        ) -> Tensors:
            found = integrated(level, low, high)
            return level + 1, _distance(found.values, last), found.low, found.high, found.values

        def goes_on(level: tf.Tensor, change: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            is_accurate = tf.reduce_all(change <= self._tolerance)
            return (level < len(self._numbers) - 1) & ((level < 2) | ~is_accurate)

        d = block.mask.shape[1]
        low, high = _first_window(mode)
        values = tf.tile(alpha[:, None], [1, 1 + d + d * d])
        state = (tf.constant(0), tf.zeros_like(alpha), low, high, values)
        level, _, low, high, previous = tf.while_loop(goes_on, step, state, parallel_iterations=1)
        last = integrated(level, tf.stop_gradient(low), tf.stop_gradient(high))
        is_resolved = last.is_resolved & (_distance(last.values, previous) <= self._largest_change)
        is_resolved &= ~self._misses_center(mode, height, cavity.mean, lower, block, alpha, centers)
        missing = tf.where(is_resolved, tf.zeros_like(alpha), np.nan)
        log_partition, slope, curvature = last.tilted
        return BlockTilted(
            log_partition + missing,
            slope + missing[:, None],
            curvature + missing[:, None, None],
        )

    def _mode(
        self, mean: tf.Tensor, lower: tf.Tensor, block: BlockObservations, alpha: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Return x near a mode of π, [G, d], and log π + constant there, [G], by Newton's method with
        steps halved where π falls.
        """

        def step(number: tf.Tensor, x: tf.Tensor, height: tf.Tensor, move: tf.Tensor) -> Tensors:
            trial = x + move
            at = self._at_rows(mean + tf.linalg.matvec(lower, trial), block)
            log_prob, slope, curvature = (alpha[:, None] * each for each in at)
            log_pi = tf.reduce_sum(log_prob - 0.5 * tf.square(trial), axis=1)
            # Larger weights would lose the 1 in 1 + L'W L, and they change no mode.
            largest = 0.01 / (epsilon(trial.dtype) * tf.maximum(variance, _SMALLEST))
            weight = tf.clip_by_value(-curvature, 0.0, largest)
            weighted = weight[:, :, None] * lower
            factor = tf.linalg.cholesky(plus_identity(tf.matmul(lower, weighted, transpose_a=True)))
            pull = tf.linalg.matvec(lower, slope, transpose_a=True) - trial
            newton = tf.linalg.cholesky_solve(factor, pull[:, :, None])[:, :, 0]
            rises = log_pi >= height
            return (
                number + 1,
                tf.where(rises[:, None], trial, x),
                tf.where(rises, log_pi, height),
                tf.where(rises[:, None], newton, 0.5 * move),
            )

        def goes_on(
            number: tf.Tensor, x: tf.Tensor, height: tf.Tensor, move: tf.Tensor
        ) -> tf.Tensor:
            is_far = tf.reduce_any(tf.abs(move) > _NEAR_MODE)
            return (number < 1) | ((number < 100) & is_far)

        variance = tf.reduce_sum(tf.square(lower), axis=2)
        zero = tf.zeros_like(mean)
        state = (tf.constant(0), zero, zero[:, 0] - np.inf, zero)
        _, x, height, _ = tf.while_loop(goes_on, step, state, parallel_iterations=1)
        return x, height

    def _centers(self, mode: tf.Tensor, block: BlockObservations, alpha: tf.Tensor) -> "_Centers":
        """
        Return centers and widths of the likelihoods; without a center, those at the mode of π, f
        [G, d].
        """
        rows = block.rows()
        if self._density.center is None:
            curvature = self._at_rows(mode, block).curvature
            precision = tf.maximum(-alpha[:, None] * curvature, _SMALLEST)
            return _Centers(mode, tf.math.rsqrt(precision))
        center = self._density.center(Observations(rows.X, rows.Y))
        values = (center, 0.7 * self._density.radius(rows.X))  # as in `trapezoid.py`
        return _Centers(
            *(tf.reshape(each + tf.zeros_like(rows.mask), tf.shape(mode)) for each in values)
        )

    def _points(
        self,
        mean: tf.Tensor,
        lower: tf.Tensor,
        block: BlockObservations,
        alpha: tf.Tensor,
        centers: "_Centers",
        low: tf.Tensor,
        high: tf.Tensor,
        number: tf.Tensor,
    ) -> "_Points":
        """Evaluate π on K = `number` points in x from low to high, [G, d], in each coordinate."""
        d = mean.shape[1]
        x: list[tf.Tensor] = []
        spacings: list[tf.Tensor] = []
        densities: list[Density] = []
        log_pi = -d * LOG_ROOT_2PI
        log_weight = 0.0
        for i in range(d):
            own = tf.maximum(lower[:, i, i], _SMALLEST)
            f = tf.reshape(mean[:, i], [*[1] * d, -1])
            f += sum(lower[:, i, j] * x[j] for j in range(i))  # Kⁱ values, without f_i's own x
            z = tf.clip_by_value((centers.value[:, i] - f) / own, low[:, i], high[:, i])
            half = 0.5 * (high[:, i] - low[:, i])
            a = tf.sqrt(tf.square(centers.width[:, i] / own) + tf.square(_SPREAD * z))
            a = tf.clip_by_value(a, 1e-6 * half, 4.0 * half)
            first, last = (tf.asinh((end[:, i] - z) / a) for end in (low, high))
            step = (last - first) / tf.cast(number - 1, first.dtype)
            order = tf.reshape(tf.range(number), [*[1] * i, number, *[1] * (d - i)])
            t = first + step * tf.cast(order, first.dtype)
            x.append(z + a * tf.sinh(t))
            log_weight += tf.math.log(a * tf.cosh(t) * step)
            spacings.append(own * a * step)
            densities.append(self._at(f + lower[:, i, i] * x[i], block.row(i)))
            log_pi += alpha * densities[i].log_prob - 0.5 * tf.square(x[i])
        return _Points(x, spacings, densities, log_pi, log_weight)

    def _misses_center(
        self,
        mode: tf.Tensor,
        height: tf.Tensor,
        mean: tf.Tensor,
        lower: tf.Tensor,
        block: BlockObservations,
        alpha: tf.Tensor,
        centers: "_Centers",
    ) -> tf.Tensor:
        """
        Return whether π at the centers, outside of the first window, is above e^-20 of π at the
        mode, whose logarithm is `height`, [G]. This happens only if the likelihood is not
        log-concave.
        """
        diagonal = tf.maximum(tf.linalg.diag_part(lower), _SMALLEST)
        factor = tf.linalg.set_diag(lower, diagonal)
        x = tf.linalg.triangular_solve(factor, (centers.value - mean)[:, :, None])[:, :, 0]
        x = tf.clip_by_value(x, -_FARTHEST, _FARTHEST)
        low, high = _first_window(mode)
        is_outside = tf.reduce_any((x < low) | (x > high), axis=1)
        log_prob = self._at_rows(mean + tf.linalg.matvec(lower, x), block).log_prob
        log_pi = tf.reduce_sum(alpha[:, None] * log_prob - 0.5 * tf.square(x), axis=1)
        return is_outside & (log_pi > height + _MARGIN - _VISIBLE)

    def _visible(
        self, points: "_Points", block: BlockObservations, number: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Return the window about the visible part of π, up to the next points, [G, d], and whether
        the points resolve π and reach beyond this part, [G].
        """
        axes = list(range(len(points.x)))
        log_pi = points.log_pi
        threshold = tf.reduce_max(log_pi, axis=axes) - _VISIBLE
        order = tf.range(number)
        ends: list[tuple[tf.Tensor, tf.Tensor]] = []
        is_resolved = tf.fill(tf.shape(threshold), True)
        for i in reversed(axes):
            x = points.x[i]
            outermost = tf.gather(log_pi, [0, number - 1], axis=i)
            is_fine = tf.reduce_max(outermost, axis=axes) < threshold + _MARGIN
            for shift in (-1, 1):
                next_to = tf.clip_by_value(order + shift, 0, number - 1)
                log_pi = tf.maximum(log_pi, tf.gather(log_pi, next_to, axis=i))
            far = tf.where(log_pi >= threshold, tf.zeros_like(x), np.inf)
            ends.append((tf.reduce_min(x + far, axis=axes), tf.reduce_max(x - far, axis=axes)))
            log_pi = tf.reduce_max(log_pi, axis=i, keepdims=True)
            if self._density.center is None:
                visible = tf.where(log_pi >= threshold, points.spacings[i], 0.0)
                radius = tf.cast(self._density.radius(block.X[:, i]), x.dtype)
                limit = tf.where(radius > 0.0, _LARGEST_STEP * radius, np.inf)
                is_fine &= tf.reduce_max(visible, axis=axes) <= limit
            is_resolved &= is_fine | (block.mask[:, i] == 0.0)
        low, high = (tf.stack(end[::-1], axis=1) for end in zip(*ends, strict=True))
        return low, high, is_resolved

    def _at_rows(self, f: tf.Tensor, block: BlockObservations) -> Density:
        """Return the densities of all rows at f [G, d]."""
        density = self._at(tf.reshape(f, [-1]), block.rows())
        return Density(*(tf.reshape(each, tf.shape(f)) for each in density))

    def _at(self, f: tf.Tensor, rows: "_Rows") -> Density:
        """Return the densities of R rows at f [..., R]: 1 for padding."""
        density = self._density(tf.reshape(f, [-1, tf.shape(f)[-1]]), rows.X, rows.Y)
        is_zero = density.log_prob < _LEAST  # then derivatives may be infinite
        values = (
            tf.where(rows.mask > 0.0, tf.where(is_zero, tf.cast(least, f.dtype), each), 0.0)
            for each, least in zip(density, (_LEAST, 0.0, 0.0), strict=True)
        )
        return Density(*(tf.reshape(each, tf.shape(f)) for each in values))


class _Centers(NamedTuple):
    """The f near which p(y|f)^α changes fastest, and the widths of the change, [G, d]."""

    value: tf.Tensor
    width: tf.Tensor


class _Points(NamedTuple):
    """
    Points of blocks of d rows. Coordinate i and row i have K^(i + 1) values, [K, ..., K, 1, ..., 1,
    G].
    """

    x: Sequence[tf.Tensor]
    spacings: Sequence[tf.Tensor]  # of f_i near the center, one value of K in coordinate i
    densities: Sequence[Density]  # of row i
    log_pi: tf.Tensor  # log π + constant, [K, ..., K, G]
    log_weight: tf.Tensor


class _Level(NamedTuple):
    """Moments on the points of a level, and the next window, [G, d]."""

    tilted: BlockTilted
    low: tf.Tensor
    high: tf.Tensor
    values: tf.Tensor  # The moments in units of the cavity, [G, 1 + d + d²]
    is_resolved: tf.Tensor  # [G]


def _first_window(mode: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the ends of the window about the cavity and the mode of π, x [G, d]."""
    return tf.minimum(mode, 0.0) - _HALF, tf.maximum(mode, 0.0) + _HALF


def _distance(values: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Return the largest difference of values [G, K], relative to those above 1, [G]."""
    return tf.reduce_max(tf.abs(values - others) / (1.0 + tf.abs(values)), axis=1)


def _moments(points: _Points, alpha: tf.Tensor) -> tuple[BlockTilted, tf.Tensor]:
    """Compute the moments of blocks with powers [G], and E_π[x], [G, d], from their points."""
    densities = points.densities
    d = len(densities)
    axes = list(range(d))
    terms = points.log_pi + points.log_weight
    peak = tf.reduce_max(terms, axis=axes)
    P = tf.exp(terms - peak)
    mass = tf.reduce_sum(P, axis=axes)  # [G]
    P /= mass
    expected: list[tf.Tensor] = []
    slopes: list[tf.Tensor] = []
    curvatures: list[tf.Tensor] = []
    rows: list[tf.Tensor] = []
    means: list[tf.Tensor] = []
    for i in reversed(axes):
        value, slope, curvature = densities[i]
        for found, each in (expected, value), (slopes, slope), (curvatures, curvature):
            found.insert(0, tf.reduce_sum(P * each, axis=axes))
        row = [tf.reduce_sum(P * slope * densities[j].slope, axis=axes) for j in range(i + 1)]
        rows.insert(0, tf.stack([*row, *[tf.zeros_like(mass)] * (d - 1 - i)], axis=-1))
        means.insert(0, tf.reduce_sum(P * points.x[i], axis=axes))
        P = tf.reduce_sum(P, axis=i, keepdims=True)  # of f_1, ..., f_i
    log_Z = peak + tf.math.log(mass)
    log_partition = tf.where(alpha > 0.0, tf.math.divide_no_nan(log_Z, alpha), sum(expected))
    g = tf.stack(slopes, axis=-1)
    products = tf.stack(rows, axis=1)  # E[∂ log p ∂ log p'], the lower triangle
    products += tf.linalg.matrix_transpose(tf.linalg.set_diag(products, tf.zeros_like(g)))
    H = alpha[:, None, None] * (products - g[:, :, None] * g[:, None, :])
    H += tf.linalg.diag(tf.stack(curvatures, axis=-1))
    return BlockTilted(log_partition, g, H), tf.stack(means, axis=1)


def symmetric_root(S: tf.Tensor) -> tf.Tensor:
    """Return the symmetric root of positive semidefinite matrices [G, d, d], up to rounding."""
    eigenvalues, U = tf.linalg.eigh(S)
    return tf.matmul(U * tf.sqrt(tf.nn.relu(eigenvalues))[:, None, :], U, transpose_b=True)
