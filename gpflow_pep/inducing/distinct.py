"""Rows that are no copies of others: two equal inducing points make Kuu singular, and the second explains nothing."""

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .. import validation


def checked(X: Any, M: Any) -> tuple[AnyNDArray, int]:
    """
    The rows to choose from as a finite array [N, D] of ``default_float()``, and how many points.

    :raises ValueError: naming ``X`` or ``M``; copies are not looked for.
    """
    X, M = validation.matrix(X, "X", "D"), validation.positive_integer(M, "M")
    if len(X) < M:
        raise ValueError(f"M must be at most the number of rows of X, {len(X)}, got {M}.")
    return X, M


def distinct(X: AnyNDArray) -> AnyNDArray:
    """Indices of the rows of X [N, D] that equal none before them, in ascending order."""
    return np.sort(np.unique(X, axis=0, return_index=True)[1])


def first_distinct(X: AnyNDArray, rows: AnyNDArray, M: int) -> AnyNDArray:
    """
    The first M of all `rows` [N] of X [N, D] that equal none before them; no more is looked at than is needed.

    :raises ValueError: if there are fewer, naming ``M``.
    """
    size = M
    while True:
        some = rows[:size]
        chosen = some[distinct(X[some])]
        if len(chosen) >= M or size >= len(rows):
            return enough(chosen, M)[:M]
        size *= 2


def enough(rows: AnyNDArray, M: int) -> AnyNDArray:
    """
    The distinct rows themselves.

    :raises ValueError: if they are fewer than M, naming it.
    """
    if len(rows) < M:
        raise ValueError(f"M must be at most the number of distinct rows of X, {len(rows)}, got {M}.")
    return rows
