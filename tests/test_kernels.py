"""Kernels of this library."""

import gpflow
import numpy as np

from gpflow_pep import CenteredLinear


def test_linear_functions_that_are_zero_at_a_center():
    """Powers of two and their sums have no rounding: far from the origin it is the same matrix, to the last digit."""
    X = np.array([[1.0, 5.0, -2.0], [0.5, 7.0, 3.0], [4.0, 1.0, 0.0]])
    far = np.array([2.0**40, 0.0, -(2.0**40)])
    variance = [2.0, 0.25]
    kernel = CenteredLinear(far[[0, 2]] + 1.0, variance, active_dims=[0, 2])
    expected = gpflow.kernels.Linear(variance, active_dims=[0, 2])(X - 1.0)
    np.testing.assert_array_equal(kernel(X + far), expected)
    np.testing.assert_array_equal(kernel(X + far, X[:1] + far), expected[:, :1])
    np.testing.assert_array_equal(kernel(X + far, full_cov=False), np.diag(expected))
    assert not kernel.center.trainable and kernel.variance.trainable
