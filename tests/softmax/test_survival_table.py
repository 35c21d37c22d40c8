"""
The tabulated Laplace transform of a log-normal variable against the trapezoid rule on many points,
and far out.
"""

import numpy as np
import pytest
import tensorflow as tf
from log_normal import survival
from numpy.testing import assert_allclose

from gpflow_pep.softmax.survival import LARGEST_VARIANCE, LOWEST, tabulated_survival


def found(x, variance):
    values = tabulated_survival(tf.constant(x[None]), tf.constant([variance], tf.float64))
    return [value.numpy()[0] for value in values]


def test_references():
    """Down to a fifth of the lowest value it is twenty times as accurate, or more."""
    for variance, close in [
        (0.0, 1e-10),
        (1e-4, 1e-10),
        (0.03, 1e-10),
        (1.0, 2e-10),
        (9.0, 5e-10),
        (30.0, 1e-9),
        (LARGEST_VARIANCE, 1e-8),
    ]:
        x = np.linspace(-24.0 - 1.5 * variance, 6.0 + 19.0 * np.sqrt(variance), 500)
        expected = survival(x, variance)
        inside = expected[0] > LOWEST
        likely = expected[0] > 0.2 * LOWEST
        assert expected[0].min() < LOWEST
        for actual, wanted in zip(found(x, variance), expected, strict=True):
            assert_allclose(actual[inside], wanted[inside], rtol=20.0 * close)
            assert_allclose(actual[likely], wanted[likely], rtol=close)


@pytest.mark.parametrize("variance", [0.0, 1.0, LARGEST_VARIANCE])
def test_far_out(variance):
    """1 - S is exp(x + v/2) on the left; on the right all is finite and falls on."""
    x = np.linspace(-200.0, -25.0 - 1.5 * variance, 50)
    log_S, hazard = found(x, variance)
    for value in (-log_S, hazard):
        assert_allclose(value, np.exp(x + 0.5 * variance), rtol=1e-6)
    log_S, hazard = found(np.linspace(0.0, 1e6, 1000), variance)
    assert np.all(np.isfinite(hazard)) and np.all(hazard > 0.0)
    assert np.all(np.diff(log_S) <= 0.0) and np.all(log_S[1:] < LOWEST)


def test_single_precision():
    x = np.linspace(-20.0, 3.0, 50)
    values = tabulated_survival(tf.constant(x[None], tf.float32), tf.constant([0.7], tf.float32))
    for value, wanted in zip(values, survival(x, 0.7), strict=True):
        assert value.dtype == tf.float32
        assert_allclose(value[0], wanted, rtol=2e-4)
