"""Choose inducing points as centers of clusters."""

import warnings
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from .. import validation
from .distinct import checked, distinct, first_distinct

_MINIBATCH_FROM = 20_000  # rows from which k-means in minibatches is faster
_ROWS = 1024  # rows per chunk of distances


def k_means(X: Any, M: int, *, seed: int = 0) -> AnyNDArray:
    """
    Return the centers of M clusters of the rows of X, by scikit-learn's k-means; in minibatches from 20,000 rows.

    Scale the columns of X alike first. One thread is used: with more, the result may depend on their number.

    >>> inducing.k_means([[0.0], [0.1], [5.0], [5.1]], 2).round(2).ravel().tolist()
    [5.05, 0.05]

    :param X: the rows, [N, D].
    :param M: number of centers, at most the number of distinct rows; M = N gives X.
    :param seed: seed for the initial centers; the same seed gives the same centers.
    :return: Z [M, D], no two the same.
    :raises ValueError: naming the argument that cannot be used.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans  # slow to import, needed here only
    from sklearn.exceptions import ConvergenceWarning

    X, M = checked(X, M)
    seed = validation.seed(seed)
    first_distinct(X, np.arange(len(X)), M)
    if len(X) == M:
        return X.copy()
    method = MiniBatchKMeans if len(X) >= _MINIBATCH_FROM else KMeans
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # clusters without rows, which are moved below
        clusters = method(n_clusters=M, n_init=1, random_state=seed).fit(X)
    return _occupied(X, clusters.cluster_centers_, clusters.labels_)


def _occupied(X: AnyNDArray, centers: AnyNDArray, labels: AnyNDArray) -> AnyNDArray:
    """
    Return the centers [M, D], and move those without rows to the rows of X [N, D] farthest from the other centers.

    With M distinct rows, some row differs from each of fewer than M centers.
    """
    kept = np.zeros(len(centers), dtype=bool)
    kept[np.intersect1d(labels, distinct(centers))] = True
    if kept.all():
        return centers
    others = centers[kept]
    chunks = (X[start : start + _ROWS] for start in range(0, len(X), _ROWS))
    # Differences, not the expanded square: rows at a center are at 0 exactly.
    distance = np.concatenate([cdist(rows, others, "sqeuclidean").min(axis=1) for rows in chunks])  # [N]
    for number in np.flatnonzero(~kept):
        centers[number] = X[distance.argmax()]
        distance = np.minimum(distance, cdist(X, centers[number, None], "sqeuclidean")[:, 0])
    return centers
