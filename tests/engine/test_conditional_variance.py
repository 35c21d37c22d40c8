"""
The bound below which a negative variance of f given u is no rounding: neither side may be taken for
the other.
"""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from doubles import double
from gpflow.kernels import Matern52, SquaredExponential
from marks import either_way
from refusals import stopped

from gpflow_pep.engine import Prior, with_checked_variance


def parts(Z, X, kernel, jitter):
    prior = Prior(gpflow.inducing_variables.InducingPoints(Z), kernel)
    L = tf.linalg.cholesky(prior.Kuu(jitter))
    V = tf.linalg.triangular_solve(L, prior.Kuf(tf.constant(X), *prior.inputs))
    Kff = prior.variances(tf.constant(X), *prior.inputs)
    return Kff - tf.reduce_sum(tf.square(V), axis=0), Kff, L


@pytest.mark.parametrize("count", [20, 300])
@pytest.mark.parametrize("kind", [SquaredExponential, Matern52])
def test_nearly_coincident_inducing_points_are_accepted(kind, count):
    """
    Rows at inducing points, with almost no remaining variance, are accepted for any jitter and
    lengthscale.
    """
    rng = np.random.default_rng(2)
    Z = rng.uniform(size=(count, 1))
    Z[count // 2 :] = Z[: count - count // 2] + 1e-9 * rng.normal(size=(count - count // 2, 1))
    X = np.concatenate([Z, rng.uniform(size=(200, 1))])
    for jitter, lengthscale in itertools.product(
        [1e-4, 1e-6, 1e-8, 1e-10, 1e-12], [0.1, 1.0, 100.0]
    ):
        rest, Kff, L = parts(Z, X, kind(1.7, lengthscale), jitter)
        np.testing.assert_array_equal(with_checked_variance(rest, rest, Kff, L), rest)


@either_way
@pytest.mark.parametrize("wrong", [1e-5, 1e-2])
def test_contradictory_covariances_are_an_error(wrong, way):
    """
    A row at an inducing point whose covariance with u is too large by that; jitter leaves 1e-6 of
    the variance.
    """
    Z = np.linspace(0.0, 10.0, 12)[:, None]
    rest, Kff, L = parts(Z, Z, Matern52(), 1e-6)
    changed = Kff - (1.0 + wrong) ** 2 * (Kff - rest)
    assert tf.reduce_all(rest > 0.0)
    with stopped("Kuu, Kuf and Kff are inconsistent"):
        way(lambda: with_checked_variance(changed, changed, Kff, L))()


def test_the_bound_is_100_eps_times_size_and_condition_number():
    L = tf.constant(np.diag([4.0, 2.0, 1.0]))
    Kff = double([2.0, 3.0])
    bound = 100.0 * np.finfo(float).eps * 3 * 16.0 * 3.0
    with_checked_variance(Kff, double([0.0, -0.99 * bound]), Kff, L)
    with stopped("are inconsistent"):
        with_checked_variance(Kff, double([0.0, -1.01 * bound]), Kff, L)


def test_separate_latent_functions():
    """
    The factor has a leading dimension, variances one for each function; one that is wrong is
    enough.
    """
    L = tf.eye(3, batch_shape=[2], dtype=tf.float64)
    Kff = tf.ones([2, 4], tf.float64)
    with_checked_variance(Kff, -1e-15 * Kff, Kff, L)
    with stopped("are inconsistent"):
        with_checked_variance(Kff, double([[0.0] * 4, [0.0, -1e-10, 0.0, 0.0]]), Kff, L)
