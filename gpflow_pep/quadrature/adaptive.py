"""Panels are divided until polynomials resolve the integrands on each; all rows are worked on together."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

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
    evaluate: Callable[[Panels], Evaluated], panels: Panels, num_rows: tf.Tensor, *, shape: tuple[int, int], keep: bool
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """
    Integrals over each row's panels: a panel is resolved where no tail exceeds the row's integral of the modulus.

    :param panels: the first ones.
    :param shape: (S, T).
    :param keep: whether panels are wanted.
    :return: the integrals [R, S], and the resolved panels' row, left, half and what was kept of them, or nothing.
    """
    num_integrals, num_watched = shape
    dtype = panels.left.dtype
    kept = [tf.TensorArray(kind, 0, True, infer_shape=False) for kind in (tf.int32, *[dtype] * 3) if keep]

    def level(
        number: tf.Tensor, row: tf.Tensor, left: tf.Tensor, half: tf.Tensor, done: tf.Tensor, *kept: tf.TensorArray
    ) -> tuple[Any, ...]:
        evaluated = evaluate(Panels(row, left, half))
        parts = tf.concat([evaluated.integrals, evaluated.moduli], axis=-1)  # [W, S + T]
        moduli = done[:, num_integrals:] + tf.math.unsorted_segment_sum(evaluated.moduli, row, num_rows)  # [R, T]
        resolved = tf.reduce_all(evaluated.tails <= tf.gather(moduli, row), axis=-1)
        num_open = tf.math.unsorted_segment_sum(tf.cast(~resolved, row.dtype), row, num_rows)  # [R]
        resolved = resolved | (tf.gather(num_open, row) > _MAX_OPEN) | (number >= _MAX_LEVELS)
        accepted, open_ = (tf.where(mask)[:, 0] for mask in (resolved, ~resolved))
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
