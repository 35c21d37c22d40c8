"""Data of the tests of estimators."""

import numpy as np
import pytest

_rng = np.random.default_rng(3)


@pytest.fixture(scope="session")
def X():
    """Inputs [60, 2] of different spread, away from the origin."""
    return _rng.normal(size=(60, 2)) * [1.0, 10.0] + [5.0, -30.0]


@pytest.fixture(scope="session")
def y(X):
    """Targets [60], of any scale."""
    return (
        100.0
        + 20.0 * np.sin(X[:, 0] + 0.1 * X[:, 1])
        + 2.0 * np.random.default_rng(4).normal(size=len(X))
    )
