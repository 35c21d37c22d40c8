"""Marginals, cavities and matching sites against NumPy: a few products of order 1, so 1e-12."""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from doubles import double
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.engine import SiteSums
from gpflow_pep.ep.sweep import (
    Marginals,
    PriorRows,
    Projected,
    Site,
    cavity_of_f,
    cavity_of_w,
    marginals,
    matching_site,
    project,
)
from gpflow_pep.tilted import Tilted

CLOSE = 1e-12
C = 2
M = 3
N = 5
SCALE = 0.7
rng = np.random.default_rng(51)
L = np.linalg.cholesky(np.cov(rng.normal(size=(M, 20))) + np.eye(M))
KUF = 0.4 * rng.normal(size=(M, N))
V = np.linalg.solve(L, KUF)
TAU = rng.uniform(-0.1, 0.8, (C, N))
H = rng.normal(size=(C, N))
MEAN = rng.normal(size=(C, N))
SITE = Site(tf.constant(TAU), tf.constant(H))
LATENT = PriorRows(tf.constant(KUF), tf.constant(np.sum(V**2, axis=0) + 0.3), tf.constant(MEAN))
POWERS = {"0.4": 0.4, "1": 1.0, "each": np.array([0.0, 0.3, 0.5, 0.8, 1.0])}


def rows():
    return project(tf.constant(L), LATENT, double(SCALE))


def posterior():
    A = np.einsum("mn,cn,kn->cmk", V, TAU, V)
    return SiteSums(tf.constant(L), tf.constant(A), tf.constant((H @ V.T)[..., None])).posterior()


def cavities(power):
    """Of w, without the fraction of each site that a power says."""
    return cavity_of_w(marginals(posterior(), tf.constant(V)), SITE, double(POWERS[power]))


def test_rows_given_the_inducing_variables():
    """The variance that is left is multiplied by the scale; rounding below 0 is none."""
    found = rows()
    assert_near(found.V, V, CLOSE)
    assert_near(found.conditional_variance, SCALE * 0.3, CLOSE)
    assert_array_equal(found.mean, MEAN)
    less = LATENT._replace(Kff_diag=LATENT.Kff_diag - 0.3 - 1e-14)
    assert not project(tf.constant(L), less, double(SCALE)).conditional_variance.numpy().any()


def test_marginals_of_a_V_for_each_latent_function():
    """A shared V is in test_sweep.py."""
    found = marginals(posterior(), tf.stack([tf.constant(V)] * C))
    for c in range(C):
        covariance = np.linalg.inv(np.eye(M) + (V * TAU[c]) @ V.T)
        assert_near(found.mean[c], V.T @ covariance @ V @ H[c], CLOSE)
        assert_near(found.variance[c], np.diag(V.T @ covariance @ V), CLOSE)


def test_improper_cavities_are_flagged_and_replaced():
    """The marginal replaces the cavity if 1 - α τ s is not positive."""
    marginal = Marginals(*(double([[value]]) for value in (0.7, 2.0)))
    site = Site(*(double([[value]]) for value in (1.5, -3.0)))
    w = cavity_of_w(marginal, site, double(0.5))
    assert_near(np.ravel(w), [-0.5, 0.7, 2.0], CLOSE)


def test_a_row_without_prior_variance_has_a_cavity():
    zero = double([[0.0]])
    w = cavity_of_w(Marginals(zero, zero), Site(zero, zero), double(1.0))
    f = cavity_of_f(w, Projected(zero, zero[0], zero + 0.4))
    assert f.mean == 0.4 and 0.0 < f.variance < 1e-20


def test_a_row_that_does_not_vary_has_a_site():
    """Neither w nor what u leaves of f: the limit of (d + s)/(d + s ratio) from d = 0, not 0/0."""
    zero = double([[0.0]])
    one = double([[1.0]])
    w = cavity_of_w(Marginals(0.3 * one, zero), Site(zero, zero), double(0.5))
    site = matching_site(w, zero, Tilted(None, 0.7 * one, -1.2 * one, 0.25 * one))
    assert_allclose(site.precision[0, 0], 1.2 / 0.25, rtol=CLOSE)
    assert_allclose(site.linear[0, 0], (0.7 + 0.3 * 1.2) / 0.25, rtol=CLOSE)


@pytest.mark.parametrize("power", POWERS)
def test_matching_site(power):
    """
    The fraction α of it, times the cavity of w, has the moments m + s α d1 and s + s² α d2 of the
    tilted one.
    """
    alpha = np.broadcast_to(POWERS[power], N)
    w = cavities(power)
    _, m, s = (value.numpy() for value in w)
    d = SCALE * 0.3
    generator = np.random.default_rng(52)
    d1 = generator.normal(size=(C, N))
    d2 = generator.uniform(-0.5, 0.2, (C, N))
    ratio = 1.0 + alpha * (s + d) * d2
    tilted = Tilted(None, *(tf.constant(value) for value in (d1, d2, ratio)))
    site = matching_site(w, rows().conditional_variance, tilted)
    precision = 1.0 / s + alpha * site.precision
    assert_near(1.0 / precision, s + alpha * s**2 * d2, CLOSE)
    mean = (m / s + alpha * site.linear) / precision
    assert_near(mean, m + alpha * s * d1, CLOSE)
    zero = alpha == 0.0  # the limit
    assert_near(site.precision.numpy()[:, zero], -d2[:, zero], CLOSE)
    assert_near(site.linear.numpy()[:, zero], (d1 - m * d2)[:, zero], CLOSE)
