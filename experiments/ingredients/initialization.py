"""Initial inducing points and lengthscales, and blocks of neighboring rows."""

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

Floats = npt.NDArray[np.float64]

_SUBSAMPLE = 1000  # rows; their pairwise distances take 4 MB


def cluster_centers(X: Floats, M: int, seed: int) -> Floats:
    """
    Return centers [M, D] of M clusters of the inputs X [N, D] by k-means; X itself, with duplicates, for M = N.

    :raises ValueError: if M is not from 1 to N, or larger than the number of distinct rows and not N.
    """
    if not 1 <= M <= len(X):
        raise ValueError(f"M is {M}; whole numbers from 1 to the number of training rows, {len(X)}, are accepted.")
    if len(X) == M:
        return X.copy()
    # Imported here, since it takes seconds.
    from gpflow_pep.inducing import k_means

    centers: Floats = k_means(X, M, seed=seed)
    return centers


def median_distance(X: Floats, seed: int) -> float:
    """Return the median distance between the inputs X [N, D], from at most 1000 of them; 1 if it would be 0."""
    rows = np.random.RandomState(seed).permutation(len(X))[:_SUBSAMPLE]
    distances = pdist(X[rows])
    return float(np.median(distances)) or 1.0 if distances.size else 1.0


def neighbor_blocks(X: Floats, size: int) -> npt.NDArray[np.intp]:
    """
    Return labels [N] of ceil(N / size) blocks of rows with neighboring inputs X [N, D], of nearly equal sizes.

    The rows are halved across the widest input column, and the halves again, until each part is one block.

    :raises ValueError: if size is below 1.
    """
    if size < 1:
        raise ValueError(f"block_size is {size}; whole numbers from 1 are accepted.")
    labels = np.empty(len(X), dtype=np.intp)
    parts = [(np.arange(len(X)), 0, -(-len(X) // size))]  # rows, the first label, the number of labels
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
