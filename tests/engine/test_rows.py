"""
The rows of a chunk, against GPflow. Models test their derivatives: models/test_gradients.py and
models/test_limits.py.
"""

import gpflow
import numpy as np
import tensorflow as tf
from dense_sums import make_blocks, make_chunks
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.engine import (
    Prior,
    RegressionRows,
)

RNG = np.random.default_rng(21)
X = RNG.normal(size=(13, 2))
Y = RNG.normal(size=(13, 2))
Z = RNG.normal(size=(4, 2))


def test_the_rows_of_a_chunk():
    kernel = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[0.7, 1.2])
    points = gpflow.inducing_variables.InducingPoints(Z)
    blocks = make_blocks("unequal", 13)
    chunks = make_chunks("unequal", blocks, 1)
    mean = gpflow.functions.Constant([0.5, 1.5])
    scales = tf.linspace(0.5, 1.8, len(blocks))
    parts = Prior(points, kernel), gpflow.likelihoods.Gaussian(0.3), mean
    factor = tf.constant(2.0, tf.float64)
    rows = RegressionRows((X, Y), chunks, *parts, factor, scale=scales)
    seen = []

    def part_of(chunk):
        index = chunk.take(tf.range(13)).numpy()
        part = rows(chunk, *rows.inputs)
        assert_allclose(part.Kuf, kernel(Z, X[index]), rtol=1e-13)
        assert_allclose(part.Kff[0], kernel(X[index]), rtol=1e-13)
        assert_allclose(part.noise, 0.6)
        assert_array_equal(
            part.scale, [m for m, b in zip(scales, blocks, strict=True) if set(b) <= set(index)]
        )
        assert_array_equal(part.residual, Y[index] - [0.5, 1.5])
        seen.extend(index)
        return ()

    rows.sum_over_chunks(part_of, ())
    assert sorted(seen) == list(range(13))
