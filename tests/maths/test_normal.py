"""
The logarithm and the hazard of the normal distribution function against 60 digits, in both tails.
"""

import mpmath
import numpy as np
import tensorflow as tf
from differences import derivative
from numpy.testing import assert_allclose
from scipy import special

from gpflow_pep.maths.normal import log_ndtr, log_ndtr_and_derivatives

PLACES = np.array([-1e8, -1e4, -290.0, -100.0, -40.0, -12.001, -11.999, -3.0, -0.1, 0.0, 0.5, 6.0])


def test_matches_sixty_digits():
    """
    log Phi and h to a few hundred roundings: their logarithm's error times its size, 72 at the
    series' edge. x + h is 12 times smaller than h there and carries its error, 1e-11 in all; else
    drop is as good.
    """
    log_cdf = log_ndtr(tf.constant(PLACES))
    again, slope, drop = log_ndtr_and_derivatives(tf.constant(PLACES))
    assert_allclose(again, log_cdf, rtol=2e-14)
    with mpmath.workdps(60):
        for x, *found in zip(PLACES, log_cdf.numpy(), slope.numpy(), drop.numpy(), strict=True):
            x = mpmath.mpf(float(x))
            if x < -1e5:  # erfc underflows: Mills' ratio, next term 1e-46
                mills = (1 - 1 / x**2 + 3 / x**4 - 15 / x**6 + 105 / x**8) / -x
                log_phi = -x * x / 2 - mpmath.log(2 * mpmath.pi) / 2
                expected = log_phi + mpmath.log(mills), 1 / mills
            else:
                cdf = mpmath.erfc(-x / mpmath.sqrt(2)) / 2
                expected = mpmath.log(cdf), mpmath.npdf(x) / cdf
            expected = *expected, expected[1] * (x + expected[1])
            for value, exact, tolerance in zip(found, expected, (2e-14, 1e-13, 2e-11), strict=True):
                assert abs(value / exact - 1) < tolerance, (float(x), tolerance)


def test_single_precision():
    """
    To machine precision relative to log Phi, a few roundings of 6e-8 more in exponents and near the
    series' edge.
    """
    x = np.linspace(-60.0, 5.0, 651).astype(np.float32)
    expected = special.log_ndtr(x.astype(float))
    log_cdf, (again, slope, drop) = (
        log_ndtr(tf.constant(x)),
        log_ndtr_and_derivatives(tf.constant(x)),
    )
    assert_allclose(log_cdf, expected, rtol=2e-6)
    assert_allclose(again, expected, rtol=2e-6)
    assert np.all(np.isfinite(slope)) and np.all((drop.numpy() >= 0.0) & (drop.numpy() <= 1.0001))


def test_gradient_in_single_precision():
    """The slope is 0 if Phi(-x) underflows. Rounding of the exponent: 90 times 6e-8 at -13."""
    x = tf.constant([-20.0, -13.0, 0.0, 5.0, 15.0, 50.0])
    expected = np.exp(-0.5 * x.numpy().astype(float) ** 2 - special.log_ndtr(x.numpy())) / np.sqrt(
        2.0 * np.pi
    )
    assert_allclose(derivative(log_ndtr, x), expected, rtol=1e-5, atol=1e-37)
