"""Tilted distributions of blocks against those of single rows, which have other integrals."""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from doubles import double
from gpflow.likelihoods import Bernoulli, Beta, Ordinal, Poisson, StudentT
from scipy.stats import norm

from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.tilted import Cavity, Observations, rule_for
from gpflow_pep.tilted.blocks import BlockCavity, BlockObservations, block_rule


def of_one_row(likelihood, mean, variance, Y, alpha):
    """The moments of a single row."""
    one = double([[1.0]])
    cavity = Cavity(mean * one, variance * one)
    return rule_for(likelihood, "kl").moments(cavity, Observations(one, Y * one), alpha * one[0])


@pytest.mark.parametrize(("d", "close"), [(1, 1e-9), (2, 1e-8), (3, 1e-8), (4, 3e-6)])
def test_independent_rows_have_moments_of_single_rows(d, close):
    """
    Of two blocks, the second with padding; errors by the rule's K points, of 20 at d = 4. Rates
    overflow at the most distant points of the wide cavity of the last row.
    """
    likelihood = Poisson()
    Y = np.array([3.0, 0.0, 1.0, 7.0, 2.0, 0.0, 4.0, 1.0])[: 2 * d, None]
    mean = np.linspace(-0.3, 1.2, 2 * d)
    variance = np.linspace(0.2, 0.9, 2 * d)
    alpha = double([0.4, 1.0])
    mask = np.ones((2, d))
    mask[1, 1:] = 0.0
    cavity = BlockCavity(
        tf.constant(mean.reshape(2, d)), tf.linalg.diag(tf.constant(variance.reshape(2, d)))
    )
    block = BlockObservations(
        tf.zeros([2, d, 1], tf.float64), tf.constant(Y.reshape(2, d, 1)), tf.constant(mask)
    )
    tilted = block_rule(likelihood, d).moments(cavity, block, alpha)
    expected = rule_for(likelihood, "kl").moments(
        Cavity(tf.constant(mean[None]), tf.constant(variance[None])),
        Observations(tf.zeros([2 * d, 1], tf.float64), tf.constant(Y)),
        tf.repeat(alpha, d),
    )
    value, slope, curvature = (mask * np.reshape(each, (2, d)) for each in expected[:3])
    assert_near(tilted.log_partition, value.sum(axis=1), close)
    assert_near(tilted.slope, slope, close)
    assert_near(tilted.curvature, [np.diag(row) for row in curvature], close)


@pytest.mark.parametrize(
    ("likelihood", "Y"),
    [
        (Poisson(), [2.0, 0.0, 5.0]),
        (StudentT(0.3), [0.4, 2.5, -1.0]),
        (Probit(), [1.0, 0.0, 1.0]),
    ],
)
def test_correlated_rows_have_moments_of_a_chain(likelihood, Y):
    """A covariance of Matern 1/2 is that of a Markov chain: integrals are products of matrices."""
    alpha = 0.5
    mean = np.array([0.3, -0.4, 0.2])
    C = 1.5 * np.exp(-np.abs(np.subtract.outer([0.0, 0.2, 1.0], [0.0, 0.2, 1.0])))
    f = np.linspace(-9.0, 9.0, 1201)[:, None]

    def density_given(i, j):  # p(f_i | f_j), [f_j, f_i]
        ratio = C[i, j] / C[j, j]
        variance = C[i, i] - ratio * C[i, j]
        return norm.pdf(f.T, mean[i] + ratio * (f - mean[j]), np.sqrt(variance))

    def power(i):
        return np.exp(alpha * likelihood.log_prob(0.0 * f, f, Y[i] + 0.0 * f).numpy())

    first = power(0) * norm.pdf(f[:, 0], mean[0], np.sqrt(C[0, 0]))
    second = density_given(1, 0) * power(1)
    third = density_given(2, 1) * power(2)

    def moment(a, b, c):  # of f_0^a f_1^b f_2^c
        values = third @ f[:, 0] ** c
        return (first * f[:, 0] ** a) @ (second @ (values * f[:, 0] ** b))

    one = np.eye(3, dtype=int)
    Z = moment(0, 0, 0)
    means = np.array([moment(*one[i]) for i in range(3)]) / Z
    squares = np.array([[moment(*(one[i] + one[j])) for i in range(3)] for j in range(3)]) / Z
    precision = np.linalg.inv(C)
    change = precision @ (squares - np.outer(means, means)) @ precision - precision
    ones = double([[1.0, 1.0, 1.0]])
    block = BlockObservations(ones[..., None], double([Y])[..., None], ones)
    cavity = BlockCavity(tf.constant(mean[None]), tf.constant(C[None]))
    tilted = block_rule(likelihood, 3).moments(cavity, block, alpha * ones[:, 0])
    assert_near(alpha * tilted.log_partition[0], np.log(Z * (f[1] - f[0]) ** 3)[0], 1e-8)
    assert_near(alpha * tilted.slope[0], precision @ (means - mean), 1e-8)
    assert_near(alpha * tilted.curvature[0], change, 1e-8)


def test_a_singular_cavity_is_that_of_one_row():
    """Two rows of the same f: p(y|f)² at α = 0.5 is p(y|f) at α = 1."""
    likelihood = StudentT(0.7)
    rule = block_rule(likelihood, 2)
    two = tf.ones([1, 2, 2], tf.float64)
    block = BlockObservations(two[..., :1], 0.4 * two[..., :1], two[:, 0])
    tilted = rule.moments(BlockCavity(0.1 * two[:, 0], two), block, double([0.5]))
    expected = of_one_row(likelihood, 0.1, 1.0, 0.4, 1.0)
    # log Z / α, of which the power here is half
    assert_near(tilted.log_partition, 2.0 * expected.log_partition[0], 1e-8)
    assert_near(tf.reduce_sum(tilted.slope), 2.0 * expected.d1[0, 0], 1e-8)


@pytest.mark.parametrize(
    ("likelihood", "Y", "variance"),
    [
        (Probit(), 1.0, 1e4),
        (StudentT(0.05), 0.3, 1.0),
        (Poisson(), 1000.0, 0.09),  # the mode is 20 standard deviations away
        (Ordinal(np.array([-1.0, 1.0])), 1.0, 25.0),  # no known center
    ],
)
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_wide_cavities_and_far_modes(likelihood, Y, variance, correlation):
    """Of two independent rows, or of a row and a correlated one that is padding."""
    ones = double([[1.0, 1.0]])
    covariance = variance * np.array([[[1.0, correlation], [correlation, 1.0]]])
    mask = np.array([[1.0, float(correlation == 0.0)]])
    cavity = BlockCavity(tf.zeros_like(ones), tf.constant(covariance))
    block = BlockObservations(ones[..., None], Y * ones[..., None], tf.constant(mask))
    tilted = block_rule(likelihood, 2).moments(cavity, block, double([1.0]))
    expected = of_one_row(likelihood, 0.0, variance, Y, 1.0)
    sd = np.sqrt(variance)
    assert_near(tilted.log_partition, mask.sum() * expected.log_partition[0], 1e-7)
    assert_near(sd * tilted.slope, sd * mask * expected.d1, 1e-7)
    curvature = variance * np.diag(mask[0]) * expected.d2
    assert_near(variance * tilted.curvature, curvature[None], 1e-7)


def test_moments_that_the_points_do_not_resolve_are_nan():
    """Precise contradictory observations of nearly the same f: π has two narrow modes."""
    ones = double([[1.0, 1.0]])
    covariance = double([[[1.0, 0.999], [0.999, 1.0]]])
    cavity = BlockCavity(tf.zeros_like(ones), covariance)
    Y = double([[[0.0], [3.0]]])
    rule = block_rule(StudentT(0.01), 2)
    tilted = rule.moments(cavity, BlockObservations(ones[..., None], Y, ones), ones[:, 0])
    assert all(np.isnan(value).all() for value in tilted)


@pytest.mark.parametrize(
    ("likelihood", "mean", "sd", "Y", "alpha"),
    [
        (StudentT(0.01, df=30.0), 0.0, 1.0, 15.0, 1.0),  # a far second mode
        (Ordinal(np.array([-1.0, 1.0])), 8.5, 60.0, 0.0, 0.1),
        (Beta(), 7.0, 45.0, 0.0164, 0.1),
        (Logit(), -17.0, 2.2, 0.0, 0.1),  # p is nearly 1 on all points of early levels
        (Bernoulli(), 309.0, 38.5, 1.0, 0.1),
        (Probit(), -152.0, 91.0, 1.0, 0.1),
    ],
)
def test_moments_are_right_or_nan(likelihood, mean, sd, Y, alpha):
    """Cases in which two levels may agree on wrong values."""
    one = double([[1.0]])
    cavity = BlockCavity(mean * one, sd**2 * one[..., None])
    block = BlockObservations(one[..., None], Y * one[..., None], one)
    tilted = block_rule(likelihood, 1).moments(cavity, block, alpha * one[0])
    expected = of_one_row(likelihood, mean, sd**2, Y, alpha)
    pairs = zip(tilted, expected[:3], (1.0, sd, sd**2), strict=True)
    found, right = zip(*((s * np.ravel(a), s * np.ravel(b)) for a, b, s in pairs), strict=True)
    assert np.isnan(found).all() or np.allclose(found, right, rtol=1e-5, atol=1e-5)
