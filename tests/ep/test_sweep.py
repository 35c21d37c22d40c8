"""Sweeps over chunks and minibatches against NumPy: a few products of order 1, so 1e-12."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_near, assert_near
from doubles import double
from gpflow.inducing_variables import InducingPoints
from gpflow.likelihoods import Gaussian
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.engine import OldPosteriorSite, OneChunk, Prior, RowChunks, SiteSums
from gpflow_pep.ep import Inference, LatentRows, Problem, Sites
from gpflow_pep.tilted import Tilted, TiltedRule, rule_for

CLOSE = 1e-12
N = 11
C = 2
NOISE = 0.3
SCALE = 0.8
rng = np.random.default_rng(61)
X = rng.uniform(0.0, 3.0, (N, 2))
Y = rng.normal(size=(N, C))
Z = np.array([[0.4, 2.2], [1.4, 0.8], [2.6, 1.9]])
KERNEL = gpflow.kernels.Matern52(1.4, lengthscales=[0.9, 1.2])
MEAN = gpflow.functions.Constant([0.3, -0.2])
L = np.linalg.cholesky(KERNEL(Z))
V = np.linalg.solve(L, KERNEL(Z, X))
D = SCALE * (1.4 - np.sum(V**2, axis=0))
POWERS = {"one": 0.6, "each": np.linspace(0.0, 1.0, N)}
CHUNKS = [1, 4, 100, None]  # None: all rows without a loop


def rows(chunk_size=100, alpha=0.6, indices=None):
    data = tf.constant(X), tf.constant(Y)
    chunks = OneChunk() if chunk_size is None else RowChunks(chunk_size)
    if indices is not None:
        data = tuple(tf.gather(values, indices) for values in data)
        chunks = OneChunk()
    return LatentRows(chunks.split(data), double(alpha), Prior(InducingPoints(Z), KERNEL), MEAN, C)


def problem(given, rule=None, *, keep=False, old=None):
    """Without the quantities that only the energy needs."""
    return Problem(given, rule, None, double(L), double(SCALE), old, 0.0, False, keep)


def some_sites():
    precision = np.random.default_rng(62).uniform(-0.1, 0.9, (N, C))
    return np.stack([precision, np.random.default_rng(63).normal(size=(N, C))], axis=1)


def sums(sites):
    return SiteSums(double(L), *problem(rows()).sum_sites(double(sites)))


def without(sites, row, c, alpha):
    """Mean and variance of w under q without the fraction α of a site."""
    left = 1.0 - alpha * (np.arange(N) == row)
    precision, linear = (left * value[:, c] for value in (sites[:, 0], sites[:, 1]))
    covariance = np.linalg.inv(np.eye(len(Z)) + (V * precision) @ V.T)
    return V[:, row] @ covariance @ V @ linear, V[:, row] @ covariance @ V[:, row]


class Recorded(TiltedRule):
    """Asks for nothing in particular, and notes its arguments."""

    def __init__(self):
        self.cavities, self.observed, self.powers = [], [], []

    def moments(self, cavity, observations, alpha, negligible=0.0):
        self.cavities.append(cavity)
        self.observed.append(observations)
        self.powers.append(alpha)
        one = tf.ones_like(cavity.mean)
        return Tilted(2.0 * one, 0.1 * one, -0.2 * one, 1.0 - 0.2 * alpha * cavity.variance)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("chunk_size", CHUNKS)
def test_sum_sites_matches_dense_products(chunk_size, keep):
    sites = some_sites()
    A, c = problem(rows(chunk_size), keep=keep).sum_sites(double(sites))
    assert (A.shape, c.shape) == ((C, 3, 3), (C, 3, 1))
    for k in range(C):
        assert_near(A[k], (V * sites[:, 0, k]) @ V.T, CLOSE)
        assert_near(c[k, :, 0], V @ sites[:, 1, k], CLOSE)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_a_rule_receives_cavities_and_observations(chunk_size, power):
    """The cavities of the latent values of f, all columns of Y, and the rows' own powers."""
    rule = Recorded()
    sites = some_sites()
    problem(rows(chunk_size, POWERS[power]), rule).sweep(double(sites), sums(sites).posterior())
    assert_array_equal(np.concatenate([each.X for each in rule.observed]), X)
    assert_array_equal(np.concatenate([each.Y for each in rule.observed]), Y)
    means, variances = (
        np.concatenate([each[k] for each in rule.cavities], axis=1) for k in range(2)
    )
    for c in range(C):
        for row, alpha in enumerate(np.broadcast_to(POWERS[power], N)):
            mean, variance = without(sites, row, c, alpha)
            expected = [mean + [0.3, -0.2][c], variance + D[row]]
            assert_near([means[c, row], variances[c, row]], expected, CLOSE)
    if power == "each":
        assert_array_equal(np.concatenate(rule.powers), POWERS["each"])


@pytest.mark.parametrize("power", POWERS)
def test_gaussian_sites_are_found_at_once(power):
    """
    Whatever the cavities: precision 1/(s + α d), mean y - m(x). Also the sweep's q and convergence.
    """
    for chunk_size, keep in [(3, False), (3, True), (100, True), (None, False), (None, True)]:
        sites = some_sites()
        given = rows(chunk_size, POWERS[power])
        state = sums(sites)
        rule = rule_for(Gaussian(NOISE), "kl")
        found = problem(given, rule, keep=keep).sweep(double(sites), state.posterior())
        precision = np.repeat(1.0 / (NOISE + POWERS[power] * D)[:, None], C, axis=1)
        shift = np.stack([precision, precision * (Y - [0.3, -0.2])], axis=1) - sites
        assert_near(found.update, shift, CLOSE)
        change = found.normalized(found.update)
        ratios = []
        for c in range(C):
            covariance = np.linalg.inv(np.eye(3) + state.A[c])
            mean = (V.T @ covariance @ state.c[c])[:, 0]
            variance = np.diag(V.T @ covariance @ V)
            assert_near(found.mean[:, c], mean, CLOSE)
            assert_near(found.variance[:, c], variance, CLOSE)
            assert_near(change[:, 0, c], shift[:, 0, c] * variance, CLOSE)
            expected = (shift[:, 1, c] - mean * shift[:, 0, c]) * np.sqrt(variance)
            assert_near(change[:, 1, c], expected, CLOSE)
            ratios.append(1.0 - POWERS[power] * sites[:, 0, c] * variance)
        assert_near(found.cavity_ratio, np.min(ratios), CLOSE)


def test_a_row_without_a_cavity_stays():
    """The smallest r says so; the others are updated."""
    sites = some_sites()
    sites[3, 0, 0], sites[4, 0, 0] = 40.0, -1.0 / np.sum(V[:, 4] ** 2) / 10.0
    state = sums(sites)
    given = rows(alpha=1.0)
    # Sums of other sites: under q the cavity of row 3 is not proper.
    state = state._replace(A=0.1 * state.A)
    found = problem(given, Recorded()).sweep(double(sites), state.posterior())
    assert found.cavity_ratio < 0.0
    assert not np.any(found.update[3, :, 0])
    assert np.count_nonzero(found.update[:, 0].numpy() == 0.0) == 1


# --- some rows at a time --------------------------------------------------------------------------


def no_sites():
    return Sites([N, C], [N, C], tf.float64)


def variables(values):
    sites = no_sites()
    sites.precision.assign(values[:, 0])
    sites.linear.assign(values[:, 1])
    return sites


def update(sites, indices, rule, alpha, damping):
    given = rows(alpha=alpha, indices=indices)
    return update_rows(given, indices, rule, sites, sums(sites.stacked().numpy()), damping)


def update_rows(given, indices, rule, sites, state, damping, old=None):
    inference = Inference(problem(given, rule, old=old), sites, None, None, N)
    return inference.update_some(given, indices, state, double(damping))


@pytest.mark.parametrize("power", POWERS)
def test_rows_are_updated_and_sums_follow(power):
    before = some_sites()
    indices = np.array([7, 2, 9])
    sites = variables(before)
    alpha = np.broadcast_to(POWERS[power], N)
    chosen = POWERS[power] if power == "one" else alpha[indices]
    after = update(
        sites,
        tf.constant(indices),
        rule_for(Gaussian(NOISE), "kl"),
        chosen,
        0.25,
    )
    precision = np.repeat(1.0 / (NOISE + alpha * D)[:, None], C, axis=1)
    target = np.stack([precision, precision * (Y - [0.3, -0.2])], axis=1)
    expected = before.copy()
    expected[indices] = 0.75 * before[indices] + 0.25 * target[indices]
    assert_near(sites.stacked(), expected, CLOSE)
    assert_all_near(after, sums(expected), CLOSE)


class Explosive(Recorded):
    """Asks for sites of precision -d2 at α = 0, which B cannot bear."""

    def __init__(self, d2):
        super().__init__()
        self.d2 = d2

    def moments(self, cavity, observations, alpha, negligible=0.0):
        one = tf.ones_like(cavity.mean)
        d2 = self.d2 * one
        return Tilted(one, one, d2, 1.0 + alpha * cavity.variance * d2)


@pytest.mark.parametrize(("d2", "moves"), [(30.0, True), (np.inf, False)])
def test_improper_updates_are_halved(d2, moves):
    """The update is halved until B is positive definite; a non-finite update is skipped."""
    sites = no_sites()
    rule = Explosive(d2)
    after = update(sites, tf.range(N), rule, 0.0, 1.0)
    assert after.is_proper()
    assert np.all(np.isfinite(sites.precision))
    step = -sites.precision[0, 0].numpy() / 30.0
    assert (0.0 < step < 0.5 and np.log2(step) % 1.0 == 0.0) if moves else step == 0.0
    assert_all_near(after, sums(sites.stacked().numpy()), CLOSE)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_row_whose_update_is_not_finite_stops_no_other(bad):
    """
    The row keeps its sites in all latent functions; the updates of all other rows do not depend on
    it.
    """

    class Partly(Recorded):
        def moments(self, cavity, observations, alpha, accurate=True):
            found = super().moments(cavity, observations, alpha, accurate)
            spoilt = tf.constant([[True, False, False], [False, False, False]])
            return found._replace(d2=tf.where(spoilt, double(bad), found.d2))

    before = some_sites()
    indices = np.array([7, 2, 9])
    sites = variables(before)
    others = variables(before)
    after = update(sites, tf.constant(indices), Partly(), 0.6, 0.5)
    expected = update(others, tf.constant(indices[1:]), Recorded(), 0.6, 0.5)
    assert not np.array_equal(others.stacked()[2], before[2])
    assert_near(sites.stacked(), others.stacked(), CLOSE)
    assert_all_near(after, expected, CLOSE)


def test_an_old_posterior_allows_negative_sites_that_the_prior_does_not():
    old = OldPosteriorSite(
        double(np.stack([1e3 * np.eye(3)] * C)), double(np.zeros((C, 3, 1))), double(0.7)
    )
    sites = no_sites()
    rule = Explosive(30.0)
    given = rows(alpha=0.0, indices=tf.range(N))
    state = sums(np.zeros((N, 2, C)))
    update_rows(given, tf.range(N), rule, sites, state, 1.0, old)
    assert_allclose(sites.precision, -30.0, rtol=1e-12)
