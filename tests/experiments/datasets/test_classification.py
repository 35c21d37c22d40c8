"""The classification sets: sizes, labels, splits, and the traps of each that its notes name."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from experiments import datasets
from experiments.datasets.catalog import ENTRIES

# Rows, inputs, rows labeled 1, number of splits and whether they are published, recorded from the
# files independently of this reader.
PUBLISHED = {
    "australian": (690, 14, 307, 20, False),
    "breast": (683, 9, 239, 20, True),
    "crabs": (200, 6, 100, 20, True),
    "iono": (351, 34, 225, 20, True),
    "pima": (768, 8, 268, 20, True),
    "sonar": (208, 60, 111, 20, True),
    "qp-ionosphere": (351, 34, 225, 10, False),
    "qp-cancer": (683, 9, 239, 10, False),
    "qp-pima": (732, 7, 245, 10, False),
    "qp-crabs": (200, 7, 100, 10, False),
    "qp-sonar": (208, 60, 111, 10, False),
    "qp-iris-12": (100, 4, 50, 10, False),
    "qp-iris-13": (100, 4, 50, 10, False),
    "qp-iris-23": (100, 4, 50, 10, False),
    "qp-wine-12": (130, 13, 71, 10, False),
    "qp-wine-13": (107, 13, 48, 10, False),
    "qp-wine-23": (119, 13, 48, 10, False),
    "usps-3-5": (1540, 256, 716, 1, True),
    "qp-usps-3-5": (1540, 256, 716, 10, False),
    "mnist-even-odd": (70000, 784, 35582, 1, True),
    "banana": (5300, 2, 2376, 1, True),
    "banana-5300": (5300, 2, 2376, 20, False),
    "breast-cancer": (569, 30, 212, 20, False),
}
# Rows of the training part where it is not 90 %.
TRAINED = {
    "usps-3-5": 1214,
    "mnist-even-odd": 60000,
    "banana": 400,
}


def test_names_and_descriptions():
    assert datasets.names(task="classification") == tuple(PUBLISHED)
    for name, (N, D, _, num_splits, splits_published) in PUBLISHED.items():
        info = datasets.describe(name)
        assert (info.name, info.task, info.N, info.D) == (name, "classification", N, D)
        assert (info.num_splits, info.splits_published) == (num_splits, splits_published)
        assert all(info.classes)


@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_split_is_a_partition_with_both_classes(name):
    N, D, num_ones, num_splits, _ = PUBLISHED[name]
    tested = []
    for split in range(num_splits):
        X, Y, train, test = ENTRIES[name].source.read(split)
        assert (X.shape, Y.shape) == ((N, D), (N, 1))
        assert X.dtype == Y.dtype == np.float64
        assert np.isfinite(X).all()
        assert set(np.unique(Y)) == {0.0, 1.0}
        assert Y.sum() == num_ones
        assert set(np.unique(Y[train])) == {0.0, 1.0}
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(N))
        assert abs(len(train) - TRAINED.get(name, 0.9 * N)) < 1
        tested.append(tuple(test))
    assert len(set(tested)) == num_splits  # all differ
    if num_splits == 10:
        assert sorted(sum(tested, ())) == list(range(N))


@pytest.mark.data
def test_mnist_images_and_parities():
    data = datasets.load("mnist-even-odd", standardize=False)
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 1.0)
    # The figures that programs commonly normalize MNIST with, to four digits.
    assert data.X_train.mean() == pytest.approx(0.1307, abs=6e-5)
    assert data.X_train.std() == pytest.approx(0.3081, abs=6e-5)
    assert_array_equal(data.Y_train[:10, 0], np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4]) % 2)
    assert_array_equal(data.Y_test[:10, 0], np.array([7, 2, 1, 0, 4, 1, 4, 9, 5, 9]) % 2)
