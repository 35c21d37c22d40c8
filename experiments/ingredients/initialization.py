"""Initial inducing points and lengthscales."""

import numpy as np
from scipy.spatial.distance import pdist

from experiments.datasets import Floats

_SUBSAMPLE = 1000  # rows; their pairwise distances take 4 MB


def cluster_centers(X: Floats, M: int, seed: int) -> Floats:
    """
    Return centers [M, D] of M clusters of the inputs X [N, D] by k-means; X itself, with duplicates, for M = N.

    :raises ValueError: if M is not from 1 to N, or larger than the number of distinct rows and not N.
    """
    if not 1 <= M <= len(X):
        raise ValueError(
            f"M is {M}; whole numbers from 1 to the number of training rows, {len(X)}, are accepted."
        )
    if len(X) == M:
        return X.copy()
    # Imported here, since it takes seconds.
    from gpflow_pep.inducing import k_means

    return k_means(X, M, seed=seed)


def median_distance(X: Floats, seed: int) -> float:
    """Return the median distance between the inputs X [N, D], from at most 1000 of them; 1 if it would be 0."""
    rows = np.random.RandomState(seed).permutation(len(X))[:_SUBSAMPLE]
    distances = pdist(X[rows])
    return float(np.median(distances)) or 1.0 if distances.size else 1.0
