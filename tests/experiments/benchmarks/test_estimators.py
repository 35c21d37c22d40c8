"""The comparison of the estimators: its data sets, its peers, and the contents of a row."""

import os
import signal

import numpy as np
import pytest

from experiments import datasets
from experiments.benchmarks.estimators import cut_off, housing_like, loaded, made, measured


def test_generated_and_chosen_sets():
    """Some percent of the prices are at the cap; both digits keep their rows and codes."""
    housing = housing_like()
    assert housing.X_train.shape == (20_000, 8) and housing.X_test.shape == (2_000, 8)
    np.testing.assert_allclose(
        [housing.Y_train.mean(), housing.Y_train.std()], [0.0, 1.0], atol=1e-12
    )
    assert 0.02 < np.mean(housing.Y_train == housing.Y_train.max()) < 0.06
    chosen, digits = loaded("digits-3-5"), datasets.load("digits")
    assert set(np.unique(chosen.Y_train)) == {3.0, 5.0}
    assert len(chosen.X_train) == np.isin(digits.Y_train, (3.0, 5.0)).sum() == len(chosen.Y_train)


@pytest.mark.data
@pytest.mark.skipif(
    "GPFLOW_PEP_DATA" not in os.environ, reason="needs the published files: set GPFLOW_PEP_DATA"
)
def test_raw_tables_keep_their_columns_and_have_standardized_targets():
    published, raw = datasets.load("airfoil", standardize=False), loaded("airfoil")
    np.testing.assert_array_equal(raw.X_train, published.X_train)
    np.testing.assert_allclose(raw.Y_test * raw.y_scale + raw.y_mean, published.Y_test, atol=1e-9)


def test_a_fit_is_cut_off():
    with pytest.raises(TimeoutError), cut_off(1000):
        signal.raise_signal(signal.SIGPROF)
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0


@pytest.mark.slow
def test_gpflow_classifies():
    """Two classes apart: no wrong label, and probabilities above a half of the right one."""
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    y = np.array([4.0, 4.0, 7.0, 7.0])
    peer = made("GPflow", X, 2, is_classifier=True)
    peer.fit(X, y)
    np.testing.assert_array_equal(peer.predict(X), y)
    probabilities = peer.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
    assert (probabilities[[0, 1, 2, 3], [0, 0, 1, 1]] > 0.5).all()


def test_a_row():
    row = measured("diabetes", "scikit-learn", rows=30, num_inducing=5, limit=600)
    *labels, first, again, _, error = row
    assert labels == ["diabetes", 30, 10, None, "scikit-learn", "", None]
    assert first > 0.0 and again > 0.0 and 0.0 < error < 2.0
