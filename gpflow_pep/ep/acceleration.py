"""Anderson acceleration of the sweeps (Walker and Ni 2011): from the differences of earlier sweeps.

With f_k the undamped update at the sites x_k, and differences Δ of successive sweeps, the next move is

    β f_k - Σ_i γ_i (Δx_i + β Δf_i),      γ minimising |f_k - Σ_i γ_i Δf_i|,

in the norm of the marginals' changes (:meth:`.sweep.Sweep.normalized`).
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

_RIDGE = 1e-12  # relative to the largest secant


class Secants(NamedTuple):
    """The last few secants; a ring in which unused places are 0."""

    steps: tf.Tensor
    """Δx, [K, N, 2, C]."""
    changes: tf.Tensor
    """Δf, [K, N, 2, C]."""
    count: tf.Tensor
    """How many have been added since the last reset, []; the last K are remembered."""

    @classmethod
    def none(cls, depth: int, sites: tf.Tensor) -> "Secants":
        """Return an empty ring of K = `depth` places for sites [N, 2, C]."""
        empty = tf.tile(tf.zeros_like(sites)[None], [depth, 1, 1, 1])
        return cls(empty, empty, tf.constant(0))

    def updated(self, step: tf.Tensor, change: tf.Tensor, *, add: tf.Tensor, forget: tf.Tensor) -> "Secants":
        """Remember one more secant in place of the oldest if `add`; forget all if `forget`."""
        depth = self.steps.shape[0]
        here = (tf.equal(tf.range(depth), self.count % depth) & add)[:, None, None, None]

        def put(ring: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            return tf.where(forget, tf.zeros_like(ring), tf.where(here, value[None], ring))

        count = tf.where(forget, 0, self.count + tf.cast(add, tf.int32))
        return Secants(put(self.steps, step), put(self.changes, change), count)

    def move(self, update: tf.Tensor, fraction: tf.Tensor, normalized: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return the next move from the undamped update and the fraction β of it to take, [N, 2, C]."""
        depth = self.changes.shape[0]
        F = tf.reshape(normalized(self.changes), [depth, -1])
        products = tf.matmul(F, F, transpose_b=True)
        largest = tf.reduce_max(products)
        ridge = tf.where(largest > 0.0, _RIDGE * largest, tf.ones_like(largest))
        factor = tf.linalg.cholesky(products + ridge * tf.eye(depth, dtype=F.dtype))
        target = tf.matmul(F, tf.reshape(normalized(update), [-1, 1]))
        gamma = tf.linalg.cholesky_solve(factor, target)[:, 0]
        return fraction * update - tf.tensordot(gamma, self.steps + fraction * self.changes, 1)
