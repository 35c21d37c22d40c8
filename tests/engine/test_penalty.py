"""log det(I + k X) / k against 50 digits.

Bounds, relative, u = 2^-53 the rounding error of one operation:
- log1p_ratio: a product, log1p (2 u), a quotient: 5 u.
- log_det_ratio of b x b above k |X| = 1e-3: log det(I + k X) errs by b u or so, absolutely, for b =
  4 (a product of 4 squared pivots, 20 roundings) by 20 u / 1e-3 = 2.3e-12. Below: k^4 t5/5 is left
  out, 2e-13 of t1.
"""

import mpmath
import numpy as np
import pytest
import tensorflow as tf
from doubles import double
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.engine.block_sites import log_det_ratio
from gpflow_pep.engine.gaussian import factored_log_det_ratio, log1p_ratio

UNIT = 2.0**-53
JUST_BELOW = np.nextafter(1e-3, 0.0)
JUST_ABOVE = np.nextafter(1e-3, 1.0)
POWERS = [0.0, 1e-300, 1e-12, 1e-6, 1e-4, JUST_BELOW, 1e-3, JUST_ABOVE, 0.1, 1.0]
VALUES = [0.0, 1e-12, 1e-6, 1e-3, 0.01, 0.3, 1.0, 1.5, 10.0, 1e3, 1e6]


@pytest.fixture(autouse=True)
def fifty_digits():
    # 300 and more are lost to the smallest power.
    with mpmath.workdps(700):
        yield


def ratio(power, x):
    k = mpmath.mpf(float(power))
    x = mpmath.mpf(float(x))
    return mpmath.log(1 + k * x) / k if k else x


def relative_error(actual, expected):
    actual = mpmath.mpf(float(actual))
    return float(abs(actual - expected) / abs(expected)) if expected else float(abs(actual))


def test_ratio_of_one_value():
    """For all powers and values; 1e-300 times 1e-12 is subnormal, which TensorFlow takes for 0."""
    k, x = (grid.ravel() for grid in np.meshgrid(POWERS, VALUES))
    normal = (k * x == 0.0) | (k * x >= np.finfo(np.float64).tiny)
    k = k[normal]
    x = x[normal]
    ratios = log1p_ratio(tf.constant(k), tf.constant(x)).numpy()
    for power, value, found in zip(k, x, ratios, strict=True):
        assert relative_error(found, ratio(power, value)) <= 5 * UNIT, (power, value)


def test_a_product_that_underflows():
    """k x below 2e-308: the ratio is x to all digits."""
    k = double(1e-300)
    x = np.array([1e-12, 1e-8])
    assert_allclose(log1p_ratio(k, tf.constant(x)), x, rtol=5 * UNIT, atol=0.0)


def test_a_negative_argument():
    """m - 1 < 0 in T-PEP: log(1 + alpha (m - 1)) / alpha."""
    for power in (0.3, 1e-2, 1e-5):
        k = double(power)
        assert relative_error(log1p_ratio(k, double(-0.9)), ratio(power, -0.9)) <= 5 * UNIT


def test_it_broadcasts_and_does_not_spoil_neighbors():
    """
    A power of 0 beside others gives its limit, and the derivative in x (autodiff) is 1 / (1 + k x)
    for all.
    """
    k = double([[0.0], [1e-300], [1e-6], [1.0]])
    x = double([[0.0, 0.5, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = log1p_ratio(k, x)
        total = tf.reduce_sum(value, axis=1)
    assert value.shape == (4, 3)
    slopes = tape.jacobian(total, x)[:, 0].numpy()  # [4, 3]
    assert_allclose(slopes, 1.0 / (1.0 + k.numpy() * x.numpy()), rtol=8 * UNIT)


def matrices():
    """[G, 4, 4] with eigenvalues of several orders, one singular, one 0."""
    rng = np.random.default_rng(0)
    spectra = np.array(
        [[1.0, 0.7, 0.2, 1e-3], [5.0, 1.0, 0.0, 0.0], [1e3, 10.0, 1.0, 1e-6], [0.0] * 4, [2e-3] * 4]
    )
    roots = np.linalg.qr(rng.normal(size=(5, 4, 4)))[0]
    X = roots @ (spectra[:, :, None] * np.swapaxes(roots, 1, 2))
    return 0.5 * (X + np.swapaxes(X, 1, 2))


def log_det_reference(power, X):
    """
    From the eigenvalues of the stored matrix, at 50 digits (X is not quite singular in doubles).
    """
    eigenvalues = mpmath.eigsy(mpmath.matrix(X.tolist()), eigvals_only=True)
    k = mpmath.mpf(float(power))
    return mpmath.fsum(mpmath.log(1 + k * e) / k if k else e for e in eigenvalues)


def test_log_det_ratio_of_matrices():
    """This includes one power for each matrix."""
    X = matrices()
    for power in POWERS:
        k = double(power)
        values = log_det_ratio(k, tf.constant(X)).numpy()
        assert_array_equal(log_det_ratio(tf.fill([5], k), tf.constant(X)), values)
        with mpmath.workdps(400 if 0.0 < power < 1e-100 else 60):
            errors = [
                relative_error(v, log_det_reference(power, x))
                for v, x in zip(values, X, strict=True)
            ]
        assert max(errors) <= 2.3e-12, (power, errors)


def test_squares_that_rounding_made_negative():
    """A matrix that is nearly 0: the power 0 also gives the trace, not log det I."""
    for power in (0.0, 0.5):
        eye, k, trace, squares = (double(value) for value in (np.eye(2), power, 1e-9, -1e-20))
        assert_allclose(factored_log_det_ratio(eye, k, trace, squares), 1e-9, rtol=1e-10)


@pytest.mark.parametrize("power", [0.0, 1e-9, 1e-6, 1e-4, 0.3, 1.0])
def test_log_det_ratio_from_a_factor(power):
    """
    log det(I + power X) / power of two matrices, one of them indefinite, and the trace at 0: to
    1e-10.
    """
    features = np.random.default_rng(6).normal(size=(2, 5, 5))
    X = features @ np.swapaxes(features, -1, -2) - np.array([0.0, 0.1])[:, None, None] * np.eye(5)
    eigenvalues = np.linalg.eigvalsh(X)
    expected = np.sum(np.log1p(power * eigenvalues) / power if power else eigenvalues, axis=-1)
    factor = tf.linalg.cholesky(np.eye(5) + power * X)
    squares = np.sum(np.square(X), axis=(-2, -1))
    found = factored_log_det_ratio(factor, double(power), np.trace(X, axis1=-2, axis2=-1), squares)
    assert_allclose(found, expected, rtol=1e-10)
