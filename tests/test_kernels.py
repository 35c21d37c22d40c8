"""Kernels of this library."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep import CenteredLinear
from gpflow_pep.engine import kernel_matrix


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
    scaled = CenteredLinear(far[[0, 2]] + 1.0, variance, active_dims=[0, 2], scale=2.0)
    np.testing.assert_array_equal(scaled(X + far, X[:1] + far), expected[:, :1] / 4.0)
    assert not scaled.scale.trainable


@pytest.mark.parametrize("unit", [2.0**600, 2.0**-600])
def test_kernels_in_units_whose_squares_leave_floating_point_range(unit):
    """Powers of two do not round: matrix and derivatives in logarithms are those in ones, to the last digit."""
    X = np.array([[1.0, -3.0], [0.5, 2.0], [4.0, 0.0]])
    found = []
    for each in (1.0, unit):
        lengthscales = tf.Variable([1.5 * each, 7.0 * each], dtype=tf.float64)
        scaled = gpflow.kernels.Matern52()
        scaled.lengthscales = lengthscales
        linear = CenteredLinear([each, 0.0], [2.0, 0.25], scale=[3.0 * each, each])
        with tf.GradientTape() as tape:
            K = kernel_matrix(scaled + linear, tf.constant(X * each))
            total = tf.reduce_sum(K**2)
        found.append((K, tape.gradient(total, lengthscales) * lengthscales))
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("scale", [0.0, [1.0, -2.0]])
def test_scales_are_positive(scale):
    """Priors take their logarithm: a loss of NaN otherwise."""
    with pytest.raises(ValueError, match="scale must be positive"):
        CenteredLinear([0.0, 0.0], scale=scale)
