"""The published tables: descriptions, sizes, labels, targets, splits, and traps that notes name."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from experiments import datasets
from experiments.datasets.catalog import ENTRIES

# Task, rows (of each class, if there are classes), inputs, number of splits and whether they are
# published, recorded from the files independently of this reader.
SETS = {
    "snelson": ("regression", [200], 1, 20, False),
    "boston": ("regression", [506], 13, 20, True),
    "concrete": ("regression", [1030], 8, 20, True),
    "energy": ("regression", [768], 8, 20, True),
    "kin8nm": ("regression", [8192], 8, 20, True),
    "naval": ("regression", [11934], 16, 20, True),
    "power": ("regression", [9568], 4, 20, True),
    "wine-red": ("regression", [1599], 11, 20, True),
    "yacht": ("regression", [308], 6, 20, True),
    "kin40k": ("regression", [40000], 8, 10, True),
    "elevators": ("regression", [16599], 18, 10, True),
    "airfoil": ("regression", [1503], 5, 10, True),
    "bike": ("regression", [17379], 15, 10, True),
    "protein": ("regression", [45730], 9, 10, True),
    "diabetes": ("regression", [442], 10, 20, False),
    "australian": ("classification", [383, 307], 14, 20, False),
    "breast": ("classification", [444, 239], 9, 20, True),
    "crabs": ("classification", [100, 100], 6, 20, True),
    "iono": ("classification", [126, 225], 34, 20, True),
    "pima": ("classification", [500, 268], 8, 20, True),
    "sonar": ("classification", [97, 111], 60, 20, True),
    "qp-ionosphere": ("classification", [126, 225], 34, 10, False),
    "qp-cancer": ("classification", [444, 239], 9, 10, False),
    "qp-pima": ("classification", [487, 245], 7, 10, False),
    "qp-crabs": ("classification", [100, 100], 7, 10, False),
    "qp-sonar": ("classification", [97, 111], 60, 10, False),
    "qp-iris-12": ("classification", [50, 50], 4, 10, False),
    "qp-iris-13": ("classification", [50, 50], 4, 10, False),
    "qp-iris-23": ("classification", [50, 50], 4, 10, False),
    "qp-wine-12": ("classification", [59, 71], 13, 10, False),
    "qp-wine-13": ("classification", [59, 48], 13, 10, False),
    "qp-wine-23": ("classification", [71, 48], 13, 10, False),
    "usps-3-5": ("classification", [824, 716], 256, 1, True),
    "qp-usps-3-5": ("classification", [824, 716], 256, 10, False),
    "mnist-even-odd": ("classification", [34418, 35582], 784, 1, True),
    "banana": ("classification", [2924, 2376], 2, 1, True),
    "banana-5300": ("classification", [2924, 2376], 2, 20, False),
    "breast-cancer": ("classification", [357, 212], 30, 20, False),
    "glass": ("multiclass", [70, 76, 17, 13, 9, 29], 9, 20, True),
    "new-thyroid": ("multiclass", [150, 35, 30], 5, 20, True),
    "satellite": ("multiclass", [1533, 703, 1358, 626, 707, 1508], 36, 20, True),
    "svmguide2": ("multiclass", [221, 117, 53], 20, 20, True),
    "vehicle": ("multiclass", [218, 212, 217, 199], 18, 20, True),
    "vowel": ("multiclass", [90] * 6, 10, 20, True),
    "waveform": ("multiclass", [311, 350, 339], 21, 20, True),
    "wine": ("multiclass", [59, 71, 48], 13, 20, True),
    "iris": ("multiclass", [50, 50, 50], 4, 20, False),
    "digits": ("multiclass", [178, 182, 177, 183, 181, 182, 181, 179, 174, 180], 64, 20, False),
}
# Mean and standard deviation of the targets.
TARGETS = {
    "boston": (22.5328, 9.188),
    "concrete": (35.818, 16.6976),
    "energy": (22.3072, 10.0836),
    "kin8nm": (0.7143, 0.2636),
    "naval": (0.975, 0.0147),
    "power": (454.365, 17.0661),
    "wine-red": (5.636, 0.8073),
    "yacht": (10.4954, 15.1359),
    "kin40k": (0.0, 0.997),
    "elevators": (0.0, 0.2526),
    "airfoil": (0.0, 6.8964),
    "bike": (0.0, 1.4861),
    "protein": (0.0, 0.773),
    "diabetes": (152.1335, 77.0057),
}
# Rows of the training part where it is not 90 %.
TRAINED = {
    "usps-3-5": 1214,
    "mnist-even-odd": 60000,
    "banana": 400,
    "satellite": 1287,
    "waveform": 300,
}
# Sets of each task that have tests of their own.
OTHERS = {
    "regression": ["gp-draws"],
    "classification": [],
    "multiclass": ["mnist", "flights", "three-classes"],
}
BUNDLED = ("iris", "digits")


@pytest.mark.parametrize("task", OTHERS)
def test_names(task):
    expected = [name for name, (of_set, *_) in SETS.items() if of_set == task]
    assert [*datasets.names(task=task)] == expected + OTHERS[task]


def test_descriptions():
    for name, (task, counts, D, num_splits, is_published) in SETS.items():
        info = datasets.describe(name)
        classes = 0 if task == "regression" else len(counts)
        assert (info.N, info.D, len(info.classes)) == (sum(counts), D, classes)
        assert (info.num_splits, info.splits_published) == (num_splits, is_published)
        assert all(info.classes)


@pytest.mark.parametrize(
    "name",
    [name if name in BUNDLED else pytest.param(name, marks=pytest.mark.data) for name in SETS],
)
def test_every_split_is_a_partition_that_trains_on_every_class(name):
    task, counts, D, num_splits, _ = SETS[name]
    N = sum(counts)
    tested = []
    for split in range(num_splits):
        X, Y, train, test = ENTRIES[name].source.read(split)
        assert (X.shape, Y.shape) == ((N, D), (N, 1))
        assert X.dtype == Y.dtype == np.float64
        assert np.isfinite(np.hstack([X, Y])).all()
        if task != "regression":
            labels, found = np.unique(Y, return_counts=True)
            assert_array_equal(labels, np.arange(len(counts)))
            assert found.tolist() == counts
            assert len(np.unique(Y[train])) == len(counts)
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(N))
        assert abs(len(train) - TRAINED.get(name, 0.9 * N)) <= 1
        tested.append(tuple(test))
    assert len(set(tested)) == num_splits  # all differ
    if num_splits == 10:
        assert sorted(sum(tested, ())) == list(range(N))


@pytest.mark.data
@pytest.mark.parametrize("name", TARGETS)
def test_targets(name):
    """They are known to four decimals."""
    Y = ENTRIES[name].source.read(0).Y
    assert [Y.mean(), Y.std()] == pytest.approx(TARGETS[name], abs=6e-5)


@pytest.mark.data
def test_mnist_images_and_parities():
    data = datasets.load("mnist-even-odd", standardize=False)
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 1.0)
    # The figures that programs commonly normalize MNIST with, to four digits.
    assert data.X_train.mean() == pytest.approx(0.1307, abs=6e-5)
    assert data.X_train.std() == pytest.approx(0.3081, abs=6e-5)
    assert_array_equal(data.Y_train[:10, 0], np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4]) % 2)
    assert_array_equal(data.Y_test[:10, 0], np.array([7, 2, 1, 0, 4, 1, 4, 9, 5, 9]) % 2)


def test_draws_of_a_gaussian_process():
    first, second = (datasets.load("gp-draws", split, standardize=False) for split in (0, 1))
    assert first.X_train.shape == first.X_test.shape == (500, 5)
    assert datasets.describe("gp-draws").num_splits == 30
    assert not np.array_equal(first.X_train, second.X_train)
    # Rows are exchangeable and correlated: the deviation of the targets of a draw is at most that
    # of all, about 1.
    assert 0.2 < np.std(np.concatenate([first.Y_train, first.Y_test])) < 2.0


def test_digits_are_those_of_scikit_learn():
    X, y = load_digits(return_X_y=True)
    data = datasets.load("digits", standardize=False)
    rows = np.random.RandomState(0).permutation(1797)
    assert_array_equal(data.X_test, X[rows[1617:]])
    assert_array_equal(data.Y_test, y[rows[1617:], None])
    blank = np.flatnonzero(np.ptp(X, axis=0) == 0.0)
    assert_array_equal(blank, [0, 32, 39])
    assert_array_equal(datasets.load("digits").x_scale[blank], 1.0)
