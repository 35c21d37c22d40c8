"""
Log densities and their derivatives in f, elementwise: against 30 digits, automatic differentiation,
and far out.

A value, slope or curvature is a few operations (log_ndtr: tests/likelihoods/test_binary.py), each
good to 2^-53, but f is multiplied by up to itself (f²/2 in an exponent): relative errors up to f²
2^-53 = 1e-12 for |f| <= 100. In a probit's curvature -h (x + h), x + h = 1/|x| cancels down to x^-2
of itself at the wrong end: there x⁴ 2^-53.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tilted_references
from comparisons import assert_all_close, assert_near
from differences import derivative
from doubles import double
from gpflow.likelihoods import Bernoulli, Beta, Gamma, Ordinal, Poisson, StudentT
from mpmath import mp, mpf
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.tilted import Observations, log_density
from gpflow_pep.tilted.densities import log_power

F = np.array([-100.0, -37.0, -12.5, -11.9, -3.0, -0.4, 0.0, 1e-3, 0.7, 2.0, 8.0, 20.0, 37.5])
RELATIVE = 1e-11


def evaluate(likelihood, f, y):
    """Log density, slope and curvature at f, [K] each, given y."""
    X = tf.zeros([1, 1], tf.float64)
    found = log_density(likelihood)(tf.constant(f[:, None]), X, double([[y]]))
    return [part.numpy()[:, 0] for part in found]


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("name", ["probit", "logit"])
def test_binary_matches_high_precision(name, y):
    make, density = tilted_references.LIKELIHOODS[name]
    found = evaluate(make(), F, y)
    with mp.workdps(40):
        expected = np.array([[float(part) for part in density(y).at(mpf(float(f)))] for f in F]).T
    for one, other, power in zip(found, expected, (0, 0, 4), strict=True):
        assert np.all(
            np.abs(one - other) <= (RELATIVE + np.abs(F) ** power * 2.0**-53) * np.abs(other)
        )


def test_poisson():
    likelihood = Poisson(binsize=0.3)
    found = evaluate(likelihood, F, 5.0)
    with mp.workdps(30):
        g = [mpf(float(f)) + mp.log(mpf(0.3)) for f in F]
        expected = [[5 * x - mp.exp(x) - mp.log(120), 5 - mp.exp(x), -mp.exp(x)] for x in g]
    # 5 - exp(g) cancels by at most a factor of 10 at these f.
    assert_allclose(found, np.array(expected, float).T, rtol=RELATIVE)
    far = evaluate(likelihood, np.array([-800.0, 800.0]), 5.0)
    assert np.all(np.isfinite([part[0] for part in far]))
    assert [part[1] for part in far] == [-np.inf] * 3  # never NaN


def test_bernoulli_of_a_sigmoid_is_the_logit():
    """GPflow's own log(1 - p) is -inf from f = 37 on."""
    far = np.append(F, [-800.0, 800.0])
    for y in (0.0, 1.0):
        ours = evaluate(Logit(), far, y)
        for link in (tf.sigmoid, tf.nn.sigmoid, tf.math.sigmoid):
            assert_array_equal(evaluate(Bernoulli(invlink=link), far, y), ours)
    assert_allclose(
        np.squeeze(evaluate(Logit(), np.array([-800.0]), 1.0)), [-800.0, 1.0, 0.0], atol=0.0
    )
    assert_array_equal(np.squeeze(evaluate(Logit(), np.array([800.0]), 1.0)), [-0.0, 0.0, -0.0])


def test_ordinal_at_the_outermost_bins():
    """
    GPflow's log_prob is NaN at the infinite outermost edges. Central differences err by h²/6 times
    a third derivative of order 1, 1e-8, and by rounding over h.
    """
    likelihood = Ordinal(np.array([-1.0, 0.2, 0.5]))
    f = np.linspace(-6.0, 6.0, 9)
    h = 1e-4
    likelihood.sigma.assign(0.8)
    rounding = 2.0**-51 / 1e-6  # of p, at worst 1e-6, by cancellation of numbers up to 1
    for y in range(4):
        value, slope, curvature = evaluate(likelihood, f, float(y))
        edges = np.array([-np.inf, -1.0, 0.2, 0.5, np.inf]) / 0.8
        below, above = (1e-3 + (1.0 - 2e-3) * norm.cdf(edges[y + k] - f / 0.8) for k in (0, 1))
        assert_near(value, np.log(above - below + 1e-6), rounding)
        left, right = (evaluate(likelihood, f + step, float(y)) for step in (-h, h))
        assert_allclose(slope, (right[0] - left[0]) / (2 * h), atol=2 * rounding / h)
        assert_allclose(curvature, (right[1] - left[1]) / (2 * h), atol=2 * rounding / h)


AUTOMATIC = {
    "poisson softplus": (Poisson(tf.nn.softplus), 2.0),
    "bernoulli": (Bernoulli(), 0.0),
    "gamma": (Gamma(shape=2.0), 0.4),
    "beta": (Beta(scale=3.0), 0.4),
}


@pytest.mark.parametrize("name", AUTOMATIC)
def test_derivatives_match_log_prob(name):
    """Two derivatives by tapes of the public `log_prob`, near 0, where it is accurate."""
    likelihood, y = AUTOMATIC[name]
    f = tf.constant(np.linspace(-3.0, 3.0, 11)[:, None])

    def value(f):
        return likelihood.log_prob(tf.zeros([11, 1], tf.float64), f, tf.fill([11, 1], double(y)))

    def slope(f):
        return derivative(value, f)

    found = evaluate(likelihood, f.numpy()[:, 0], y)
    expected = value(f), slope(f)[:, 0], derivative(slope, f)[:, 0]
    assert_all_close(found, expected, rtol=RELATIVE, atol=1e-13)


def test_constant_density_has_zero_derivatives():
    """Unconnected derivatives are 0, not an error."""

    class Constant(StudentT):
        def _scalar_log_prob(self, X, F, Y):
            return tf.zeros_like(F) - 1.0

    value, slope, curvature = evaluate(Constant(), F, 0.0)
    assert np.all(value == -1.0) and np.all(slope == 0.0) and np.all(curvature == 0.0)


@pytest.mark.parametrize("y", [0.0, 0.7])
def test_gamma_shape_gradient(y):
    """d/dk (k - 1) log y = log y also at k = 1; TensorFlow's xlogy gives 0."""
    k = tf.Variable(1.0, dtype=tf.float64)

    def value(k):
        return log_power(double([y]), k)

    assert value(k) == 0.0
    assert_allclose(derivative(value, k), np.log(y) if y > 0.0 else 0.0, rtol=1e-15)


# --- radii of analyticity, which determine the error of the trapezoid rule ------------------------


def reach(likelihood, y, X=((0.0,),)):
    """Radius and center of the rows X, each [R]."""
    X = double(X)
    density = log_density(likelihood)
    observations = Observations(X, tf.fill([len(X), 1], double(y)))
    return np.broadcast_to(density.radius(X), len(X)), np.broadcast_to(
        density.center(observations), len(X)
    )


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_binary_radius_is_distance_to_nearest_zero(y):
    """The zeros of p in the complex plane, to the digits that the radii are given with."""

    def normal(z):
        return mp.erfc(-z / mp.sqrt(2)) / 2

    sign = 2 * int(y) - 1
    (radius,), (center,) = reach(Probit(), y)
    assert abs(abs(mp.findroot(normal, mp.mpc(1.9, radius)).imag) - radius) < 1e-3
    assert center == 0.0
    (radius,), (center,) = reach(Logit(), y)
    assert abs(1 + mp.exp(-mp.mpc(0, radius))) < 1e-15 and center == 0.0
    (radius,), (center,) = reach(Bernoulli(), y)
    zero = mp.findroot(lambda f: 1e-3 + (1 - 2e-3) * normal(f), mp.mpc(sign * center, radius))
    assert abs(abs(zero.imag) - radius) < 1e-3 and abs(sign * zero.real - center) < 1e-3


@pytest.mark.parametrize("df", [1.0, 3.0, 40.0])
def test_student_t_radius_bounds_density(df):
    """
    At the radius from its center, the observation, the modulus is ten times the largest value;
    scales may vary.
    """
    X = [[-1.0], [2.0]]
    scales = (0.2, 0.8)
    likelihood = StudentT(scale=gpflow.functions.Linear([[0.2]], [0.4]), df=df)
    radii, centers = reach(likelihood, 0.7, X)
    assert_array_equal(centers, 0.7)
    modulus = np.abs(1.0 + np.square(1j * radii / scales) / df) ** (-0.5 * (df + 1.0))
    assert_allclose(modulus, 10.0, rtol=1e-11)


@pytest.mark.parametrize("df", [2.3, 4, 1e10])
def test_student_t_large_df_is_accurate(df):
    """df is neither rounded to single precision nor lost in 1 + z²/ν."""
    found = evaluate(StudentT(scale=0.7, df=df), F, 0.3)
    with mp.workdps(60):

        def density(f):
            nu = mpf(df)
            z = (mpf(0.3) - f) / mpf(0.7)
            constant = mp.loggamma((nu + 1) / 2) - mp.loggamma(nu / 2) - mp.log(mp.pi * nu) / 2
            return constant - mp.log(mpf(0.7)) - (nu + 1) / 2 * mp.log1p(z**2 / nu)

        expected = [[float(mp.diff(density, mpf(float(f)), n)) for f in F] for n in range(3)]
    assert_allclose(found, expected, rtol=RELATIVE, atol=1e-12)
