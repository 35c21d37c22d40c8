"""Distinct rows. Duplicate inducing points make Kuu singular."""

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .. import validation


def checked(X: Any, M: Any) -> tuple[AnyNDArray, int]:
    """
    Return the rows to choose from as a finite array [N, D] of ``default_float()``, and the number of points.

    :raises ValueError: naming ``X`` or ``M``; copies are not detected.
    """
    X, M = validation.matrix(X, "X", "D"), validation.positive_integer(M, "M")
    if len(X) < M:
        raise ValueError(f"M must be at most the number of rows of X, {len(X)}, got {M}.")
    return X, M


def distinct(X: AnyNDArray) -> AnyNDArray:
    """Return the ascending indices of the distinct rows of X [N, D], the first of equal rows."""
    return np.sort(np.unique(X, axis=0, return_index=True)[1])


def first_distinct(X: AnyNDArray, rows: AnyNDArray, M: int) -> AnyNDArray:
    """
    Return the first M of the indices `rows` [N] whose rows of X [N, D] are distinct; stop as soon as M are found.

    :raises ValueError: if there are fewer distinct rows, naming ``M``.
    """
    chosen, size = rows[:0], M
    while len(chosen) < M:
        if size >= 2 * len(rows):
            raise ValueError(f"M must be at most the number of distinct rows of X, {len(chosen)}, got {M}.")
        chosen = rows[:size][distinct(X[rows[:size]])]
        size *= 2
    return chosen[:M]
