"""Inducing points, lengthscales and blocks that training starts from."""

import numpy as np
import pytest

from experiments.ingredients.initialization import cluster_centers, median_distance, neighbor_blocks


@pytest.fixture
def X():
    return np.random.RandomState(0).normal(size=(103, 2))


def test_centers_are_those_of_separated_clusters():
    where = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    X = np.repeat(where, 20, axis=0)
    found = cluster_centers(X, 3, seed=0)
    assert np.array_equal(found[np.lexsort(found.T)], where[np.lexsort(where.T)])


def test_centers_at_every_row_are_the_rows(X):
    assert np.array_equal(cluster_centers(X, len(X), seed=0), X)
    with pytest.raises(ValueError, match="M is 104"):
        cluster_centers(X, 104, seed=0)


def test_median_distance():
    assert median_distance(np.array([[0.0], [1.0], [5.0]]), seed=0) == 4.0  # distances 1, 4, 5
    assert median_distance(np.zeros((5, 2)), seed=0) == 1.0
    assert median_distance(np.zeros((1, 2)), seed=0) == 1.0


@pytest.mark.parametrize("size", [1, 7, 20, 103, 500])
def test_blocks_are_of_nearly_equal_size(X, size):
    sizes = np.bincount(neighbor_blocks(X, size))
    assert len(sizes) == -(-len(X) // size) and sizes.sum() == len(X)
    assert sizes.max() <= size and sizes.max() - sizes.min() <= 1


def test_blocks_on_a_line_are_intervals():
    x = np.random.RandomState(1).permutation(60.0 * np.arange(60))[:, None]
    labels = neighbor_blocks(x, 20)
    assert np.array_equal(labels, x.ravel() // 1200)
