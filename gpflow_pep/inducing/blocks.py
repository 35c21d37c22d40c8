"""Blocks of neighboring rows, for block-structured sites (Bui and Titsias 2025, sec. 7)."""

import numpy as np
import numpy.typing as npt
from gpflow.base import AnyNDArray

from .. import validation


def neighbor_blocks(X: AnyNDArray, size: int) -> npt.NDArray[np.intp]:
    """
    Return labels [N] of ceil(N / size) blocks of rows with neighboring inputs, of nearly equal
    sizes.

    The rows are halved across the widest input column, and the halves again, until each part is one
    block.

    >>> neighbor_blocks(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)
    array([0, 1, 0, 1])

    :param X: inputs [N, D].
    :param size: largest number of rows in a block.
    :raises ValueError: if size is not a whole number of at least 1.
    """
    X = validation.matrix(X, "X", "D")
    size = validation.positive_integer(size, "size")
    labels = np.empty(len(X), dtype=np.intp)
    # Rows, the first label, the number of labels.
    parts = [(np.arange(len(X)), 0, -(-len(X) // size))]
    while parts:
        rows, first, count = parts.pop()
        if count == 1:
            labels[rows] = first
            continue
        widest = np.ptp(X[rows], axis=0).argmax()
        ordered = rows[np.argsort(X[rows, widest], kind="stable")]
        left = count // 2
        cut = len(rows) * left // count
        parts += [(ordered[:cut], first, left), (ordered[cut:], first + left, count - left)]
    return labels
