"""Tilted distributions of blocks against those of single rows, which have other integrals."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near

from gpflow_pep.likelihoods import Probit
from gpflow_pep.tilted import Cavity, Observations, rule_for
from gpflow_pep.tilted.blocks import BlockCavity, BlockObservations, block_rule


@pytest.mark.parametrize(("d", "close"), [(1, 1e-9), (2, 1e-8), (3, 1e-8), (4, 3e-6)])
def test_independent_rows_have_moments_of_single_rows(d, close):
    """
    Of two blocks, the second with padding; errors by the rule's K points, of 20 at d = 4. Rates
    overflow at the most distant points of the wide cavity of the last row.
    """
    likelihood = gpflow.likelihoods.Poisson()
    Y = np.array([3.0, 0.0, 1.0, 7.0, 2.0, 0.0, 4.0, 1.0])[: 2 * d, None]
    mean = np.linspace(-0.3, 1.2, 2 * d)
    variance = np.linspace(0.2, 0.9, 2 * d)
    alpha = tf.constant([0.4, 1.0], tf.float64)
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


def test_a_singular_cavity_is_that_of_one_row():
    """Two rows of the same f: p(y|f)² at α = 0.5 is p(y|f) at α = 1."""
    likelihood = gpflow.likelihoods.StudentT(0.7)
    rule = block_rule(likelihood, 2)
    two = tf.ones([1, 2, 2], tf.float64)
    block = BlockObservations(two[..., :1], 0.4 * two[..., :1], two[:, 0])
    tilted = rule.moments(BlockCavity(0.1 * two[:, 0], two), block, tf.constant([0.5], tf.float64))
    one = tf.ones([1, 1], tf.float64)
    expected = rule_for(likelihood, "kl").moments(
        Cavity(0.1 * one, one), Observations(one, 0.4 * one), tf.ones([1], tf.float64)
    )
    # log Z / α, of which the power here is half
    assert_near(tilted.log_partition, 2.0 * expected.log_partition[0], 1e-8)
    assert_near(tf.reduce_sum(tilted.slope), 2.0 * expected.d1[0, 0], 1e-8)


@pytest.mark.parametrize(
    ("likelihood", "Y", "variance"),
    [
        (Probit(), 1.0, 1e4),  # all points are where p is 0 or 1
        (gpflow.likelihoods.StudentT(0.05), 0.3, 1.0),
        (gpflow.likelihoods.Poisson(), 1000.0, 0.09),  # the mode is 20 standard deviations away
    ],
)
@pytest.mark.parametrize("d", [1, 2])
def test_moments_that_the_points_do_not_resolve_are_nan(likelihood, Y, variance, d):
    ones = tf.ones([1, d], tf.float64)
    cavity = BlockCavity(
        tf.zeros_like(ones), variance * tf.eye(d, batch_shape=[1], dtype=tf.float64)
    )
    block = BlockObservations(ones[..., None], Y * ones[..., None], ones)
    tilted = block_rule(likelihood, d).moments(cavity, block, tf.constant([1.0], tf.float64))
    assert all(np.isnan(value).all() for value in tilted)
