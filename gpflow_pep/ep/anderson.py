"""Anderson's acceleration of the sites' fixed point iteration: secants of earlier sweeps in place of the Jacobian.

With the undamped update f of the sites x, and the last K secants Δx and Δf,

    γ = argmin |f - ΔF γ|,    Newton's step -ΔX γ for what they span,    f - ΔF γ what is left of f

(Walker and Ni 2011). Anderson's move is that step and a fraction β of what is left: f itself where there is no secant.
Norms are those of normalized changes (:meth:`.loop_state.Iterate.normalized`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..runtime.tracing import in_xla

# The choice between two tensors by one condition.


def choose(condition: tf.Tensor, one: Any, two: Any) -> Any:
    """
    Return one of two tensors of the same shape, or of two structures of them, by a scalar condition.

    `tf.where` gives the same; but it broadcasts the condition to [N, 2, C], which takes 200 times as long.
    """
    return tf.nest.map_structure(
        lambda x, y: x if x is y else tf.raw_ops.Select(condition=condition, x=x, y=y), one, two
    )


_RIDGE = 1e-12  # relative to the largest secant, and at least 10 times the rounding error


class Step(NamedTuple):
    """The step to the fixed point that the secants predict, [N, 2, C] each."""

    newton: tf.Tensor  # Newton's step for what the secants span
    left: tf.Tensor  # What is then left of the update

    def move(self, fraction: tf.Tensor) -> tf.Tensor:
        """Return Anderson's move from a fraction [] of what is left, [N, 2, C]."""
        return self.newton + fraction * self.left


class Secants(NamedTuple):
    """The last few secants: a ring of K places, and one more for what is not added."""

    steps: tf.Tensor  # Δx, [K + 1, N, 2, C]
    changes: tf.Tensor  # Δf, [K + 1, N, 2, C]
    count: tf.Tensor  # How many have been added since the last reset, []; the last K are remembered

    @classmethod
    def none(cls, depth: int, sites: tf.Tensor) -> "Secants":
        """Return an empty ring of K = `depth` places for sites [N, 2, C]."""
        empty = tf.tile(tf.zeros_like(sites)[None], [depth + 1, 1, 1, 1])
        return cls(empty, empty, tf.constant(0))

    @property
    def depth(self) -> int:
        """K."""
        return int(self.steps.shape[0]) - 1

    def updated(self, step: tf.Tensor, change: tf.Tensor, *, add: tf.Tensor, forget: tf.Tensor) -> "Secants":
        """Remember one more secant in place of the oldest if `add`; forget all if `forget`."""
        place = tf.where(add, self.count % self.depth, self.depth)[None, None]

        def put(ring: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            return tf.tensor_scatter_nd_update(ring, place, choose(add, value, tf.zeros_like(value))[None])

        count = tf.where(forget, 0, self.count + tf.cast(add, tf.int32))
        return Secants(put(self.steps, step), put(self.changes, change), count)

    def step(
        self,
        update: tf.Tensor,
        normalized: Callable[[tf.Tensor], tf.Tensor],
        sum_over_workers: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> Step:
        """
        Return the way to the fixed point from where the undamped update is given.

        :param sum_over_workers: adds up sums of the workers.
        """
        count = tf.minimum(self.count, self.depth)
        places = self.depth + 1 if in_xla() else count  # XLA needs to know it beforehand
        used = tf.range(places) < count
        steps, changes = self.steps[:places], self.changes[:places]
        F = tf.reshape(normalized(changes), [places, tf.size(update)])
        f = tf.reshape(normalized(update), [1, -1])
        sums = tf.matmul(F, tf.concat([f, F], axis=0), transpose_b=True)  # [K, K + 1]
        unused = self.depth + 1 - places
        sums = tf.pad(sums, [[0, unused], [0, unused]])  # workers add up tensors of the same shape in every sweep
        sums = sum_over_workers(sums)[:places, : places + 1]
        products = tf.where(tf.expand_dims(used, 1) & used, sums[:, 1:], tf.zeros([], F.dtype))
        largest = tf.reduce_max(products)
        least = max(_RIDGE, 10.0 * float(np.finfo(F.dtype.as_numpy_dtype).eps))
        ridge = tf.where(largest > 0.0, least * largest, tf.ones_like(largest))
        factor = tf.linalg.cholesky(products + ridge * tf.eye(places, dtype=F.dtype))
        target = tf.where(tf.expand_dims(used, 1), sums[:, :1], tf.zeros([], F.dtype))
        gamma = tf.linalg.cholesky_solve(factor, target)[:, 0]
        step, change = (
            tf.reshape(gamma[None] @ tf.reshape(each, tf.shape(F)), tf.shape(update)) for each in (steps, changes)
        )
        return Step(-step, update - change)
