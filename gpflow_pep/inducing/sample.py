"""Choose inducing points at random."""

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .. import validation
from .distinct import checked, first_distinct


def uniform(X: Any, M: int, *, seed: int = 0) -> AnyNDArray:
    """
    Draw M distinct rows of X, each row with the same probability. Copies of drawn rows are skipped.

    >>> inducing.uniform(np.arange(10.0)[:, None], 3, seed=0).shape
    (3, 1)

    :param X: the rows to choose from, [N, D].
    :param M: number of points, at most the number of distinct rows.
    :param seed: seed for the draw; the same seed gives the same rows.
    :return: Z [M, D], in the order of the draw.
    :raises ValueError: naming the argument that cannot be used.
    """
    X, M = checked(X, M)
    order = np.random.default_rng(validation.seed(seed)).permutation(len(X))
    return X[first_distinct(X, order, M)]
