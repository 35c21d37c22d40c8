"""The probability that a Gaussian is the largest, against closed forms and brute force.

CLOSE is the documented error of P; derivatives, whose integrands change faster, must have errors
below 1e-7.
"""

import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from differences import slope_and_curvature
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_ndtr

from gpflow_pep.maths.largest import largest

CLOSE = 1e-10
SLOPE_CLOSE = 1e-7
MODULE = sys.modules[largest.__module__]  # the package has a function of this name


def found(label, mean, variance):
    return largest(*(tf.constant(np.asarray(value, kind)) for value, kind in
                     ((label, np.int32), (mean, float), (variance, float))))  # fmt: skip


def exact(label, mean, variance):
    """
    log P by Gauss-Legendre between points half a standard deviation apart of every function that
    changes there.
    """
    sd = np.sqrt(variance)
    points = np.unique(mean[:, None] + np.arange(-40.0, 40.5, 0.5) * sd[:, None])
    points = points[np.abs(points - mean[label]) <= 40.0 * sd[label]]
    nodes, weights = np.polynomial.legendre.leggauss(30)
    half = 0.5 * np.diff(points)[:, None]
    x = points[:-1, None] + half * (nodes + 1.0)
    log_integrand = -0.5 * ((x - mean[label]) / sd[label]) ** 2 - 0.5 * np.log(
        2.0 * np.pi * variance[label]
    )
    for k in np.delete(np.arange(len(mean)), label):
        log_integrand += log_ndtr((x - mean[k]) / sd[k])
    height = log_integrand.max()
    return height + np.log(np.sum(half * weights * np.exp(log_integrand - height)))


def hazard_of(z):
    """φ(z)/Phi(z)."""
    return np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))


@pytest.mark.parametrize("label", [0, 1])
def test_two_classes_match_closed_form(label):
    """P = Phi((m_y - m_k)/sqrt(v_y + v_k)), down to 1e-300."""
    rng = np.random.default_rng(81)
    mean = rng.normal(size=(2, 200)) * np.geomspace(0.1, 1000.0, 200)
    variance = 10.0 ** rng.uniform(-4.0, 3.0, (2, 200))
    total = np.sqrt(variance.sum(axis=0))
    z = (mean[label] - mean[1 - label]) / total
    mean, variance, total, z = (value[..., z > -37.0] for value in (mean, variance, total, z))
    result = found(np.full(len(z), label), mean, variance)
    assert np.min(result.log_prob) < -300.0
    error = np.expm1(result.log_prob - log_ndtr(z))
    assert np.abs(error).max() < CLOSE
    hazard = hazard_of(z)
    slope = hazard / total
    curvature = -hazard * (z + hazard) / total**2
    sign = np.where(np.arange(2) == label, 1.0, -1.0)[:, None]
    error = (result.slope - sign * slope) / (slope + 1e-4 / total)  # 0 if P is 1 up to rounding
    assert np.abs(error).max() < SLOPE_CLOSE
    scale = (hazard * (np.abs(z) + hazard) + 1e-4) / total**2
    assert np.abs((result.curvature - curvature) / scale).max() < SLOPE_CLOSE
    ratio = 1.0 + variance * curvature
    assert np.abs((result.ratio - ratio) / (1.0 + variance * scale)).max() < SLOPE_CLOSE


CASES = {
    "moderate": (3, 1.0, (0.1, 2.0)),
    "ten": (10, 1.0, (0.1, 1.0)),
    "unequal": (4, 2.0, (1e-4, 1e3)),
    "very unequal": (6, 2.0, (1e-16, 1e2)),
    "small": (5, 8.0, (0.5, 1.0)),
}


SMALLEST = {"moderate": 0.03, "ten": 1e-3, "unequal": 1e-9, "very unequal": 1e-9, "small": 1e-15}


@pytest.mark.parametrize("case", CASES)
def test_several_classes_match_dense_quadrature(case):
    C, spread, (low, high) = CASES[case]
    rng = np.random.default_rng(82)
    R = 40
    mean = spread * rng.normal(size=(C, R))
    variance = np.exp(rng.uniform(np.log(low), np.log(high), (C, R)))
    label = rng.integers(0, C, R)
    log_prob = found(label, mean, variance).log_prob.numpy()
    expected = np.array([exact(label[row], mean[:, row], variance[:, row]) for row in range(R)])
    at_hand = expected > -700.0  # the rest is beyond the reference's 40 standard deviations
    assert np.sum(at_hand) > R // 3
    assert np.min(expected[at_hand]) < np.log(SMALLEST[case])
    assert np.abs(np.expm1(log_prob - expected)[at_hand]).max() < CLOSE


def test_hundred_equal_classes():
    """Equal Gaussians have probability 1/C; for unequal Gaussians the probabilities sum to 1."""
    C = 100
    equal = found(np.arange(C), np.zeros((C, C)), np.full((C, C), 0.7))
    assert_allclose(np.exp(equal.log_prob), 1.0 / C, rtol=CLOSE)
    rng = np.random.default_rng(83)
    mean = rng.normal(size=(C, 1))
    variance = np.exp(rng.normal(size=(C, 1)))
    every = found(np.arange(C), np.tile(mean, C), np.tile(variance, C))
    assert_allclose(np.sum(np.exp(every.log_prob)), 1.0, rtol=CLOSE)
    assert np.min(every.log_prob) < np.log(1e-6)


@pytest.mark.parametrize("other", [1e-8, 1e-10, 1e-13, 1e-20, 1e-30, 0.0])
def test_steep_steps_are_resolved(other):
    """
    If f_k hardly varies, the integrand starts with a step as wide as its standard deviation, which
    nodes must resolve. The second derivative in m_k, which has no effect, has an error of rounding
    over that standard deviation.
    """
    place = np.random.default_rng(85).uniform(-6.0, 6.0, 2000)
    mean = np.stack([np.zeros(2000), place])
    variance = np.stack([np.ones(2000), np.full(2000, other)])
    result = found(np.zeros(2000), mean, variance)
    z = -place / np.sqrt(1.0 + other)
    hazard = hazard_of(z)
    assert np.abs(np.expm1(result.log_prob - log_ndtr(z))).max() < CLOSE
    for slope, sign in zip(result.slope, (1.0, -1.0), strict=True):
        assert np.abs((sign * slope - hazard) / (hazard + 1e-4)).max() < SLOPE_CLOSE
    curvature = -hazard * (z + hazard)
    error = np.abs(result.curvature - curvature) / (hazard * (np.abs(z) + hazard) + 1e-4)
    assert error[0].max() < SLOPE_CLOSE
    assert error[1].max() < SLOPE_CLOSE + 1e-14 / max(np.sqrt(other), 1e-13)


def test_derivatives_match_finite_differences():
    """
    By differences of fourth order, h = 2e-3: h^4 F(5)/30 is 1e-12 or so, and rounding 1e-13/h² of
    the second one.
    """
    C = 4
    R = 6
    h = 2e-3
    rng = np.random.default_rng(84)
    mean = rng.normal(size=(C, R))
    variance = rng.uniform(0.3, 2.0, (C, R))
    label = rng.integers(0, C, R)
    result = found(label, mean, variance)
    for k in range(C):
        step = h * (np.arange(C) == k)[:, None]
        values = [
            found(label, mean + n * step, variance).log_prob.numpy() for n in (-2, -1, 0, 1, 2)
        ]
        slope, curvature = slope_and_curvature(values, h)
        assert_near(result.slope[k], slope, 1e-9)
        assert_near(result.curvature[k], curvature, 1e-6)
    assert_near(result.ratio, 1.0 + variance * result.curvature, 1e-8)


ZERO = {
    "two": lambda rng: (np.array([[1.0, 0.0], [0.5, 1.0]]), np.zeros((2, 2))),
    "all of ten": lambda rng: (rng.normal(size=(10, 30)), np.zeros((10, 30))),
    "some of ten": lambda rng: (rng.normal(size=(10, 30)), rng.integers(0, 2, (10, 30)) * 1.0),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ZERO)
def test_zero_variance_is_finite(name, dtype):
    """
    The largest is known unless two are equal: the log of its probability is 0, that of another one
    very low. Results are finite and no variance increases.
    """
    mean, variance = ZERO[name](np.random.default_rng(86))
    for label in (0, 1):
        labels = tf.fill([mean.shape[1]], label)
        result = largest(labels, tf.constant(mean, dtype), tf.constant(variance, dtype))
        for value in result if dtype == np.float64 else (result.log_prob, result.ratio):
            assert np.all(np.isfinite(value))
        assert np.all(result.ratio <= 1.0) and np.all(result.ratio >= 0.0)
        if name == "two" and label == 0:
            assert_near(result.log_prob[0], 0.0, 1e3 * np.finfo(dtype).eps)
            assert result.log_prob[1] < -1e20


def test_single_precision():
    result = largest(tf.constant([1]), tf.constant([[0.2], [0.5]]), tf.constant([[0.7], [1.1]]))
    assert result.log_prob.dtype == tf.float32
    z = 0.3 / np.sqrt(1.8)
    assert_allclose(result.log_prob[0], log_ndtr(z), rtol=1e-5)
    assert gpflow.default_float() == np.float64


# --- termination of searches ----------------------------------------------------------------------


@pytest.fixture
def derivatives(monkeypatch):
    """Replace g, g' and -g'' by functions of x; return the x at which they are evaluated."""
    asked = []

    def replace(function):
        def replaced(location, inverse, x):
            asked.append(x.numpy())
            assert len(asked) < 200
            return tuple(tf.convert_to_tensor(value) for value in function(x))

        monkeypatch.setattr(MODULE, "_derivatives", replaced)
        return asked

    return replace


ONE = tf.ones([1], tf.float64)
UNITS = MODULE._Units(location=ONE[None], inverse=ONE[None], mode=0.0 * ONE, height=0.0 * ONE)


def test_mode_search_stops_after_100_steps(derivatives):
    """g increases without bound: the search stops after 100 steps."""
    asked = derivatives(lambda x: (0.0 * x, 1.0 + 0.0 * x, 1.0 + 0.0 * x))
    x, _, _ = MODULE._mode(-ONE[None], ONE[None])
    assert len(asked) == 100
    assert_array_equal(np.ravel(asked), np.arange(100.0))
    assert float(x[0]) == 99.0


def test_end_search_halves_the_reach(derivatives):
    """g drops far too fast: each step halves the reach."""
    asked = derivatives(lambda x: (-1e3 + 0.0 * x, -2e3 * tf.sign(x) / tf.abs(x), ONE))
    reach = MODULE._reach(UNITS, ONE)
    assert len(asked) == 100
    assert 0.0 < float(reach[0][0]) < 1e-20


@pytest.mark.parametrize(("start", "count"), [(36.0, 1), (39.0, 2), (44.0, 2)])
def test_end_search_stops_near_the_end(derivatives, start, count):
    """
    g is linear, so one step is exact; a second step is taken if the first shortened the reach by a
    fifth.
    """
    asked = derivatives(lambda x: (-tf.abs(x), -tf.sign(x), ONE))
    reach = MODULE._reach(UNITS, 60.0 / tf.square(start * ONE))
    assert len(asked) == count and float(reach[0][0]) == pytest.approx(30.0, rel=1e-12)
    assert_allclose(asked[0][0, 0], -start, rtol=1e-12)


def test_underflowing_integral_is_finite():
    """
    No division by 0: log P is the log of the smallest number, and the remaining results equal the
    prior's.
    """
    own = tf.constant([[True], [False]])
    two = tf.ones([2, 1], tf.float64)
    units = MODULE._Units(location=two, inverse=two, mode=0.0 * ONE, height=-10.0 * ONE)
    found = MODULE._largest(units, tf.zeros([1, 9], tf.float64), own, two, ONE)
    assert float(found.log_prob[0]) == pytest.approx(
        -10.0 + np.log(np.finfo(float).tiny / np.sqrt(2.0 * np.pi))
    )
    for value in found:
        assert np.all(np.isfinite(value))
