"""
The estimators find the same in any unit of the columns and of y, and find signals of any frequency.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from quick import partly_slow

from gpflow_pep.estimators import SparseGPRegressor

rng = np.random.default_rng(8)
X = rng.normal(size=(200, 3))
SIGNAL = np.sin(2.0 * X[:, 0]) + X[:, 1]
Y = SIGNAL + 0.1 * rng.normal(size=200)


def fitted(x_scale=1.0, y_scale=1.0, offset=0.0, **options):
    """Return the estimator, and its R² for the signal in the first column's and y's units."""
    rows = X * [x_scale, 1.0, 1.0] + [offset, 0.0, 0.0]
    estimator = SparseGPRegressor(n_inducing=25, random_state=0, **options).fit(rows, Y * y_scale)
    return estimator, 1.0 - np.mean((estimator.predict(rows) / y_scale - SIGNAL) ** 2) / np.var(
        SIGNAL
    )


@pytest.fixture(scope="module")
def in_ones():
    """The estimator of unscaled data."""
    return fitted()


@partly_slow(("of", "scale"), [("x_scale", 1e-6), ("y_scale", 1e6)], 1)
def test_units_do_not_matter(in_ones, of, scale):
    """The same objectives in the first iterations to rounding, and the same quality at the end."""
    estimator, score = fitted(**{of: scale})
    expected = in_ones[0].result_.objective[:10]
    assert_allclose(estimator.result_.objective[:10], expected, rtol=1e-6)
    assert estimator.result_.converged and score > 0.99 < in_ones[1]
    assert_allclose(estimator.result_.objective[-1], in_ones[0].result_.objective[-1], atol=0.5)


@partly_slow(
    "options",
    [
        {"y_scale": 1e-6, "normalize_y": False},
        {"x_scale": 1e200},
        {"x_scale": 1e-200},
        {"offset": 1e8},
        {"x_scale": 1e4, "optimizer": "adam", "max_iterations": 300},
    ],
    2,
)
def test_extreme_values(options):
    """Also without normalization, far from the origin, and where squares overflow or underflow."""
    assert fitted(**options)[1] > 0.99


def test_a_constant_column_is_no_obstacle_and_effects_of_categories_are_found():
    codes = np.random.default_rng(2).integers(0, 3, 200)
    signal = SIGNAL + 2.0 * codes
    rows = np.hstack([X, np.full((200, 1), 7.0), np.eye(3)[codes]])
    estimator = SparseGPRegressor(n_inducing=25, random_state=0).fit(rows, signal + (Y - SIGNAL))
    assert estimator.result_.converged
    assert 1.0 - np.mean((estimator.predict(rows) - signal) ** 2) / np.var(signal) > 0.98
