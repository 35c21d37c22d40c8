"""
Adaptive Gauss-Legendre quadrature of many rows at once: halve panels until polynomials resolve the
integrands.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import legendre

from ..runtime import Tensors, refuse_xla
from .linalg import epsilon

_ROUNDING = 1000.0  # machine epsilons by which rounding alone may change values


class GaussLegendre(NamedTuple):
    """The Gauss-Legendre rule on [0, 2], and a test of its resolution."""

    nodes: AnyNDArray  # [K]
    weights: AnyNDArray  # [K]
    # Maps values at the nodes to the last three Legendre coefficients, [K, 3]. If they are small,
    # the nodes resolve the function, and the error of its integral is about their square.
    last_coefficients: AnyNDArray


def gauss_legendre(number: int) -> GaussLegendre:
    """Return the rule of K = `number` nodes."""
    nodes, weights = legendre.leggauss(number)  # type: ignore[no-untyped-call]
    degrees = np.arange(number)
    # c_k = (k + 1/2) ∫ f P_k; the rule integrates f P_k exactly.
    coefficients = legendre.legvander(nodes, number - 1) * weights[:, None] * (degrees + 0.5)  # type: ignore[no-untyped-call]
    return GaussLegendre(nodes + 1.0, weights, coefficients[:, -3:])


def attainable(tolerance: float, dtype: tf.DType) -> float:
    """Return the relative tolerance, or one that rounding leaves attainable if it is larger."""
    return max(tolerance, _ROUNDING * epsilon(dtype))


class Panels(NamedTuple):
    """W panels, the panels of a row in any order."""

    row: tf.Tensor  # [W]
    left: tf.Tensor  # Left end, [W]
    half: tf.Tensor  # Half the width, [W]


class Evaluated(NamedTuple):
    """Integrals over panels."""

    integrals: tf.Tensor  # [W, S]
    moduli: tf.Tensor  # Integrals of the modulus of the T functions that must be resolved, [W, T]
    # Their largest last coefficients times the panel width, divided by the tolerance, [W, T].
    tails: tf.Tensor
    values: tf.Tensor | None = None  # Values at the nodes, returned with `keep`, [W, K]


def integrate(
    evaluate: Callable[[Panels], Evaluated],
    panels: Panels,
    num_rows: tf.Tensor,
    *,
    shape: tuple[int, int],
    keep: bool = False,
) -> tuple[tf.Tensor, Tensors]:
    """
    Integrate over the panels of each row, from the first `panels`, until no tail exceeds the row's
    integral of the modulus. Return the integrals [R, S] and, with `keep`, row, left, half and
    values of the panels. `shape`: (S, T).
    """
    refuse_xla("adaptive quadrature, whose panels depend on the data")
    num_integrals = shape[0]
    dtype = panels.left.dtype
    arrays = [
        tf.TensorArray(kind, 0, True, infer_shape=False)
        for kind in (tf.int32, *[dtype] * 3)
        if keep
    ]

    def level(
        number: tf.Tensor,
        row: tf.Tensor,
        left: tf.Tensor,
        half: tf.Tensor,
        done: tf.Tensor,
        *arrays: tf.TensorArray,
    ) -> tuple[Any, ...]:
        evaluated = evaluate(Panels(row, left, half))
        moduli = done[:, num_integrals:] + tf.math.unsorted_segment_sum(
            evaluated.moduli, row, num_rows
        )  # [R, T]
        resolved = tf.reduce_all(evaluated.tails <= tf.gather(moduli, row), axis=-1)
        num_open = tf.math.unsorted_segment_sum(tf.cast(~resolved, row.dtype), row, num_rows)  # [R]
        # More than 64 unresolved panels of a row are noise or NaN: accept them. After 60 halvings
        # rounding dominates.
        resolved |= (tf.gather(num_open, row) > 64) | (number >= 60)
        accepted, open_ = (tf.squeeze(tf.where(mask), 1) for mask in (resolved, ~resolved))
        parts = tf.concat([evaluated.integrals, evaluated.moduli], axis=-1)  # [W, S + T]
        done += tf.math.unsorted_segment_sum(
            tf.gather(parts, accepted), tf.gather(row, accepted), num_rows
        )
        finished = (row, left, half, evaluated.values) if keep else ()
        pairs = zip(arrays, finished, strict=True)
        arrays = tuple(array.write(number, tf.gather(value, accepted)) for array, value in pairs)
        row, left, half = (tf.gather(value, open_) for value in (row, left, 0.5 * half))
        return (
            number + 1,
            tf.concat([row, row], 0),
            tf.concat([left, left + 2.0 * half], 0),
            tf.concat([half, half], 0),
            done,
            *arrays,
        )

    start = (tf.constant(0), *panels, tf.zeros([num_rows, sum(shape)], dtype), *arrays)
    invariants = map(tf.TensorShape, ([], *[[None]] * 3, [None, sum(shape)], *[None] * len(arrays)))
    _, _, _, _, done, *arrays = tf.while_loop(
        lambda number, row, *_: tf.size(row) > 0, level, start, shape_invariants=tuple(invariants)
    )
    return done[:, :num_integrals], tuple(array.concat() for array in arrays)
