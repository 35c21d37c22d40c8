"""
Panels are divided until polynomials resolve the integrands on each; all rows are worked on together.

In functions that XLA compiles the number of panels cannot change: there are places for some panels a row, most of them
empty. Where they do not suffice the integrals of a row are NaN.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import chebyshev

from ..runtime.tracing import in_xla, refuse_xla

_MAX_LEVELS = 60  # halvings; then a panel is as short as rounding allows
_MAX_OPEN = 64  # panels of a row to be divided at once; more are noise, or not numbers, and stay as they are


class Panels(NamedTuple):
    """Some panels [W]; a row's are not in order."""

    row: tf.Tensor  # Which row a panel belongs to, [W]
    left: tf.Tensor  # Its left end, [W]
    half: tf.Tensor  # Half its width, [W]


class Evaluated(NamedTuple):
    """What integrands are on panels."""

    integrals: tf.Tensor  # [W, S]
    moduli: tf.Tensor  # Integrals of the modulus of those functions that must be resolved, [W, T]
    tails: tf.Tensor  # The largest of their last coefficients times the panel's width, over the tolerance, [W, T]
    kept: tuple[tf.Tensor, ...] = ()  # What else is wanted of panels that are resolved, [W, ...] each


def integrate(
    evaluate: Callable[[Panels], Evaluated],
    panels: Panels,
    num_rows: tf.Tensor,
    *,
    shape: tuple[int, int],
    keep: bool,
    places: int = 8,
    used: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """
    Integrals over each row's panels: a panel is resolved where no tail exceeds the row's integral of the modulus.

    :param panels: the first ones.
    :param shape: (S, T).
    :param keep: whether panels are wanted.
    :param places: for how many panels a row there is room, on average, where XLA compiles this.
    :param used: which of the first panels there are [W]; None: all.
    :return: the integrals [R, S], and the resolved panels' row, left, half and what was kept of them, or nothing.
    :raises NotImplementedError: if panels are wanted where XLA compiles this.
    """
    if keep:
        refuse_xla("a quadrature that keeps a number of panels which depends on the data")
    if in_xla():
        return _integrate_in_places(evaluate, panels, num_rows, places, used, shape), ()
    if used is not None:
        panels = Panels(*(tf.boolean_mask(value, used) for value in panels))
    num_integrals, num_watched = shape
    dtype = panels.left.dtype
    kept = [tf.TensorArray(kind, 0, True, infer_shape=False) for kind in (tf.int32, *[dtype] * 3) if keep]

    def level(
        number: tf.Tensor, row: tf.Tensor, left: tf.Tensor, half: tf.Tensor, done: tf.Tensor, *kept: tf.TensorArray
    ) -> tuple[Any, ...]:
        evaluated = evaluate(Panels(row, left, half))
        parts = tf.concat([evaluated.integrals, evaluated.moduli], axis=-1)  # [W, S + T]
        resolved = _resolved(number, evaluated, row, done[:, num_integrals:])
        accepted, open_ = (tf.squeeze(tf.where(mask), 1) for mask in (resolved, ~resolved))
        done += tf.math.unsorted_segment_sum(tf.gather(parts, accepted), tf.gather(row, accepted), num_rows)
        finished = (row, left, half, *evaluated.kept) if keep else ()
        kept = tuple(
            array.write(number, tf.gather(value, accepted)) for array, value in zip(kept, finished, strict=True)
        )
        row, left, half = (tf.gather(value, open_) for value in (row, left, 0.5 * half))
        divided = tf.concat([left, left + 2.0 * half], 0)
        return number + 1, tf.concat([row, row], 0), divided, tf.concat([half, half], 0), done, *kept

    _, _, _, _, done, *kept = tf.while_loop(
        lambda number, row, *_: tf.size(row) > 0,
        level,
        (tf.constant(0), *panels, tf.zeros([num_rows, num_integrals + num_watched], dtype), *kept),
        shape_invariants=(
            tf.TensorShape([]),
            *[tf.TensorShape([None])] * 3,
            tf.TensorShape([None, num_integrals + num_watched]),
            *[tf.TensorShape(None)] * len(kept),
        ),
    )
    return done[:, :num_integrals], tuple(array.concat() for array in kept)


def _resolved(number: tf.Tensor, evaluated: Evaluated, row: tf.Tensor, done: tf.Tensor) -> tf.Tensor:
    """
    Return which panels are not divided, [W].

    :param done: the integrals of the modulus over panels that are resolved already, [R, T].
    """
    num_rows = tf.shape(done)[0]
    moduli = done + tf.math.unsorted_segment_sum(evaluated.moduli, row, num_rows)  # [R, T]
    resolved = tf.reduce_all(evaluated.tails <= tf.gather(moduli, row), axis=-1)
    num_open = tf.math.unsorted_segment_sum(tf.cast(~resolved, row.dtype), row, num_rows)  # [R]
    return resolved | (tf.gather(num_open, row) > _MAX_OPEN) | (number >= _MAX_LEVELS)


def _integrate_in_places(
    evaluate: Callable[[Panels], Evaluated],
    panels: Panels,
    num_rows: tf.Tensor,
    places: int,
    used: tf.Tensor | None,
    shape: tuple[int, int],
) -> tf.Tensor:
    """The integrals [R, S], with a number of places for panels that does not change."""
    size, dtype = places * num_rows, panels.left.dtype
    used = tf.ones_like(panels.row, tf.bool) if used is None else used
    lost = tf.zeros([num_rows], tf.bool)

    def level(
        number: tf.Tensor, used: tf.Tensor, row: tf.Tensor, left: tf.Tensor, half: tf.Tensor, *state: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        done, lost = state
        evaluated = evaluate(Panels(row, left, half))
        # Places that are empty hold panels of width 0 of row 0.
        filled = [tf.where(used[:, None], value, tf.zeros_like(value)) for value in evaluated[:3]]
        evaluated = Evaluated(*filled)
        parts = tf.concat(filled[:2], axis=-1)  # [W, S + T]
        open_ = used & ~_resolved(number, evaluated, row, done[:, shape[0] :])
        parts = tf.where(open_[:, None], tf.zeros_like(parts), parts)
        done += tf.math.unsorted_segment_sum(parts, row, num_rows)
        half = 0.5 * half
        pairs = (row, row), (left, left + 2.0 * half), (half, half)
        divided = Panels(*(tf.concat(pair, 0) for pair in pairs))
        return number + 1, *_placed(divided, tf.concat([open_, open_], 0), size, lost, done)

    start = _placed(panels, used, size, lost, tf.zeros([num_rows, sum(shape)], dtype))
    any_number = tf.TensorShape([None])
    *_, done, lost = tf.while_loop(
        lambda number, used, *_: tf.reduce_any(used),
        level,
        (tf.constant(0), *start),
        shape_invariants=(tf.TensorShape([]), *[any_number] * 4, tf.TensorShape([None, sum(shape)]), any_number),
    )
    return tf.where(lost[:, None], tf.constant(np.nan, dtype), done[:, : shape[0]])


def _placed(
    panels: Panels, used: tf.Tensor, size: tf.Tensor, lost: tf.Tensor, done: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """
    Put the panels that are used [W] into the first of `size` places.

    :param lost: which rows have had a panel for which there was no place, [R].
    :return: which places are used, and row, left and half of them; then `done` and `lost`.
    """
    place = tf.cumsum(tf.cast(used, tf.int32)) - 1  # [W]
    fits = place < size
    index = tf.where(used & fits, place, size)[:, None]  # of a last place that is dropped
    values = (tf.tensor_scatter_nd_update(tf.zeros([size + 1], value.dtype), index, value)[:-1] for value in panels)
    without = tf.math.unsorted_segment_max(tf.cast(used & ~fits, tf.int32), panels.row, tf.size(lost)) > 0
    return tf.range(size) < tf.reduce_sum(tf.cast(used, tf.int32)), *values, done, lost | without


# The Gauss-Legendre rule of 32 nodes on [-1, 1], and what tells whether it resolves a function.

LEGENDRE_NODES, LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(32)  # type: ignore[no-untyped-call]
_POLYNOMIALS = np.polynomial.legendre.legvander(LEGENDRE_NODES, 31)  # type: ignore[no-untyped-call]
LAST_COEFFICIENTS = (_POLYNOMIALS * LEGENDRE_WEIGHTS[:, None] * (np.arange(32) + 0.5))[:, -3:]
"""From values at the nodes to the last three Legendre coefficients, [32, 3]."""


# Polynomials on one panel of an interval: nodes, integrals and how well a function is resolved by them.

DEGREE = 22

NODES: AnyNDArray = -np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
"""Chebyshev points of [-1, 1], both ends among them, [K]."""

# values -> coefficients, [K, K]
_COEFFICIENTS: AnyNDArray = np.linalg.inv(chebyshev.chebvander(NODES, DEGREE))  # type: ignore[no-untyped-call]
_ANTIDERIVATIVES: AnyNDArray = np.stack(
    [
        chebyshev.chebval(NODES, chebyshev.chebint(row, lbnd=-1.0))  # type: ignore[no-untyped-call]
        for row in np.eye(DEGREE + 1)
    ],
    axis=1,
)

INTEGRALS: AnyNDArray = _ANTIDERIVATIVES @ _COEFFICIENTS
"""Values at the nodes -> integrals from -1 up to each node, [K, K]."""

WEIGHTS: AnyNDArray = INTEGRALS[-1:]
"""Clenshaw-Curtis weights: values at the nodes -> integral over the panel, [1, K]."""

TAIL: AnyNDArray = _COEFFICIENTS[-3:]
"""Values at the nodes -> the last three Chebyshev coefficients, [3, K]. Where they are small the values resolve the
function; the error of its integral is then about their square."""
