"""The Gaussian integral against scipy's dense multivariate normal, of values and of derivatives.

Covariances with eigenvalues of at least 0.3 and below 10, N = 13: scipy's and our Cholesky err by
100 eps; 1e-12.
"""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from dense_sums import Collected, make_blocks, make_problem, values_of_sums
from differences import derivative
from numpy.testing import assert_allclose
from refusals import stopped
from scipy.stats import multivariate_normal

from gpflow_pep.engine import log_gaussian, mahalanobis
from gpflow_pep.engine.sites import Powers

EXACT = 1e-12


@pytest.fixture(params=[1, 3], ids=["one output", "three outputs"])
def case(request):
    problem = make_problem(seed=3, P=request.param)
    blocks = make_blocks("unequal", 13)
    sums = values_of_sums(problem, blocks, Powers(0.6, 0.6, 0.2), 1.3)
    Qff = problem.Kuf.T @ np.linalg.solve(problem.Kuu, problem.Kuf)
    noise = np.diag(problem.noise)
    for block in blocks:
        square = np.ix_(block, block)
        noise[square] += 0.6 * 1.3 * (problem.Kff - Qff)[square]
    return problem, Collected(*(tf.constant(value) for value in sums)), Qff + noise


def test_values_against_scipy(case):
    problem, sums, covariance = case
    dense_log = (
        multivariate_normal(mean=np.zeros(13), cov=covariance).logpdf(problem.residual.T).sum()
    )
    assert_allclose(log_gaussian(*sums.split(), tf.constant(13)), dense_log, rtol=EXACT)
    distance = np.trace(problem.residual.T @ np.linalg.solve(covariance, problem.residual))
    assert_allclose(mahalanobis(*sums.split()), distance, rtol=EXACT)


def test_derivatives_against_autodiff(case):
    """The closed-form derivatives in A and c, also with a factor in front, and compiled."""
    _, sums, _ = case
    P = float(sums.c.shape[-1])

    def plain(A, c):
        B = tf.eye(5, dtype=A.dtype) + A
        return 0.5 * (
            tf.reduce_sum(c * tf.linalg.solve(B, c)) - P * tf.linalg.slogdet(B).log_abs_determinant
        )

    def gradient(function):
        return derivative(lambda given: -3.0 * function(*given), [sums.A, sums.c])

    def ours(A, c):
        return log_gaussian(*sums._replace(A=A, c=c).split(), tf.constant(13))

    for function in (ours, tf.function(ours)):
        for actual, expected in zip(gradient(function), gradient(plain), strict=True):
            assert_near(actual, expected, EXACT * np.max(np.abs(expected)))


def test_several_latent_functions():
    blocks = make_blocks("rows", 13)
    alone = [
        values_of_sums(make_problem(seed=seed), blocks, Powers(0.5, 0.5, 0.25), 1.0)
        for seed in (5, 6)
    ]
    together = Collected(*(tf.constant(np.stack(values)) for values in zip(*alone, strict=True)))
    values = log_gaussian(*together.split(), tf.constant(13))
    distances = mahalanobis(*together.split())
    for number, sums in enumerate(alone):
        sums = Collected(*(tf.constant(value) for value in sums))
        assert_allclose(values[number], log_gaussian(*sums.split(), tf.constant(13)), rtol=EXACT)
        assert_allclose(distances[number], mahalanobis(*sums.split()), rtol=EXACT)


def test_sums_that_are_not_finite_stop(case):
    _, sums, _ = case
    broken = sums._replace(A=sums.A * np.nan).split()
    for function in (lambda: log_gaussian(*broken, tf.constant(13)), lambda: mahalanobis(*broken)):
        with stopped("25 of its entries are not finite"):
            function()
