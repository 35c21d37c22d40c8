"""
Anderson's acceleration of the sites' fixed point iteration: secants of earlier sweeps in place of
the Jacobian.

With the undamped update f of the sites x, and the last K secants Δx and Δf,

    γ = argmin |f - ΔF γ|,    x + β f - (ΔX + β ΔF) γ

(Walker and Ni 2011): Newton's step -ΔX γ in the span of the secants, plus a fraction β of the
remainder f - ΔF γ, which is f if there are no secants. β is adaptive. Norms are of normalized
changes (:meth:`.sweep.Sweep.normalized`).
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ..maths.linalg import epsilon, plus_identity
from ..runtime import ONE_PROCESS, Workers
from .sweep import Iterate, choose

# Number of stored secants for up to this many sites, otherwise 1: memory grows with both.
_DEPTHS = ((20_000, 15), (100_000, 5))
# Smallest share of the damping: oscillation does not reduce the fraction of an update below it.
_LEAST_DAMPED = 0.02
_RIDGE = 1e-12  # relative to the largest secant, and at least 10 times the rounding error


class Step(NamedTuple):
    """The step to the fixed point that the secants predict, [N, 2, C] each."""

    newton: tf.Tensor  # Newton's step in the span of the secants
    remainder: tf.Tensor  # the update minus its prediction by the secants

    def move(self, fraction: tf.Tensor) -> tf.Tensor:
        """Return Anderson's move with a fraction [] of the remainder, [N, 2, C]."""
        return self.newton + fraction * self.remainder


class Secants(NamedTuple):
    """Ring buffer of the last K secants, and a scratch slot for rejected secants."""

    steps: tf.Tensor  # Δx, [K + 1, N, 2, C]
    changes: tf.Tensor  # Δf, [K + 1, N, 2, C]
    count: tf.Tensor  # secants added since the last reset, []

    @classmethod
    def none(cls, depth: int, sites: tf.Tensor) -> "Secants":
        """Return an empty ring of K = `depth` slots for sites [N, 2, C]."""
        empty = tf.tile(tf.zeros_like(sites)[None], [depth + 1, 1, 1, 1])
        return cls(empty, empty, tf.constant(0))

    @property
    def depth(self) -> int:
        """K."""
        return int(self.steps.shape[0]) - 1

    def updated(
        self, step: tf.Tensor, change: tf.Tensor, *, add: tf.Tensor, forget: tf.Tensor
    ) -> "Secants":
        """Replace the oldest secant if `add`; drop all if `forget`."""
        slot = tf.where(add, self.count % self.depth, self.depth)[None, None]

        def put(ring: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            return tf.tensor_scatter_nd_update(
                ring, slot, choose(add, value, tf.zeros_like(value))[None]
            )

        count = tf.where(forget, 0, self.count + tf.cast(add, tf.int32))
        return Secants(put(self.steps, step), put(self.changes, change), count)

    def step(
        self,
        update: tf.Tensor,
        normalized: Callable[..., tf.Tensor],
        workers: Workers = ONE_PROCESS,
    ) -> Step:
        """Return the step to the fixed point, given the undamped update at the current sites."""
        count = tf.minimum(self.count, self.depth)
        steps = self.steps[:count]
        changes = self.changes[:count]
        F = tf.reshape(normalized(changes), [count, tf.size(update)])
        f = tf.reshape(normalized(update), [1, -1])
        sums = tf.matmul(F, tf.concat([f, F], axis=0), transpose_b=True)  # [K, K + 1]
        unused = self.depth + 1 - count
        # Workers add up tensors of the same shape in every sweep.
        sums = tf.pad(sums, [[0, unused], [0, unused]])
        sums = workers.sum(sums)[:count, : count + 1]
        products = sums[:, 1:]
        largest = tf.reduce_max(products)
        least = max(_RIDGE, 10.0 * epsilon(F.dtype))
        ridge = tf.where(largest > 0.0, least * largest, 1.0)
        factor = tf.linalg.cholesky(plus_identity(products, ridge))
        gamma = tf.linalg.cholesky_solve(factor, sums[:, :1])[:, 0]
        step, change = (tf.einsum("k,knpc->npc", gamma, each) for each in (steps, changes))
        return Step(-step, update - change)


class Anderson(NamedTuple):
    """State of the accelerated sweeps."""

    secants: Secants
    fraction: tf.Tensor  # β, at most the damping, []
    # True if the candidate comes directly after the iterate: their updates are comparable, [].
    follows: tf.Tensor
    is_plain: tf.Tensor  # the candidate is not accelerated, []

    @classmethod
    def start(
        cls, sites: tf.Tensor, fraction: tf.Tensor, damping: tf.Tensor, num_sites: int
    ) -> "Anderson":
        """Start without secants, with the given fraction clipped to the limits of the damping."""
        depth = next((depth for most, depth in _DEPTHS if num_sites <= most), 1)
        fraction = tf.clip_by_value(fraction, _LEAST_DAMPED * damping, damping)
        return cls(Secants.none(depth, sites), fraction, tf.constant(False), tf.constant(True))

    def after(
        self, workers: Workers, last: Iterate, iterate: Iterate, largest: tf.Tensor
    ) -> "Anderson":
        """
        Adapt the fraction after an accepted sweep: halve it if sweeps oscillate or diverge, else
        add a fifth.
        """
        before = iterate.swept.normalized(last.swept.update)
        now = iterate.swept.normalized(iterate.swept.update)
        norms = workers.norm(before) * workers.norm(now)
        cosine = workers.sum(tf.reduce_sum(before * now)) / tf.where(norms > 0.0, norms, 1.0)
        tolerated = tf.where(cosine > 0.5, 2.0 * last.change, last.change)
        halve = (cosine < -0.3) | (iterate.change > tolerated)
        least = tf.minimum(largest, _LEAST_DAMPED)
        adapted = tf.where(
            halve, tf.maximum(0.5 * self.fraction, least), tf.minimum(1.2 * self.fraction, largest)
        )
        fraction = tf.where(self.follows, adapted, self.fraction)
        return self._replace(fraction=fraction, is_plain=tf.equal(self.secants.count, 0))

    def rejected(self, is_valid: tf.Tensor) -> "Anderson":
        """
        Continue with a plain update instead of an accelerated one, then with a smaller fraction.
        """
        fraction = tf.where(self.is_plain & is_valid, 0.5 * self.fraction, self.fraction)
        return self._replace(
            fraction=fraction, follows=tf.constant(False), is_plain=tf.constant(True)
        )
