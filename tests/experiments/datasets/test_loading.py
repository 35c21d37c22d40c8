"""
Loading: names, descriptions, splits and standardization, on the sets that come with scikit-learn.
"""

import numpy as np
import pytest
from comparisons import assert_all_equal
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from splits import assert_is_split

from experiments import datasets

BUNDLED = "diabetes"
BUNDLED_CLASSES = ("breast-cancer", "qp-iris-12", "qp-iris-13", "qp-iris-23")


@pytest.mark.parametrize("function", [datasets.load, datasets.describe])
def test_unknown_name(function):
    with refused(r"name is 'bostn'; accepted are snelson, boston.*Did you mean 'boston'\?"):
        function("bostn")
    with refused(r"name is None; accepted are .* gp-series\.$"):
        function(None)


@pytest.mark.parametrize("split", [-1, 20, 1.0, "0", None])
def test_split_out_of_range(split):
    with refused(rf"split is {split!r}; diabetes accepts whole numbers from 0 to 19"):
        datasets.load(BUNDLED, split)


@pytest.mark.parametrize("split", range(20))
def test_seeded_splits_are_as_documented(split):
    X, y = load_diabetes(return_X_y=True, scaled=False)
    rows = np.random.RandomState(split).permutation(442)
    data = datasets.load(BUNDLED, split, standardize=False)
    assert_is_split(data, X, y[:, None], rows[:398], rows[398:])


def test_split_may_be_a_numpy_integer():
    assert_array_equal(datasets.load(BUNDLED, np.int64(3)).X_test, datasets.load(BUNDLED, 3).X_test)


def assert_standardized(columns):
    """
    Columns reach 1e2 in units of their deviation before centering: rounding of the mean stays under
    1e2 eps sqrt(N).
    """
    assert_allclose(columns.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(columns.std(axis=0), 1.0, rtol=1e-12)


def test_training_part_has_mean_zero_and_deviation_one():
    data = datasets.load(BUNDLED)
    assert_standardized(np.hstack([data.X_train, data.Y_train]))
    assert abs(data.Y_test.mean()) > 1e-6  # the test part is not centered by itself


def test_standardized_values_go_back_to_published_units():
    raw = datasets.load(BUNDLED, standardize=False)
    data = datasets.load(BUNDLED)
    for part in ("train", "test"):
        X = getattr(data, f"X_{part}")
        Y = getattr(data, f"Y_{part}")
        assert_allclose(X * data.x_scale + data.x_mean, getattr(raw, f"X_{part}"), rtol=1e-12)
        assert_allclose(Y * data.y_scale + data.y_mean, getattr(raw, f"Y_{part}"), rtol=1e-12)


def test_without_standardization_means_are_zero_and_scales_one():
    raw = datasets.load(BUNDLED, standardize=False)
    found = raw.x_mean, raw.x_scale, raw.y_mean, raw.y_scale
    assert_all_equal(found, (np.zeros(10), np.ones(10), [0.0], [1.0]))


@pytest.mark.parametrize("task", ["multi-class", ""])
def test_unknown_task(task):
    accepted = "regression, classification, multiclass, streaming and None"
    with refused(f"task is '{task}'; accepted are {accepted}"):
        datasets.names(task=task)


@pytest.mark.parametrize("split", [0, 19])
def test_malignant_tumours_are_labeled_1(split):
    X, y = load_breast_cancer(return_X_y=True)  # y is 0 for malignant
    rows = np.random.RandomState(split).permutation(569)
    data = datasets.load("breast-cancer", split, standardize=False)
    assert_is_split(data, X, 1.0 - y[:, None], rows[:512], rows[512:])
    assert datasets.describe("breast-cancer").classes == ("benign", "malignant")


@pytest.mark.parametrize("pair", [(1, 2), (1, 3), (2, 3)])
def test_pair_of_irises(pair):
    iris = load_iris()
    name = f"qp-iris-{pair[0]}{pair[1]}"
    assert datasets.describe(name).classes == tuple(
        iris.target_names[species - 1] for species in pair
    )
    data = datasets.load(name, 3, standardize=False)
    for label, species in enumerate(pair):
        parts = [data.X_train[data.Y_train[:, 0] == label], data.X_test[data.Y_test[:, 0] == label]]
        X = np.concatenate(parts)
        expected = iris.data[iris.target == species - 1]
        assert_array_equal(X[np.lexsort(X.T)], expected[np.lexsort(expected.T)])


@pytest.mark.parametrize("name", BUNDLED_CLASSES)
def test_inputs_of_classes_are_standardized_and_labels_are_not(name):
    data = datasets.load(name)
    assert_standardized(data.X_train)
    for Y in (data.Y_train, data.Y_test):
        assert Y.dtype == np.float64
        assert Y.shape == (len(Y), 1)
        assert set(Y.ravel()) == {0.0, 1.0}
    assert_array_equal(data.y_mean, [0.0])
    assert_array_equal(data.y_scale, [1.0])
