"""Kernels of this library."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from comparisons import assert_all_close
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused, stopped

from gpflow_pep import CenteredLinear
from gpflow_pep.engine import kernel_matrix


def test_linear_functions_that_are_zero_at_a_center():
    """
    Powers of two and their sums have no rounding: far from the origin it is the same matrix, to the
    last digit.
    """
    X = np.array([[1.0, 5.0, -2.0], [0.5, 7.0, 3.0], [4.0, 1.0, 0.0]])
    far = np.array([2.0**40, 0.0, -(2.0**40)])
    variance = [2.0, 0.25]
    kernel = CenteredLinear(far[[0, 2]] + 1.0, variance, active_dims=[0, 2])
    expected = gpflow.kernels.Linear(variance, active_dims=[0, 2])(X - 1.0)
    assert_array_equal(kernel(X + far), expected)
    assert_array_equal(kernel(X + far, X[:1] + far), expected[:, :1])
    assert_array_equal(kernel(X + far, full_cov=False), np.diag(expected))
    assert not kernel.center.trainable and kernel.variance.trainable
    scaled = CenteredLinear(far[[0, 2]] + 1.0, variance, active_dims=[0, 2], scale=2.0)
    assert_array_equal(scaled(X + far, X[:1] + far), expected[:, :1] / 4.0)
    assert not scaled.scale.trainable


@pytest.mark.parametrize("unit", [2.0**600, 2.0**-600])
def test_kernels_in_units_whose_squares_leave_floating_point_range(unit):
    """
    Matrix and derivatives in logarithms are those in ones. Powers of two do not round; the softplus
    of the scale, 420 in size, does.
    """
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
    assert_all_close(*found, rtol=1e-12)


def test_variance_over_scale_may_leave_floating_point_range():
    kernel = CenteredLinear([0.0], 1e200, scale=1e-150)
    X = np.array([[1e-150], [0.0]])
    for K in (kernel(X), kernel(X, X), np.diag(kernel(X, full_cov=False))):
        assert_allclose(K, [[1e200, 0.0], [0.0, 0.0]], rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 0.0}, r"scale must be in \(0, inf\), got 0.0"),
        ({"scale": "a"}, "scale must be one number or one per column .*got 'a'"),
        ({"scale": [1.0, 2.0, 3.0]}, r"scale must be .*one per column \[2\].*got shape \[3\]"),
        ({"variance": -1.0}, "variance must be .*got -1.0"),
        ({"center": [0.0, np.inf]}, "center must be finite"),
        ({"center": 0.0}, r"center must have shape \[1\], got \[\]"),
        ({"center": None}, "center must hold real numbers, got None"),
        ({"active_dims": [0]}, "active_dims"),
    ],
)
def test_arguments_are_checked(arguments, message):
    """Priors take logarithms of scales: a loss of NaN otherwise."""
    with refused(message):
        CenteredLinear(**{"center": [0.0, 0.0], **arguments})


def test_scales_stay_positive():
    kernel = CenteredLinear([0.0, 0.0], scale=[1e-300, 1e300])
    assert_allclose(kernel.scale, [1e-300, 1e300], rtol=1e-12)
    with stopped("incompatible with this parameter"):
        kernel.scale.assign([-1.0, 1.0])


def test_columns_are_not_repeated():
    """A single column would be broadcast to the two of the center."""
    kernel = CenteredLinear([0.0, 1.0])
    for X in (np.ones((2, 1)), np.ones((2, 3))):
        with pytest.raises(ShapeMismatchError):
            kernel(X)
        with pytest.raises(ShapeMismatchError):
            kernel(X, full_cov=False)
