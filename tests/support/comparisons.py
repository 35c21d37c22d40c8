"""Comparisons of several arrays with several others, of any shapes."""

import numpy as np


def assert_near(actual, expected, atol):
    """The largest absolute difference is at most `atol`."""
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=atol)


def assert_all_close(actual, expected, rtol=1e-7, atol=0.0):
    """Each array is close to its counterpart."""
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def assert_all_near(actual, expected, atol):
    """The largest absolute difference of each array from its counterpart is at most `atol`."""
    for one, other in zip(actual, expected, strict=True):
        assert_near(one, other, atol)


def assert_all_equal(actual, expected):
    """Each array is equal to its counterpart, bit for bit."""
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
