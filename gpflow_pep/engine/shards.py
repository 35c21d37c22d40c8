"""Check that the workers have different rows."""

from collections.abc import Iterable

import numpy as np
from gpflow.base import AnyNDArray

from .row_hashes import row_hashes
from .workers import Workers

_SAMPLE = 1000  # rows of each worker that are compared: those of the smallest hashes, so that all choose alike
_SHARED = 0.01  # the fraction of them that two workers may share


def check_shards(workers: Workers, batches: Iterable[tuple[AnyNDArray, AnyNDArray]]) -> None:
    """
    Raise an error in every worker if two have rows in common. Rows that a worker itself has twice prove nothing.

    :param batches: X [n, D] and Y [n, P] of this worker.
    :raises ValueError: naming the workers.
    """
    hashes = np.zeros(0, np.int64)
    for batch in batches:
        values = np.concatenate([np.asarray(part, np.float64) for part in batch], axis=1)
        hashes = np.sort(np.concatenate([hashes, row_hashes(values).numpy()]))[:_SAMPLE]
    everyone = workers.gather(len(hashes), *np.resize(hashes, _SAMPLE).tolist())
    samples = [row[1 : 1 + row[0]] for row in everyone]
    for one in range(workers.count):
        for other in range(one):
            _compare(samples[other], samples[one], other, one)


def _compare(some: AnyNDArray, others: AnyNDArray, first: int, second: int) -> None:
    reach = min(some.max(), others.max())  # up to here both list all that they have
    some, others = (values[values <= reach] for values in (some, others))
    are_distinct = all(len(np.unique(values)) == len(values) for values in (some, others))
    shared = np.isin(others, some).sum()
    if are_distinct and shared > _SHARED * min(len(some), len(others)):
        raise ValueError(
            f"data must be different rows on each worker, got {shared} of {len(others)} sampled rows of worker "
            f"{second} also on worker {first}: give each worker rows of its own, X[index::num_workers] say."
        )
