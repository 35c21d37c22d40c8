"""Anderson's acceleration of the sweeps (Walker and Ni 2011): secants of earlier ones say how far to go.

With f_k what an undamped sweep would add to the sites x_k, and differences Δ of successive sweeps, the next move is

    β f_k - Σ_i γ_i (Δx_i + β Δf_i),      γ minimising |f_k - Σ_i γ_i Δf_i|,

where the norm is that of what the sites add up to. Sites are linear in it all, so that the sums A and c follow.
"""

from collections import deque

import tensorflow as tf

from .gaussian import Move

_DEPTH = 5
_MAX_SITES = 50_000  # where there are more of them, earlier sweeps are not kept
_RIDGE = 1e-12  # relative to the largest secant


class Acceleration:
    """Remembers a few sweeps, as long as they are under the same rule."""

    def __init__(self, num_sites: int) -> None:
        depth = _DEPTH if num_sites <= _MAX_SITES else 0
        self._secants: deque[tuple[Move, Move]] = deque(maxlen=depth)  # Δx and Δf
        self._last: tuple[Move, Move] | None = None  # f and the move that was made

    def next_move(self, found: Move, fraction: float) -> Move:
        """What to add to the sites, given what a sweep found and the fraction β of it to take."""
        if self._last is not None:
            before, made = self._last
            self._secants.append((made, found.minus(before)))
        if not self._secants:
            return found.scaled(fraction)
        changes = [change for _, change in self._secants]
        products = tf.stack([[_inner(a, b) for b in changes] for a in changes])
        ridge = _RIDGE * tf.reduce_max(tf.linalg.diag_part(products)) * tf.eye(len(changes), dtype=products.dtype)
        target = tf.stack([_inner(change, found) for change in changes])
        gamma = tf.linalg.lstsq(products + ridge, target[:, None], fast=False)[:, 0]
        steps = [move for move, _ in self._secants]
        return found.combined(fraction, steps + changes, tf.concat([-gamma, -fraction * gamma], 0))

    def made(self, found: Move, move: Move) -> None:
        """The move that was made after a sweep."""
        self._last = (found, move) if self._secants.maxlen else None

    def forget(self) -> None:
        """What comes next does not continue what came before."""
        self._secants.clear()
        self._last = None


def _inner(a: Move, b: Move) -> tf.Tensor:
    return tf.reduce_sum(a.c * b.c) + 0.5 * tf.reduce_sum(a.A * b.A)
