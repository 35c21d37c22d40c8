"""
Rows of a regression model through the engine, with the derivatives of every variable of the model.

The reference is a dense evaluation with GPflow's covariances, differentiated by TensorFlow. Kuu has
a condition number below 1e4 here, which the two orders of operations may turn into 1e4 eps = 2e-12
of a derivative: 1e-10.
"""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from quick import some_slow

from gpflow_pep.engine import (
    BlockSites,
    IndependentSites,
    Powers,
    Prior,
    RegressionRows,
    log_gaussian,
)

TOLERANCE = 1e-10
RNG = np.random.default_rng(21)
X, Y = RNG.normal(size=(13, 2)), RNG.normal(size=(13, 2))
Z = RNG.normal(size=(4, 2))


class Custom(gpflow.kernels.SquaredExponential):
    """Takes GPflow's Kuf."""


KERNELS = {
    "squared exponential": lambda: gpflow.kernels.SquaredExponential(
        variance=1.3, lengthscales=[0.7, 1.2]
    ),
    "subclass": lambda: Custom(variance=1.3, lengthscales=[0.7, 1.2]),
    "sum": lambda: gpflow.kernels.Matern52(lengthscales=0.9) + gpflow.kernels.Linear(variance=0.4),
    "part fixed": lambda: fixed_variance(gpflow.kernels.SquaredExponential()),
}


def fixed_variance(kernel):
    gpflow.set_trainable(kernel.variance, False)
    return kernel


def make_likelihood(kind):
    if kind == "constant":
        return gpflow.likelihoods.Gaussian(0.3)
    # Positive for all inputs here: |x| < 3.
    return gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(A=[[0.05], [0.1]], b=[0.8]))


@pytest.mark.parametrize(
    ("name", "kind", "likelihood"),
    some_slow(
        itertools.product(KERNELS, ["rows", "unequal"], ["constant", "input dependent"]),
        quick=[("squared exponential", "rows", "input dependent")],
    ),
)
@pytest.mark.parametrize(
    "compiled", some_slow([False, True], quick=[True]), ids=["eager", "compiled"]
)
def test_derivatives_of_every_variable(dense, name, kind, likelihood, compiled):
    kernel, points = KERNELS[name](), gpflow.inducing_variables.InducingPoints(Z)
    noise = make_likelihood(likelihood)
    mean = gpflow.functions.Linear(A=0.2 * np.ones((2, 2)), b=[0.1, -0.3])
    factor = tf.Variable(1.2, dtype=tf.float64)
    scale = tf.Variable(0.7, dtype=tf.float64)
    powers = Powers(0.5, 0.5, 0.25)
    blocks = dense.blocks(kind, 13)
    chunks = dense.chunks(kind, blocks, 5)
    sites = IndependentSites() if kind == "rows" else BlockSites()
    sources = [module.trainable_variables for module in (kernel, points, noise, mean)]
    sources = [variable for variables in sources for variable in variables] + [factor, scale]

    def covariance():
        return Kuu(points, kernel, jitter=1e-6)

    def evidence(sums):
        return log_gaussian(*sums.split(), tf.constant(13)) - 2.0 * sums.penalty

    def ours():
        rows = RegressionRows(
            (X, Y), chunks, Prior(points, kernel), noise, mean, factor + 0.0, scale=scale + 0.0
        )
        return evidence(
            dense.accumulate_sums(
                rows,
                sites,
                dense.tensors(powers),
                Kuu=covariance(),
                factorize=dense.factorize,
            )
        )

    def plain():
        s = noise.variance_at(X)[:, 0] * factor
        K = Kuf(points, kernel, tf.constant(X))
        return evidence(
            dense.sums(covariance(), K, kernel(X), s, Y - mean(X), blocks, powers, scale)
        )

    def gradient(function):
        with tf.GradientTape() as tape:
            value = function()
        return value, tape.gradient(value, sources)

    value, gradients = (tf.function(gradient) if compiled else gradient)(ours)
    expected, wanted = gradient(plain)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    for actual, exact in zip(gradients, wanted, strict=True):
        dense.close(actual, tf.convert_to_tensor(exact), TOLERANCE)


def test_the_rows_of_a_chunk(dense):
    kernel, points = KERNELS["squared exponential"](), gpflow.inducing_variables.InducingPoints(Z)
    blocks = dense.blocks("unequal", 13)
    chunks = dense.chunks("unequal", blocks, 1)
    mean = gpflow.functions.Constant([0.5, 1.5])
    scales = tf.linspace(0.5, 1.8, len(blocks))
    parts = Prior(points, kernel), gpflow.likelihoods.Gaussian(0.3), mean
    rows = RegressionRows((X, Y), chunks, *parts, scale=scales)
    seen = []

    def part_of(chunk):
        index = chunk.take(tf.range(13)).numpy()
        part = rows(chunk, *rows.inputs)
        np.testing.assert_allclose(part.Kuf, kernel(Z, X[index]), rtol=1e-13)
        np.testing.assert_allclose(part.Kff[0], kernel(X[index]), rtol=1e-13)
        np.testing.assert_allclose(part.noise, 0.3)
        np.testing.assert_array_equal(
            part.scale, [m for m, b in zip(scales, blocks, strict=True) if set(b) <= set(index)]
        )
        np.testing.assert_array_equal(part.residual, Y[index] - [0.5, 1.5])
        seen.extend(index)
        return ()

    rows.sum_over_chunks(part_of, ())
    assert sorted(seen) == list(range(13))
