"""
The Laplace transform of a log-normal variable, S(x) = E[exp(-exp(u))] with u ~ N(x, v), and its
hazard -S'/S.

S is the probability that u is below the logarithm of an exponential variable. Shifting the mean
gives

    -S'(x) = E[exp(u) exp(-exp(u))] = exp(x + v/2) S(x + v).

Expectations are trapezoidal sums, which converge exponentially: over the normal variable for small
v, over u for large v. For large v a function that approximates exp(-exp(u)) in both tails is
subtracted, whose expectation is known: with a constant b and B² = v + b²

    E[Φ(-u/b)] = Φ(-x/B),   E[exp(u) Φ(-u/b)] = exp(x + v/2) Φ(-(x + v)/B).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import chebyshev
from scipy.special import ndtr

from ..maths.normal import log_ndtr
from ..runtime import Tensors, on_demand

_WIDTH = 0.5  # b: the remainders are small and smooth on the scale of the nodes
LARGEST_VARIANCE = 60.0  # of the table; larger ones would need polynomials of a higher degree


def log_survival(x: tf.Tensor, variance: tf.Tensor) -> Tensors:
    """
    Return log S(x) and the hazard, [Q, K], for x [Q, K] and v [Q], with a relative error of 1e-10
    for hazards below about 1, and of 1e-9 below 2; farther to the right S has an absolute error of
    1e-15. Far on the left, log S nearer to 0 than 1e-14 is less accurate.
    """
    group = tf.where(variance < 1.0, 0, tf.where(variance < LARGEST_VARIANCE, 1, 2))
    return _by_group(x, variance, group, [_narrow, _wide, _very_wide])


def _by_group(
    x: tf.Tensor, variance: tf.Tensor, group: tf.Tensor, functions: Sequence[Callable[..., Tensors]]
) -> Tensors:
    """Compute the rows of each group, numbered from 0 [Q], by the function of this number."""
    indices = tf.dynamic_partition(tf.range(tf.size(group)), group, len(functions))
    parts = [
        function(tf.gather(x, index), tf.gather(variance, index))
        for function, index in zip(functions, indices, strict=True)
    ]
    return tuple(tf.dynamic_stitch(indices, list(values)) for values in zip(*parts, strict=True))


def smallest(dtype: tf.DType) -> float:
    """Return the smallest argument of logarithms, which replaces 0."""
    return max(1e-300, float(np.finfo(dtype.as_numpy_dtype).tiny))


def _remainders() -> tuple[AnyNDArray, AnyNDArray]:
    """
    Return nodes u [64], and weights times remainders of 1 - exp(-y), exp(-y) and y exp(-y), y =
    exp(u), [64, 3].
    """
    # On the left half as dense in u, which still resolves densities with a variance of 1.
    tau = np.linspace(-15.0, 4.5, 64)
    ratio = np.exp(-0.5 * (tau + 3.0))
    u = tau - 2.0 * np.log1p(ratio)
    y = np.exp(u)
    above = ndtr(u / _WIDTH)
    missed = -np.expm1(-y)
    # missed - y without cancellation.
    series = -y * y * (0.5 - y * (1.0 / 6.0 - y * (1.0 / 24.0 - y / 120.0)))
    difference = np.where(y < 0.01, series, missed - y)
    remainders = np.stack(
        [difference - above * (1.0 - y), above - missed, y * (above - missed)], axis=1
    )
    weights = (tau[1] - tau[0]) * (1.0 + ratio / (1.0 + ratio)) / np.sqrt(2.0 * np.pi)
    return u, weights[:, None] * remainders


_NODES = _remainders()


def _few_remainders() -> tuple[AnyNDArray, AnyNDArray]:
    """
    Return nodes and weights, [24] and [24, 3], whose sums agree with those of :func:`_remainders`
    to 1e-10 if v is at least LARGEST_VARIANCE. They are fitted: N(u; x, v) is proportional to
    exp(s u - q u²), s = x/v, and q = 1/(2v) is small.
    """
    nodes = np.linspace(-12.0, 2.5, 24)
    q = np.linspace(0.0, 0.5 / LARGEST_VARIANCE, 5)[:, None, None]
    # F is needed for x < 0 and S for x > 0. If s < -1.3, all sums are negligible.
    ranges = (-1.3, 0.1), (-0.1, 2.0), (-1.3, 2.0)
    weights = []
    for remainder, (first, last) in zip(_NODES[1].T, ranges, strict=True):
        s = np.linspace(first, last, 80)[:, None]
        exact, fitted = (np.exp(s * u - q * u**2).reshape(-1, len(u)) for u in (_NODES[0], nodes))
        weights.append(np.linalg.lstsq(fitted, exact @ remainder, rcond=1e-15)[0])
    return nodes, np.stack(weights, axis=1)


_FEW_NODES = _few_remainders()


def _narrow(x: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sum over the normal variable, for x [Q, K] and v [Q]."""
    v = v[:, None]
    nodes = np.linspace(-8.4, 7.6, 48)  # S at large x depends on the left tail
    density = np.exp(-0.5 * nodes**2)
    weights = tf.constant(density / density.sum(), x.dtype)
    factor = tf.exp(tf.sqrt(v) * tf.constant(nodes, x.dtype))  # [Q, 48]
    scale = tf.exp(tf.minimum(x, 40.0))  # S underflows before
    values = tf.exp(
        -scale[..., None] * (factor - factor[:, :1])[:, None]
    )  # [Q, K, 48], 1 at the first node
    sums = tf.matmul(
        values, tf.stack([weights + tf.zeros_like(factor), weights * factor], axis=-1)
    )  # [Q, K, 2]
    S, slope = tf.unstack(sums, axis=-1)
    # 1 - S = E[y] - E[y²]/2 + E[y³]/6 - E[y⁴]/24, E[y^k] = s^k g^(k²), s = exp(x), g = exp(v/2): to
    # 1e-13 if x < -10.
    far = x < -10.0
    s = tf.where(far, scale, 0.0)
    g = tf.exp(0.5 * v)
    F = tf.ones_like(x)
    for k in (3, 2, 1):
        F = 1.0 - s * g ** (2 * k + 1) * F / (k + 1)
    log_S = tf.where(far, tf.math.log1p(-s * g * F), tf.math.log(S) - scale * factor[:, :1])
    return log_S, scale * slope / S


def _wide(
    x: tf.Tensor, v: tf.Tensor, nodes: tuple[AnyNDArray, AnyNDArray] = _NODES
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Sum over u, for x [Q, K] and v [Q]. If x > 0, the sums are multiplied by exp(x²/2v) to avoid
    underflow.
    """
    dtype = x.dtype
    v = v[:, None]
    sd = tf.sqrt(v)
    B = tf.sqrt(v + _WIDTH**2)
    # Standard deviations beyond x = v: S is 1e-300 or 1e-37 there.
    farthest = {tf.float64: 40.0, tf.float32: 13.0}[dtype]
    beyond = x
    x = tf.minimum(x, v + farthest * sd)
    height = -0.5 * tf.square(tf.nn.relu(x)) / v
    parts = [
        x / v,
        -0.5 / v + tf.zeros_like(x),
        -0.5 * tf.square(tf.nn.relu(-x)) / v - tf.math.log(sd),
    ]
    points, remainders = nodes
    u = tf.constant(np.stack([points, points**2, np.ones_like(points)]), dtype)
    # N(u; x, v) times this factor, [Q, K, nodes].
    density = tf.exp(tf.einsum("qkp,pn->qkn", tf.stack(parts, axis=-1), u))
    F, S, slope = tf.unstack(tf.einsum("qkn,ns->sqk", density, tf.constant(remainders, dtype)))
    tail = tf.exp(x + 0.5 * v + log_ndtr(-(x + v) / B) - height)
    F += tf.exp(log_ndtr(x / B)) + tail
    S += tf.exp(log_ndtr(-x / B) - height)
    left = x < 0.0
    F = tf.where(left, F, 0.0)
    S = tf.where(left, 1.0 - F, tf.maximum(S, smallest(dtype)))
    fall = -0.5 * tf.square(tf.nn.relu(beyond)) / v
    return tf.where(left, tf.math.log1p(-F), fall + tf.math.log(S)), tf.nn.relu(slope + tail) / S


_very_wide = functools.partial(_wide, nodes=_FEW_NODES)


# --- a table of S in x and v ----------------------------------------------------------------------
# G(x, v) = log(-log S(x)) is x for v = 0, nearly x + v/2 on the far left, and approaches 2 log x on
# the right. Absolute errors of G are relative errors of log S. The table contains G - x as
# polynomials on panels of x that depend on v; their coefficients are Chebyshev sums in a function
# of v. With c = -√v/2, a = 10 + 3 √v and r = |x - c|/a, the panels on each side of c have equal
# widths in r/(1 + r).

LOWEST = -150.0  # smallest log S in the table; G is extrapolated linearly beyond
LARGEST_G = 50.0  # S = exp(-exp(50)) is 0
# Panels on each side of c, and degree of the polynomials, for the errors of tabulated_survival.
_PANELS = 20
_DEGREE = 9
_OFFSET = 0.3
_TERMS = 56  # of the Chebyshev sums in log(√v + _OFFSET); for the same errors


def quick_survival(x: tf.Tensor, variance: tf.Tensor) -> Tensors:
    """
    Compute log S and the hazard for x [Q, K] and v [Q], by the table where v is at most
    LARGEST_VARIANCE, else by a sum.
    """
    is_wide = variance > LARGEST_VARIANCE
    return tuple(
        tf.cond(
            tf.reduce_any(is_wide),
            lambda: _partly_summed(x, variance, is_wide),
            lambda: tabulated_survival(x, variance),
        )
    )


@on_demand
def _partly_summed(x: tf.Tensor, variance: tf.Tensor, is_wide: tf.Tensor) -> Tensors:
    """Compute narrow rows by the table and wide rows by a sum."""
    return _by_group(x, variance, tf.cast(is_wide, tf.int32), [tabulated_survival, _very_wide])


def tabulated_survival(x: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Interpolate log S and the hazard for x [Q, K] and v [Q], at most LARGEST_VARIANCE.

    The relative error of log S is 1e-10 up to v = 30 and 1e-9 up to LARGEST_VARIANCE; for log S
    below -30 it is up to 4e-9, and below LOWEST it is not bounded. Errors of the hazard are ten
    times larger. Not differentiable in v at the ends of the table.
    """
    dtype = x.dtype
    root = tf.sqrt(tf.minimum(variance, LARGEST_VARIANCE))
    first, last = np.log(np.sqrt([0.0, LARGEST_VARIANCE]) + _OFFSET)
    position = (2.0 * tf.math.log(root + _OFFSET) - first - last) / (last - first)
    # Chebyshev polynomials T_n(cos θ) = cos(n θ), [Q, T].
    angle = tf.acos(tf.clip_by_value(position, -1.0, 1.0))
    basis = tf.cos(angle[:, None] * tf.range(_TERMS, dtype=dtype))
    polynomials = tf.reshape(basis @ tf.constant(_table(), dtype), [-1, 2 * _PANELS, _DEGREE + 1])

    center, scale, left, right, *densities = _panels(root[:, None], tf.math)
    inside = tf.clip_by_value(x, left, right)
    from_center = inside - center
    is_right = from_center > 0.0
    sign = tf.sign(from_center)
    first_index = tf.where(is_right, _PANELS, 0)
    density = tf.where(is_right, densities[1], densities[0])
    outward = 1.0 / (scale + tf.abs(from_center))
    count = density * tf.abs(from_center) * outward
    # NaN becomes a negative number.
    panel = tf.clip_by_value(tf.cast(count, tf.int32), 0, _PANELS - 1)
    s = 2.0 * (count - tf.cast(panel, dtype)) - 1.0
    coefficients = tf.gather(polynomials, first_index + panel, batch_dims=1)  # [Q, K, D + 1]
    value, *lower = tf.unstack(coefficients, axis=-1)
    slope = tf.zeros_like(value)
    for coefficient in lower:  # Horner's rule
        slope = slope * s + value
        value = value * s + coefficient
    slope = 1.0 + 2.0 * sign * density * scale * tf.square(outward) * slope
    G = inside + value + slope * (x - inside)
    total = tf.exp(tf.minimum(G, LARGEST_G))
    return -total, slope * total


def _panels(root: Any, module: Any) -> tuple[Any, ...]:
    """
    Return c, a, both ends of the table, and the panels per unit of r/(1 + r), on the left and right
    of c.
    """
    v = root * root
    center = -0.5 * root
    scale = 10.0 + 3.0 * root
    left = -24.0 - 1.5 * v  # 1 - S is exp(x + v/2) beyond, with a relative error of 1e-11
    # The right end is near log S = LOWEST. By Laplace's method log S = -(w²/2 + w)/v with w +
    # log(w/v) = x.
    ratio = -2.0 * LOWEST / (1.0 + module.sqrt(1.0 - 2.0 * LOWEST * v))  # w/v
    right = v * ratio + module.log(ratio)
    return (
        center,
        scale,
        left,
        right,
        *(_PANELS * (1.0 + scale / end) for end in (center - left, right - center)),
    )


@functools.cache
def _table() -> AnyNDArray:
    """
    Return Chebyshev coefficients of the coefficients of G - x in all panels, high powers first, [T,
    2P (D + 1)].
    """
    first, last = np.log(np.sqrt([0.0, LARGEST_VARIANCE]) + _OFFSET)
    nodes = chebyshev.chebpts1(_DEGREE + 1)  # type: ignore[no-untyped-call]
    count = np.arange(_PANELS)[:, None] + 0.5 * (1.0 + nodes)  # [P, D + 1]
    fit = np.linalg.inv(np.vander(nodes)).T  # values -> coefficients

    def polynomials(position: float) -> AnyNDArray:
        root = np.exp(0.5 * (first + last) + 0.5 * (last - first) * position) - _OFFSET
        center, scale, _, _, *densities = _panels(root, np)
        coefficients = []
        for density, sign in zip(densities, (-1.0, 1.0), strict=True):
            part = count / density
            x = center + sign * scale * part / (1.0 - part)
            coefficients.append((_exact(x, root, sign > 0.0) - x) @ fit)
        return np.ravel(coefficients)

    return chebyshev.chebinterpolate(lambda at: np.stack([*map(polynomials, at)]), _TERMS - 1)  # type: ignore[no-untyped-call]


def _exact(x: AnyNDArray, root: float, is_right: bool) -> AnyNDArray:
    """
    Compute G by the trapezoid rule, whose error is exp(-π²/(h √v)), for S near 1 or, on the right,
    for S near 0.
    """
    z = np.arange(
        -23.0 if is_right else -9.5, 9.5 if is_right else root + 9.5, min(0.3, 0.2 / root)
    )
    weights = np.exp(-0.5 * z * z) * ((z[1] - z[0]) / np.sqrt(2.0 * np.pi))
    y = np.exp(x)[..., None] * np.exp(root * z)
    return np.asarray(
        np.log(-(np.log(np.exp(-y) @ weights) if is_right else np.log1p(np.expm1(-y) @ weights)))
    )
