"""Choose inducing points from the rows of X: random distinct rows or k-means centers."""

import threading
import warnings
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.spatial import KDTree
from threadpoolctl import threadpool_limits

from .. import validation
from ..runtime.threads import one_thread

_LOCK = threading.Lock()  # warnings are ignored in all threads


def distinct(X: AnyNDArray) -> AnyNDArray:
    """
    Return the ascending indices of the distinct rows of X [N, D], the first of each set of
    duplicates.
    """
    return np.sort(np.unique(X, axis=0, return_index=True)[1])


def uniform(X: Any, M: int, *, seed: int = 0) -> AnyNDArray:
    """
    Draw M distinct rows of X, each row with the same probability, skipping duplicates of drawn
    rows.

    >>> inducing.uniform(np.arange(10.0)[:, None], 3, seed=0).shape
    (3, 1)

    :param X: the rows to choose from, [N, D].
    :param M: number of points, at most the number of distinct rows.
    :param seed: seed for the draw; the same seed gives the same rows.
    :return: Z [M, D] in the order drawn.
    """
    X = validation.matrix(X, "X", "D")
    M = validation.positive_integer(M, "M")
    order = np.random.default_rng(validation.seed(seed)).permutation(len(X))
    return X[_first_distinct(X, order, M)]


def k_means(X: Any, M: int, *, seed: int = 0) -> AnyNDArray:
    """
    Return the centers of M clusters of the rows of X, by scikit-learn's k-means; in minibatches
    from 20,000 rows.

    Scale the columns of X first. k-means uses one thread, because its result may depend on the
    number of threads.

    >>> inducing.k_means([[0.0], [0.1], [5.0], [5.1]], 2).round(2).ravel().tolist()
    [5.05, 0.05]

    :param X: the rows, [N, D].
    :param M: number of centers, at most the number of distinct rows; M = N gives X.
    :param seed: seed for the initial centers; the same seed gives the same centers.
    :return: Z [M, D], distinct rows.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans  # slow to import, needed only here
    from sklearn.exceptions import ConvergenceWarning

    X = validation.matrix(X, "X", "D")
    M = validation.positive_integer(M, "M")
    seed = validation.seed(seed)
    _first_distinct(X, np.arange(len(X)), M)
    if len(X) == M:
        return X.copy()
    method = MiniBatchKMeans if len(X) >= 20_000 else KMeans  # faster for so many rows
    with (
        threadpool_limits(1, user_api="openmp"),  # of this thread only
        one_thread(),  # scikit-learn's own limit of BLAS must not outlast it
        _LOCK,
        warnings.catch_warnings(),
        np.errstate(under="ignore"),  # squared distances may underflow
    ):
        # Clusters without rows, which are moved below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = method(n_clusters=M, n_init=1, random_state=seed).fit(X)
    centers = clusters.cluster_centers_  # [M, D]
    empty = np.setdiff1d(np.arange(M), np.intersect1d(clusters.labels_, distinct(centers)))
    # Move them to the rows farthest from all other centers: some row differs from fewer than M
    # centers.
    if empty.size:
        # Differences, not the expanded square: a row at a center has distance 0 exactly.
        distance = KDTree(np.delete(centers, empty, axis=0)).query(X)[0]  # [N]
        for number in empty:
            centers[number] = X[distance.argmax()]
            distance = np.minimum(distance, np.linalg.norm(X - centers[number], axis=1))
    return centers


def _first_distinct(X: AnyNDArray, rows: AnyNDArray, M: int) -> AnyNDArray:
    """
    Return the first M of the indices `rows` [N] whose rows of X [N, D] are distinct; stop as soon
    as M are found.
    """
    size = M
    while True:
        chosen = rows[:size][distinct(X[rows[:size]])]
        if len(chosen) >= M:
            return chosen[:M]
        if size >= len(rows):
            raise ValueError(
                f"M must be at most the number of distinct rows of X, {len(chosen)}, got {M}."
            )
        size *= 2
