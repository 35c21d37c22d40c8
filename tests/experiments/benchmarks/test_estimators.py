"""The comparison of the estimators: its data sets, its peers, and the contents of a row."""

import json
import signal
import sys

import numpy as np
import pytest
from marks import needs_data
from numpy.testing import assert_allclose, assert_array_equal

from experiments import datasets
from experiments.benchmarks import estimators
from experiments.benchmarks.methods import cut_off, made


@pytest.mark.data
@needs_data
def test_raw_tables_keep_their_columns_and_have_standardized_targets():
    published, standardized = (datasets.load("airfoil", standardize=flag) for flag in (False, True))
    (X, y), (X_test, y_test) = estimators.loaded("airfoil", 50)
    assert len(X) == len(y) == 50 and set(map(tuple, X)) <= set(map(tuple, published.X_train))
    assert_array_equal(X_test, published.X_test)
    assert_array_equal(y_test, standardized.Y_test[:, 0])


def test_a_fit_is_cut_off():
    with pytest.raises(TimeoutError), cut_off(1000):
        signal.raise_signal(signal.SIGPROF)
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0


def test_gpflow_classifies():
    """Two classes apart: no wrong label, and probabilities above a half of the right one."""
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    y = np.array([4, 4, 7, 7])
    peer = made("svgp:M=2,lengthscale=1.0", X, 2)
    peer.fit(X, y)
    assert_array_equal(peer.predict(X), y)
    probabilities = peer.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
    assert (probabilities[[0, 1, 2, 3], [0, 0, 1, 1]] > 0.5).all()


def test_rows(tmp_path, monkeypatch):
    options = ["--sets", "diabetes", "iris", "--rows", "30", "--inducing", "5"]
    path = tmp_path / "tables.json"
    monkeypatch.setattr(sys, "argv", ["estimators", *options, "--json", str(path)])
    estimators.main()
    (table,) = json.loads(path.read_text())
    assert [(row["set"], row["estimator"]) for row in table["rows"]] == [
        (name, method)
        for name in ("diabetes", "iris")
        for method in ("alpha 0.5", "scikit-learn", "GPflow")
    ]
    for row in table["rows"]:
        assert row["N"] == 30 and row["classes"] == (3 if row["set"] == "iris" else None)
        assert row["first, s"] > 0.0 and row["again, s"] > 0.0 and 0.0 <= row["error"] < 2.0
