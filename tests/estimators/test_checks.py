"""All of scikit-learn's estimator checks; none is skipped or expected to fail."""

from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor

# Few points and iterations: the checks concern interfaces, and fits of data that any model fits
# well. Compiling takes seconds, and data of the checks have nine structures: by default nothing is
# trained, and no sites converge.
OTHERS = [
    SparseGPRegressor(n_inducing=8, max_iterations=20),
    SparseGPClassifier(n_inducing=5, optimizer=None),
    SparseGPClassifier(n_inducing=5, max_iterations=3),
]


@parametrize_with_checks([SparseGPRegressor(optimizer=None)])
def test_scikit_learn(estimator, check, monkeypatch):
    run(estimator, check, monkeypatch)


@parametrize_with_checks(OTHERS)
def test_scikit_learn_with_training_or_sites(estimator, check, monkeypatch):
    run(estimator, check, monkeypatch)


def run(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it a check of the array API is skipped
    try:
        check(estimator)
    except SkipTest as skipped:
        pytest.fail(f"skipped: {skipped}")
