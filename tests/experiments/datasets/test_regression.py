"""The regression sets: sizes, splits, and properties of single sets."""

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets.catalog import ENTRIES

# Rows, inputs, mean and standard deviation of the target column, recorded from the files
# independently of this reader.
PUBLISHED = {
    "snelson": (200, 1, None, None),
    "boston": (506, 13, 22.5328, 9.1880),
    "concrete": (1030, 8, 35.8180, 16.6976),
    "energy": (768, 8, 22.3072, 10.0836),
    "kin8nm": (8192, 8, 0.7143, 0.2636),
    "naval": (11934, 16, 0.9750, 0.0147),
    "power": (9568, 4, 454.3650, 17.0661),
    "wine-red": (1599, 11, 5.6360, 0.8073),
    "yacht": (308, 6, 10.4954, 15.1359),
    "kin40k": (40000, 8, 0.0, 0.9970),
    "elevators": (16599, 18, 0.0, 0.2526),
    "airfoil": (1503, 5, 0.0, 6.8964),
    "bike": (17379, 15, 0.0, 1.4861),
    "protein": (45730, 9, 0.0, 0.7730),
    "diabetes": (442, 10, 152.1335, 77.0057),
}
FOLDS = ("kin40k", "elevators", "airfoil", "bike", "protein")


def test_names_and_descriptions():
    assert datasets.names(task="regression") == (*PUBLISHED, "gp-draws")
    for name, (N, D, _, _) in PUBLISHED.items():
        info = datasets.describe(name)
        assert (info.name, info.task, info.N, info.D, info.classes) == (
            name,
            "regression",
            N,
            D,
            (),
        )


def test_number_of_splits():
    assert {name: datasets.describe(name).num_splits for name in PUBLISHED} == {
        name: 10 if name in FOLDS else 20 for name in PUBLISHED
    }
    drawn = {name for name in PUBLISHED if not datasets.describe(name).splits_published}
    assert drawn == {"snelson", "diabetes"}


@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_and_target(name):
    N, D, target_mean, target_deviation = PUBLISHED[name]
    data = datasets.load(name, standardize=False)
    num_test = len(data.X_test)
    assert abs(num_test - N / 10) <= 1
    shapes = [array.shape for array in (data.X_train, data.Y_train, data.X_test, data.Y_test)]
    assert shapes == [(N - num_test, D), (N - num_test, 1), (num_test, D), (num_test, 1)]
    Y = np.concatenate([data.Y_train, data.Y_test])
    if target_mean is not None:  # known to four decimals
        assert Y.mean() == pytest.approx(target_mean, abs=6e-5)
        assert Y.std() == pytest.approx(target_deviation, abs=6e-5)


@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_split_is_a_partition(name):
    source = ENTRIES[name].source
    N = datasets.describe(name).N
    tested = set()
    for split in range(datasets.describe(name).num_splits):
        table = source.read(split)
        assert np.isfinite(np.hstack([table.X, table.Y])).all()
        np.testing.assert_array_equal(
            np.sort(np.concatenate([table.train, table.test])), np.arange(N)
        )
        tested.add(tuple(table.test))
    assert len(tested) == datasets.describe(name).num_splits  # all differ


@pytest.mark.data
@pytest.mark.parametrize("name", FOLDS)
def test_folds_test_every_row_once(name):
    rows = np.concatenate([ENTRIES[name].source.read(split).test for split in range(10)])
    np.testing.assert_array_equal(np.sort(rows), np.arange(datasets.describe(name).N))


def test_draws_of_a_gaussian_process():
    first, second = (datasets.load("gp-draws", split, standardize=False) for split in (0, 1))
    assert first.X_train.shape == first.X_test.shape == (500, 5)
    assert datasets.describe("gp-draws").num_splits == 30
    assert not np.array_equal(first.X_train, second.X_train)
    # Rows are exchangeable and correlated: the deviation of the targets of a draw is at most that
    # of all, about 1.
    assert 0.2 < np.std(np.concatenate([first.Y_train, first.Y_test])) < 2.0
