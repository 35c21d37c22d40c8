"""Sweeps over chunks and minibatches, against what they are made of, by numpy: a few products of order 1, so 1e-12."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints

from gpflow_pep.sites import LatentRows, SiteSums, Tilted, TiltedRule, joint_rule, no_sums, sweep, update_rows
from gpflow_pep.sites import Sites as SiteVariables
from gpflow_pep.statistics import OldSite, SingleRows, SomeRows

CLOSE = 1e-12
N, C, NOISE = 11, 2, 0.3
rng = np.random.default_rng(61)
X, Y = rng.uniform(0.0, 3.0, (N, 2)), rng.normal(size=(N, C))
Z = np.array([[0.4, 2.2], [1.4, 0.8], [2.6, 1.9]])
KERNEL = gpflow.kernels.Matern52(1.4, lengthscales=[0.9, 1.2])
MEAN = gpflow.functions.Constant([0.3, -0.2])
KUU = KERNEL(Z).numpy()
L = np.linalg.cholesky(KUU)
V = np.linalg.solve(L, KERNEL(Z, X).numpy())
D = 1.4 - np.sum(V**2, axis=0)
ALPHA = tf.constant(0.6, tf.float64)


def rows(chunks):
    return LatentRows((tf.constant(X), tf.constant(Y)), chunks, KERNEL, InducingPoints(Z), MEAN, C)


def some_sites():
    sites = SiteVariables(N, C, tf.float64)
    sites.precision.assign(np.random.default_rng(62).uniform(-0.1, 0.9, (N, C)))
    sites.linear.assign(np.random.default_rng(63).normal(size=(N, C)))
    return sites


def sums(sites, chunks=None):
    found = sites.sums(rows(SingleRows(chunks)), tf.constant(L))
    return SiteSums(tf.constant(L), *found, OldSite.nothing(tf.float64))


def without(sites, row, c):
    """Mean and variance of w under q without the fraction α of a site."""
    left = 1.0 - 0.6 * (np.arange(N) == row)
    precision, linear = (left * value.numpy()[:, c] for value in (sites.precision, sites.linear))
    covariance = np.linalg.inv(np.eye(len(Z)) + (V * precision) @ V.T)
    return V[:, row] @ covariance @ V @ linear, V[:, row] @ covariance @ V[:, row]


class Recorded(TiltedRule):
    """Asks for nothing in particular, and notes what it was given."""

    def __init__(self):
        self.cavities, self.observed = [], []

    def moments(self, cavity, rows, alpha):
        self.cavities.append(cavity)
        self.observed.append(rows)
        one = tf.ones_like(cavity.mean)
        return Tilted(2.0 * one, 0.1 * one, -0.2 * one, 1.0 - 0.2 * alpha * cavity.variance)


@pytest.mark.parametrize("chunk_size", [1, 4, 100])
def test_sums(chunk_size):
    sites = some_sites()
    found = sums(sites, chunk_size)
    for c in range(C):
        np.testing.assert_allclose(found.A[c], (V * sites.precision.numpy()[:, c]) @ V.T, rtol=0.0, atol=CLOSE)
        np.testing.assert_allclose(found.c[c], V @ sites.linear.numpy()[:, c], rtol=0.0, atol=CLOSE)


def test_sums_of_nothing():
    A, c = no_sums(tf.constant(L), C)
    assert (A.shape, c.shape) == ((C, 3, 3), (C, 3))
    assert not np.any(A)
    assert not np.any(c)


def test_what_a_rule_is_given():
    """The cavities of the latent values of f, and all columns of Y."""
    rule, sites = Recorded(), some_sites()
    state = sums(sites)
    sweep(rows(SingleRows(None)), rule, sites, state.posterior(), ALPHA)
    (cavity,), (observed,) = rule.cavities, rule.observed
    np.testing.assert_array_equal(observed.X, X)
    np.testing.assert_array_equal(observed.Y, Y)
    for c in range(C):
        for row in range(N):
            mean, variance = without(sites, row, c)
            assert float(cavity.mean[c, row]) == pytest.approx(mean + [0.3, -0.2][c], abs=CLOSE)
            assert float(cavity.variance[c, row]) == pytest.approx(variance + D[row], abs=CLOSE)


@pytest.mark.parametrize("chunk_size", [3, 100])
def test_gaussian_sites_are_found_at_once(chunk_size):
    """Whatever the cavities: precision 1/(s + α d), mean y - m(x)."""
    sites = some_sites()
    state = sums(sites)
    found = sweep(
        rows(SingleRows(chunk_size)),
        joint_rule("kl", gpflow.likelihoods.Gaussian(NOISE)),
        sites,
        state.posterior(),
        ALPHA,
    )
    precision = np.repeat(1.0 / (NOISE + 0.6 * D)[:, None], C, axis=1)
    linear = precision * (Y - [0.3, -0.2])
    shift = [precision - sites.precision.numpy(), linear - sites.linear.numpy()]
    for actual, expected in zip(found.site, shift, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=CLOSE)
    changes = []
    for c in range(C):
        np.testing.assert_allclose(found.A[c], (V * shift[0][:, c]) @ V.T, rtol=0.0, atol=CLOSE)
        np.testing.assert_allclose(found.c[c], V @ shift[1][:, c], rtol=0.0, atol=CLOSE)
        covariance = np.linalg.inv(np.eye(3) + state.A[c].numpy())
        mean, variance = V.T @ covariance @ state.c[c].numpy(), np.diag(V.T @ covariance @ V)
        changes += [np.abs(shift[0][:, c]) * variance]
        changes += [np.abs(shift[1][:, c] - mean * shift[0][:, c]) * np.sqrt(variance)]
        remaining = 1.0 - 0.6 * sites.precision.numpy()[:, c] * variance
        assert np.all(remaining >= float(found.remaining) - CLOSE)
    assert float(found.change) == pytest.approx(np.max(changes), abs=CLOSE)


def test_a_row_without_a_cavity_stays():
    """The smallest r says so; the others are updated."""
    sites = some_sites()
    sites.precision[3, 0].assign(40.0)
    sites.precision[4, 0].assign(-1.0 / np.sum(V[:, 4] ** 2) / 10.0)
    state = sums(sites)
    alpha = tf.constant(1.0, tf.float64)
    state = state._replace(A=0.1 * state.A)  # sums of other sites: under q the cavity of row 3 is not proper
    found = sweep(rows(SingleRows(None)), Recorded(), sites, state.posterior(), alpha)
    assert float(found.remaining) < 0.0
    assert found.site.precision[3, 0] == 0.0
    assert found.site.linear[3, 0] == 0.0
    assert np.count_nonzero(found.site.precision.numpy() == 0.0) == 1


def test_rows_are_updated_and_sums_follow():
    sites = some_sites()
    before = [sites.precision.numpy(), sites.linear.numpy()]
    indices = tf.constant([7, 2, 9])
    rule, damping = joint_rule("kl", gpflow.likelihoods.Gaussian(NOISE)), tf.constant(0.25, tf.float64)
    state = sums(sites)
    after = update_rows(rows(SomeRows(indices, None)), indices, rule, sites, state, state, ALPHA, damping)
    precision = 1.0 / (NOISE + 0.6 * D)[:, None]
    for variable, old, target in zip(
        (sites.precision, sites.linear), before, (precision + 0.0 * Y, precision * (Y - [0.3, -0.2])), strict=True
    ):
        expected = old.copy()
        expected[indices] = 0.75 * old[indices] + 0.25 * target[indices]
        np.testing.assert_allclose(variable, expected, rtol=0.0, atol=CLOSE)
    for actual, expected in zip(tf.nest.flatten(after), tf.nest.flatten(sums(sites)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=CLOSE)


class Explosive(Recorded):
    """Asks for sites of precision -d2 at α = 0, which B cannot bear."""

    def moments(self, cavity, rows, alpha):
        one = tf.ones_like(cavity.mean)
        d2 = self.d2 * one
        return Tilted(one, one, d2, 1.0 + alpha * cavity.variance * d2)


@pytest.mark.parametrize(("d2", "moves"), [(30.0, True), (np.inf, False)])
def test_an_update_that_would_be_improper(d2, moves):
    """It is halved until B is positive definite; of what is not finite nothing is taken."""
    sites = SiteVariables(N, C, tf.float64)
    rule = Explosive()
    rule.d2 = d2
    everything = tf.range(N)
    zero = tf.constant(0.0, tf.float64)
    start = SiteSums(tf.constant(L), *no_sums(tf.constant(L), C), OldSite.nothing(tf.float64))
    after = update_rows(
        rows(SomeRows(everything, None)), everything, rule, sites, start, start, zero, tf.ones([], tf.float64)
    )
    assert after.is_proper()
    assert np.all(np.isfinite(sites.precision))
    step = -sites.precision.numpy()[0, 0] / 30.0
    assert (0.0 < step < 0.5 and np.log2(step) % 1.0 == 0.0) if moves else step == 0.0
    for actual, expected in zip(tf.nest.flatten(after), tf.nest.flatten(sums(sites)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=CLOSE)
