"""The old posterior as a site; the tests of models cover its use in streams."""

import numpy as np
import pytest
from doubles import double
from refusals import stopped

from gpflow_pep.engine.old_posterior import _site


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_covariances_that_are_not_positive_semidefinite(alpha):
    """Q = diag(-2, 1), R = I: I + α R'QR is positive definite below α = 1/2 only."""
    eye = double(np.eye(2))
    linear = double([[0.3], [-0.2]])
    arguments = eye, double(np.diag([-2.0, 1.0])), eye, linear, double(alpha)
    if alpha == 0.0:
        np.testing.assert_allclose(_site(*arguments)[0], np.eye(2), rtol=1e-15)
        return
    with stopped(r"not successful: I \+ alpha R'QR of the old posterior.*jitter"):
        _site(*arguments)
