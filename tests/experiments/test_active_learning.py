"""Active learning: the division of the rows, and the selection of rows to label."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from experiments import datasets
from experiments.labeling import divided, entropy


def test_rows_are_divided_and_standardized_without_the_test_rows():
    data, rows, pool = divided("iris", 3, initial=20, num_test=60, additions=30)
    assert (len(data.X_test), len(rows), len(pool)) == (60, 20, 70)
    assert_array_equal(np.concatenate([rows, pool]), np.arange(90))
    # Columns are below 10 in units of their deviation before centering: rounding of the mean stays
    # under 10 eps.
    assert_allclose(data.X_train.mean(axis=0), 0.0, atol=1e-14)
    assert_allclose(data.X_train.std(axis=0), 1.0, rtol=1e-14)
    whole = datasets.load("iris", standardize=False)
    X = np.vstack([data.X_train, data.X_test]) * data.x_scale + data.x_mean
    published = np.vstack([whole.X_train, whole.X_test])
    assert_allclose(np.sort(X, axis=0), np.sort(published, axis=0), rtol=1e-14)


def test_entropy():
    assert_allclose(
        entropy(np.array([[0.5], [1.0], [0.25]])), [np.log(2.0), 0.0, 0.562335], atol=1e-6
    )
    assert_allclose(
        entropy(np.array([[0.25, 0.25, 0.5], [0.0, 1.0, 0.0]])), [1.039721, 0.0], atol=1e-6
    )


def test_rows_are_asked_about(run_experiment):
    sizes = {"initial": 10, "num_test": 400, "additions": 5, "per_round": 3, "M": 4, "maxiter": 2}
    result = run_experiment("labeling", dataset="breast-cancer", model="SVGP", **sizes).result
    assert result["labels"] == [10, 13, 15]
    assert all(
        len(result[name]) == 3 and np.isfinite(result[name]).all()
        for name in ("error", "nlpd", "seconds")
    )
