"""S(x), the Laplace transform of a log-normal variable (:mod:`.survival`), from a table in x and v.

G(x, v) = log(-log S(x)) is x where v = 0, nearly x + v/2 far to the left, and bends to 2 log x on the right. Its
absolute errors are the relative ones of log S. The table holds G - x as polynomials on panels of x that depend on v;
their coefficients are Chebyshev sums in a function of v. With c = -√v/2, a = 10 + 3 √v and r = |x - c|/a, the panels
are of equal width in r/(1 + r), on either side of c.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import chebyshev

LARGEST_VARIANCE = 120.0
LOWEST = -150.0
"""log S down to which the table goes; beyond, G is linear."""

_PANELS = 24  # on either side
_DEGREE = 9
_TERMS = 72  # of Chebyshev sums
_OFFSET = 0.3  # of √v, in whose logarithm these are
_LARGEST_G = 50.0


class Survival(NamedTuple):
    """At each point."""

    log_S: tf.Tensor
    hazard: tf.Tensor  # -S'/S


class _Panels(NamedTuple):
    """Where they are for a value of v: r/(1 + r) times `density` counts those of a side."""

    center: Any
    scale: Any
    left: Any  # x where the table begins: left of it 1 - S is exp(x + v/2) to a relative error of 1e-11
    right: Any  # x where it ends: near log S = LOWEST, by Laplace's method
    left_density: Any
    right_density: Any


def tabulated_survival(x: tf.Tensor, variance: tf.Tensor) -> Survival:
    """
    Interpolate log S, to a relative error of 1e-10 up to v = 30 and of 3e-8 up to LARGEST_VARIANCE, and the hazard, to
    ten times as much; where log S is below -30 it is up to 4e-9. They hold where log S is above LOWEST.

    :param x: [Q, K].
    :param variance: v, [Q]; no more than LARGEST_VARIANCE.
    """
    dtype = x.dtype
    root = tf.sqrt(variance)
    first, last = (np.log(np.sqrt(end) + _OFFSET) for end in (0.0, LARGEST_VARIANCE))
    place = (2.0 * tf.math.log(root + _OFFSET) - first - last) / (last - first)
    angle = tf.acos(tf.clip_by_value(place, -1.0, 1.0))
    basis = tf.cos(angle[:, None] * tf.range(_TERMS, dtype=dtype))  # [Q, T]
    polynomials = tf.reshape(basis @ tf.constant(_table(), dtype), [-1, 2 * _PANELS, _DEGREE + 1])

    panels = _Panels(*(value[:, None] for value in _panels(root, tf.math)))
    inside = tf.clip_by_value(x, panels.left, panels.right)
    from_center = inside - panels.center
    is_right = from_center > 0.0
    sign, first_index = tf.sign(from_center), tf.where(is_right, _PANELS, 0)
    density = tf.where(is_right, panels.right_density, panels.left_density)
    outward = 1.0 / (panels.scale + tf.abs(from_center))
    count = density * tf.abs(from_center) * outward
    panel = tf.minimum(tf.cast(count, tf.int32), _PANELS - 1)
    s = 2.0 * (count - tf.cast(panel, dtype)) - 1.0
    coefficients = tf.gather(polynomials, first_index + panel, batch_dims=1)  # [Q, K, D + 1]
    value, *others = tf.unstack(coefficients, axis=-1)
    slope = tf.zeros_like(value)
    for coefficient in others:  # Horner's rule
        slope = slope * s + value
        value = value * s + coefficient
    slope = 1.0 + 2.0 * sign * density * panels.scale * tf.square(outward) * slope
    G = inside + value + slope * (x - inside)
    total = tf.exp(tf.minimum(G, _LARGEST_G))
    return Survival(-total, slope * total)


def _panels(root: Any, module: Any) -> _Panels:
    """
    The panels for √v; `module` is NumPy or tf.math.

    Laplace's method has log S = -(w²/2 + w)/v, approximately, where w + log(w/v) = x.
    """
    v = root * root
    center, scale = -0.5 * root, 10.0 + 3.0 * root
    ratio = -2.0 * LOWEST / (1.0 + module.sqrt(1.0 - 2.0 * LOWEST * v))  # w/v
    left, right = -24.0 - 1.5 * v, v * ratio + module.log(ratio)
    densities = (_PANELS * (1.0 + scale / distance) for distance in (center - left, right - center))
    return _Panels(center, scale, left, right, *densities)


@functools.cache
def _table() -> AnyNDArray:
    """Chebyshev coefficients of the coefficients of G - x in all panels, high powers first, [T, 2P (D + 1)]."""
    nodes = _chebyshev_nodes(_DEGREE + 1)
    fit = np.linalg.inv(np.vander(nodes))  # values -> coefficients
    values = []
    for place in _chebyshev_nodes(_TERMS):
        first, last = (np.log(np.sqrt(end) + _OFFSET) for end in (0.0, LARGEST_VARIANCE))
        root = np.exp(0.5 * (first + last) + 0.5 * (last - first) * place) - _OFFSET
        panels = _panels(root, np)
        count = np.arange(_PANELS)[:, None] + 0.5 * (1.0 + nodes)  # [P, D + 1]
        x = []
        for density, sign in ((panels.left_density, -1.0), (panels.right_density, 1.0)):
            part = count / density
            x.append(panels.center + sign * panels.scale * part / (1.0 - part))
        values.append(np.stack([_below(x[0], root) - x[0], _above(x[1], root) - x[1]]) @ fit.T)
    terms = np.linalg.inv(chebyshev.chebvander(_chebyshev_nodes(_TERMS), _TERMS - 1))  # type: ignore[no-untyped-call]
    return np.asarray(terms @ np.reshape(values, [_TERMS, -1]))


def _chebyshev_nodes(number: int) -> AnyNDArray:
    return np.cos(np.pi * (np.arange(number) + 0.5) / number)


def _below(x: AnyNDArray, root: float) -> AnyNDArray:
    """G to a small relative error of 1 - S."""
    z, weights = _points(-9.5, root + 9.5, root)
    missed = -np.expm1(-np.exp(x)[..., None] * np.exp(root * z)) @ weights
    return np.asarray(np.log(-np.log1p(-missed)))


def _above(x: AnyNDArray, root: float) -> AnyNDArray:
    """G to a small relative error of S."""
    z, weights = _points(-23.0, 9.5, root)
    return np.asarray(np.log(-np.log(np.exp(-np.exp(x)[..., None] * np.exp(root * z)) @ weights)))


def _points(first: float, last: float, root: float) -> tuple[AnyNDArray, AnyNDArray]:
    """
    The trapezoid rule for N(0, 1) and what is bounded where √v z has an imaginary part below π/2: with step h its error
    is exp(-π²/(h √v)).
    """
    z = np.arange(first, last, min(0.3, 0.2 / root))
    return z, np.exp(-0.5 * z * z) * ((z[1] - z[0]) / np.sqrt(2.0 * np.pi))
