"""Check that the workers have different rows."""

from collections.abc import Iterable

import numpy as np
from gpflow.base import AnyNDArray

from .workers import Workers

_SAMPLE = 1000  # rows of each worker that are compared: those of the smallest hashes, so that all choose alike
_SHARED = 0.01  # the fraction of them that two workers may share
_SEED, _FACTORS = 20260101, (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def check_shards(workers: Workers, batches: Iterable[tuple[AnyNDArray, AnyNDArray]]) -> None:
    """
    Raise an error in every worker if two have rows in common. Rows that a worker itself has twice prove nothing.

    :param batches: X [n, D] and Y [n, P] of this worker.
    :raises ValueError: naming the workers.
    """
    hashes = np.zeros(0, np.uint64)
    for batch in batches:
        values = np.concatenate([np.asarray(part, np.float64) for part in batch], axis=1)
        hashes = np.sort(np.concatenate([hashes, _hashes(values)]))[:_SAMPLE]
    everyone = workers.gather(len(hashes), *np.resize(hashes, _SAMPLE).view(np.int64).tolist())
    samples = [row[1 : 1 + row[0]].astype(np.int64).view(np.uint64) for row in everyone]
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


def _hashes(values: AnyNDArray) -> AnyNDArray:
    """A number for each row, [n]."""
    weights = np.random.default_rng(_SEED).integers(2**63, size=values.shape[1], dtype=np.uint64) * np.uint64(2) + 1
    hashes: AnyNDArray = _mixed((_mixed(np.ascontiguousarray(values).view(np.uint64)) * weights).sum(axis=1))
    return hashes


def _mixed(values: AnyNDArray) -> AnyNDArray:
    """Mix the bits of 64-bit numbers (the finalizer of MurmurHash3)."""
    for factor in _FACTORS:
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    return values ^ (values >> np.uint64(33))
