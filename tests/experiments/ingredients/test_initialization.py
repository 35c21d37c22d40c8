"""Inducing points and lengthscales that training starts from."""

import numpy as np
import pytest
from refusals import refused

from experiments.ingredients.initialization import cluster_centers, median_distance


@pytest.fixture
def X():
    return np.random.RandomState(0).normal(size=(103, 2))


def test_centers_at_every_row_are_the_rows(X):
    assert np.array_equal(cluster_centers(X, len(X), seed=0), X)
    with refused("M is 104"):
        cluster_centers(X, 104, seed=0)


def test_median_distance():
    assert median_distance(np.array([[0.0], [1.0], [5.0]]), seed=0) == 4.0  # distances 1, 4, 5
    assert median_distance(np.zeros((5, 2)), seed=0) == 1.0
    assert median_distance(np.zeros((1, 2)), seed=0) == 1.0
