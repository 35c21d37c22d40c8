"""The published tables: descriptions, sizes, labels, targets, splits, and traps that notes name."""

from types import SimpleNamespace

import numpy as np
import pytest
from comparisons import assert_near
from model_values import references
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from experiments import datasets
from experiments.datasets.catalog import ENTRIES

# What is in them: tests/data/README.md.
SETS = {name: SimpleNamespace(**each) for name, each in references("published_sets").items()}
# Sets of each task that have tests of their own.
OTHERS = {
    "regression": ["gp-draws"],
    "classification": [],
    "multiclass": ["mnist", "flights", "three-classes"],
}
BUNDLED = ("iris", "digits")


@pytest.mark.parametrize("task", OTHERS)
def test_names(task):
    expected = [name for name, each in SETS.items() if each.task == task]
    assert [*datasets.names(task=task)] == expected + OTHERS[task]


def test_descriptions():
    for name, expected in SETS.items():
        info = datasets.describe(name)
        classes = 0 if expected.task == "regression" else len(expected.rows)
        assert (info.N, info.D, len(info.classes)) == (sum(expected.rows), expected.inputs, classes)
        assert (info.num_splits, info.splits_published) == (expected.splits, expected.published)
        assert all(info.classes)


@pytest.mark.parametrize(
    "name",
    [name if name in BUNDLED else pytest.param(name, marks=pytest.mark.data) for name in SETS],
)
def test_every_split_is_a_partition_that_trains_on_every_class(name):
    expected = SETS[name]
    counts = expected.rows
    N = sum(counts)
    tested = []
    for split in range(expected.splits):
        X, Y, train, test = ENTRIES[name].source.read(split)
        assert (X.shape, Y.shape) == ((N, expected.inputs), (N, 1))
        assert X.dtype == Y.dtype == np.float64
        assert np.isfinite(np.hstack([X, Y])).all()
        if expected.task != "regression":
            labels, found = np.unique(Y, return_counts=True)
            assert_array_equal(labels, np.arange(len(counts)))
            assert found.tolist() == counts
            assert len(np.unique(Y[train])) == len(counts)
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(N))
        assert abs(len(train) - getattr(expected, "trained", 0.9 * N)) <= 1
        tested.append(tuple(test))
    assert len(set(tested)) == expected.splits  # all differ
    if expected.splits == 10:
        assert sorted(sum(tested, ())) == list(range(N))


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in SETS if hasattr(SETS[name], "targets")])
def test_targets(name):
    """They are known to four decimals."""
    Y = ENTRIES[name].source.read(0).Y
    assert_near([Y.mean(), Y.std()], SETS[name].targets, 6e-5)


@pytest.mark.data
def test_mnist_images_and_parities():
    data = datasets.load("mnist-even-odd", standardize=False)
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 1.0)
    # The figures that programs commonly normalize MNIST with, to four digits.
    assert_near(data.X_train.mean(), 0.1307, 6e-5)
    assert_near(data.X_train.std(), 0.3081, 6e-5)
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
