"""The algebra of Gaussian sites, against what it stands for, by numpy: a few products of order 1, so 1e-12."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.sites import SiteSums, Tilted
from gpflow_pep.sites.gaussian import Marginals, Site, cavity_of_f, cavity_of_w, marginals, matching_site
from gpflow_pep.sites.latent import Latent
from gpflow_pep.statistics import OldSite

CLOSE = 1e-12
C, M, N = 2, 3, 5
rng = np.random.default_rng(51)
L = np.linalg.cholesky(np.cov(rng.normal(size=(M, 20))) + np.eye(M))
KUF = 0.4 * rng.normal(size=(M, N))
V = np.linalg.solve(L, KUF)
TAU = rng.uniform(-0.1, 0.8, (C, N))
H = rng.normal(size=(C, N))
LATENT = Latent(tf.constant(KUF), tf.constant(np.sum(V**2, axis=0) + 0.3), tf.constant(rng.normal(size=(C, N))))


def sums(old=None):
    A = np.einsum("mn,cn,kn->cmk", V, TAU, V)
    return SiteSums(tf.constant(L), tf.constant(A), tf.constant(H @ V.T), old or OldSite.nothing(tf.float64))


def test_posterior_and_marginals():
    q = sums().posterior()
    found = marginals(q, LATENT)
    for c in range(C):
        covariance = np.linalg.inv(np.eye(M) + (V * TAU[c]) @ V.T)
        np.testing.assert_allclose(q.b[c], covariance @ V @ H[c], rtol=0.0, atol=CLOSE)
        np.testing.assert_allclose(found.mean[c], V.T @ covariance @ V @ H[c], rtol=0.0, atol=CLOSE)
        np.testing.assert_allclose(found.variance[c], np.diag(V.T @ covariance @ V), rtol=0.0, atol=CLOSE)
    np.testing.assert_allclose(found.rest, 0.3, rtol=0.0, atol=CLOSE)


def test_an_old_posterior_is_part_of_q_and_stays_when_sites_move():
    root, c = rng.normal(size=(C, M, 2)), rng.normal(size=(C, M, 1))
    old = OldSite(tf.constant(root @ np.swapaxes(root, 1, 2)), tf.constant(c), tf.constant(0.7, tf.float64))
    state = sums(old)
    q = state.posterior()
    for number in range(C):
        B = np.eye(M) + (V * TAU[number]) @ V.T + root[number] @ root[number].T
        np.testing.assert_allclose(q.b[number], np.linalg.solve(B, V @ H[number] + c[number, :, 0]), atol=CLOSE)
    nowhere = state.moved(-1.0, state.A, state.c)
    np.testing.assert_allclose(nowhere.total()[0], old.A, atol=CLOSE)
    np.testing.assert_allclose(nowhere.total()[1], old.c[..., 0], atol=CLOSE)
    np.testing.assert_allclose(state.extrapolated(tf.constant(3.0, tf.float64)).total()[0], 3.0 * state.A + old.A)
    # what is improper without the old posterior may be proper with it
    less = tf.stack([-1.5 * tf.eye(M, dtype=tf.float64)] * C)
    assert not sums()._replace(A=less).is_proper()
    strong = old._replace(A=tf.stack([tf.eye(M, dtype=tf.float64)] * C))
    assert state._replace(A=less, old=strong).is_proper()


def test_moved_and_proper():
    state = sums()
    assert state.is_proper()
    moved = state.moved(0.5, state.A, state.c)
    np.testing.assert_allclose(moved.A, 1.5 * state.A, rtol=1e-15)
    np.testing.assert_allclose(moved.c, 1.5 * state.c, rtol=1e-15)
    assert not state.moved(1.0, tf.stack([0.0 * state.A[0], -10.0 * tf.eye(M, dtype=tf.float64)]), state.c).is_proper()
    assert not state.moved(1.0, np.nan * state.A, state.c).is_proper()


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_cavities(alpha):
    """Without the fraction α of each site, one at a time."""
    marginal = marginals(sums().posterior(), LATENT)
    w = cavity_of_w(marginal, Site(tf.constant(TAU), tf.constant(H)), tf.constant(alpha, tf.float64))
    f = cavity_of_f(w, marginal, LATENT)
    for c in range(C):
        for n in range(N):
            without = 1.0 - alpha * (np.arange(N) == n)
            covariance = np.linalg.inv(np.eye(M) + (V * TAU[c] * without) @ V.T)
            mean, variance = V[:, n] @ covariance @ V @ (without * H[c]), V[:, n] @ covariance @ V[:, n]
            assert float(w.mean[c, n]) == pytest.approx(mean, abs=CLOSE)
            assert float(w.variance[c, n]) == pytest.approx(variance, abs=CLOSE)
            assert float(f.mean[c, n]) == pytest.approx(mean + float(LATENT.mean[c, n]), abs=CLOSE)
            assert float(f.variance[c, n]) == pytest.approx(variance + 0.3, abs=CLOSE)


def test_improper_cavities_are_told_and_replaced():
    """Where 1 - α τ s is not positive the marginal stands in."""
    marginal = Marginals(None, *(tf.constant([[value]], tf.float64) for value in (0.7, 2.0)), tf.zeros([1], tf.float64))
    site = Site(*(tf.constant([[value]], tf.float64) for value in (1.5, -3.0)))
    w = cavity_of_w(marginal, site, tf.constant(0.5, tf.float64))
    assert w.remaining.numpy() == pytest.approx(-0.5)
    assert (w.mean.numpy(), w.variance.numpy()) == (pytest.approx(0.7), pytest.approx(2.0))


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_matching_site(alpha):
    """The fraction α of it, times the cavity of w, has the moments m + s α d1 and s + s² α d2 of the tilted one."""
    marginal = marginals(sums().posterior(), LATENT)
    w = cavity_of_w(marginal, Site(tf.constant(TAU), tf.constant(H)), tf.constant(alpha, tf.float64))
    m, s = w.mean.numpy(), w.variance.numpy()
    d1, d2 = rng.normal(size=(C, N)), rng.uniform(-0.5, 0.2, (C, N))
    ratio = 1.0 + alpha * (s + 0.3) * d2
    site = matching_site(w, marginal.rest, Tilted(None, *(tf.constant(value) for value in (d1, d2, ratio))))
    precision = 1.0 / s + alpha * site.precision.numpy()
    np.testing.assert_allclose(1.0 / precision, s + alpha * s**2 * d2, rtol=0.0, atol=CLOSE)
    mean = (m / s + alpha * site.linear.numpy()) / precision
    np.testing.assert_allclose(mean, m + alpha * s * d1, rtol=0.0, atol=CLOSE)
