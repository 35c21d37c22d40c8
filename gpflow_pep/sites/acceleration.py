"""Anderson's acceleration of the sweeps (Walker and Ni 2011): secants of earlier ones say how far to go.

With f_k what an undamped sweep would add to the sites x_k, and differences Δ of successive sweeps, the next move is

    β f_k - Σ_i γ_i (Δx_i + β Δf_i),      γ minimising |f_k - Σ_i γ_i Δf_i|,

where the norm is that of what the sites add up to. Sites are linear in it all, so that the sums A and c follow.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .gaussian import Move

_DEPTH = 5
_MAX_SITES = 50_000  # where there are more of them, earlier sweeps are not kept
_RIDGE = 1e-12  # relative to the largest secant


class _Secant(NamedTuple):
    step: Move
    """Δx"""
    change: Move
    """Δf"""
    vector: tf.Tensor
    """Δf as the norm sees it, [C M² + C M]."""


class Acceleration:
    """Remembers a few sweeps, as long as they are under the same rule."""

    def __init__(self, num_sites: int) -> None:
        depth = _DEPTH if num_sites <= _MAX_SITES else 0
        self._secants: deque[_Secant] = deque(maxlen=depth)
        self._last: tuple[Move, Move] | None = None  # f and the move that was made

    def moves(self, found: Move, fraction: float) -> list[Move]:
        """What to add to the sites, given what a sweep found and the fraction β of it to take; last, that fraction."""
        if self._last is not None:
            before, made = self._last
            change = found.minus(before)
            self._secants.append(_Secant(made, change, _vector(change)))
        plain = found.scaled(fraction)
        if not self._secants:
            return [plain]
        changes = tf.stack([secant.vector for secant in self._secants])  # [k, C M² + C M]
        products = tf.matmul(changes, changes, transpose_b=True).numpy()
        ridge = _RIDGE * np.max(np.diag(products)) * np.eye(len(products))
        target = tf.linalg.matvec(changes, _vector(found)).numpy()
        gamma = np.linalg.lstsq(products + ridge, target, rcond=None)[0]
        others = [part for secant in self._secants for part in (secant.step, secant.change)]
        return [found.combined(fraction, others, np.ravel([-gamma, -fraction * gamma], order="F")), plain]

    def made(self, found: Move, move: Move) -> None:
        """The move that was made after a sweep."""
        self._last = (found, move) if self._secants.maxlen else None

    def forget(self) -> None:
        """What comes next does not continue what came before."""
        self._secants.clear()
        self._last = None


def _vector(move: Move) -> tf.Tensor:
    """Its c and A, of which the inner product is that of c plus half that of A."""
    return tf.concat([tf.reshape(move.c, [-1]), np.sqrt(0.5) * tf.reshape(move.A, [-1])], 0)
