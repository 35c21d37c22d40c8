"""
Kernels at inputs far from the origin, and in clusters far from each other, against themselves near
the origin.

Inputs are multiples of 2^-10 and shifts are powers of two, so that no difference of inputs changes
by a shift, and each is exact: results computed from them must agree to a rounding of each
operation, 1e-13 with some hundred of them.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from covariances import values_and_slopes
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import (
    ChangePoints,
    Constant,
    Cosine,
    Exponential,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
)
from marks import either_way
from numpy.testing import assert_allclose, assert_array_equal
from own_kernels import BrownianMotion
from refusals import refused, stopped

from gpflow_pep import PEPR
from gpflow_pep.engine import Prior, kernel_matrix

EXACT = 1e-13
FAR = 2.0**30
RNG = np.random.default_rng(3)
X, Z = np.round(RNG.normal(size=(2, 9, 5)) * 2**10) / 2**10
Z = Z[:4]
KERNELS = {
    "SquaredExponential": lambda: SquaredExponential(1.3, 0.8),
    "of one": lambda: SquaredExponential(1.3, [0.8], active_dims=[3]),
    "Matern12": lambda: Matern12(1.3, 0.8),
    "Matern32": lambda: Matern32(1.3, 0.8),
    "Matern52": lambda: Matern52(1.3, [0.8, 1.0, 2.0, 0.7, 3.0]),
    "Exponential": lambda: Exponential(1.3, [0.5, 0.8], active_dims=[3, 1]),
    "RationalQuadratic": lambda: RationalQuadratic(1.3, 0.8, 2.0, active_dims=slice(1, 3)),
    "Cosine": lambda: Cosine(1.3, 0.8),
    "Periodic": lambda: Periodic(SquaredExponential(1.3, 0.8, active_dims=[2])),
    "sum": lambda: Matern12(active_dims=[0]) + Constant(0.3) + White(0.2) + Cosine() * Matern52(),
    "product": lambda: (
        SquaredExponential(active_dims=[0]) * (Matern32(active_dims=[1, 2]) + Constant(0.1))
    ),
}


def everything(kernel, Z, X):
    """Kuu, Kuf, Kff and variances, and their derivatives in the trainable variables."""
    points = InducingPoints(Z)
    rows = tf.constant(X)

    def covariances():
        prior = Prior(points, kernel)
        return (
            prior.Kuu(1e-6),
            prior.Kuf(rows, *prior.inputs),
            prior.Kff(tf.stack([rows, rows[::-1]]), *prior.inputs),
            prior.variances(rows, *prior.inputs),
        )

    sources = [*kernel.trainable_variables, *points.trainable_variables]
    values, slopes = values_and_slopes(covariances, sources)
    return values + slopes


def test_near_the_origin_they_are_those_of_gpflow():
    for name in KERNELS:
        kernel = KERNELS[name]()
        rows = tf.constant(X)
        # GPflow's Kuf by the expanded square: terms up to |x|^2 = 50 and a root of what is left of
        # them at r >= 0.5.
        assert_allclose(kernel_matrix(kernel, tf.constant(Z), rows), kernel(Z, rows), rtol=1e-12)
        value = kernel_matrix(kernel, rows)
        expected = kernel(rows).numpy()
        assert_allclose(
            value - tf.linalg.diag(np.diag(value)),
            expected - np.diag(np.diag(expected)),
            atol=1e-12,
        )
        # On the diagonal a distance of rounding, sqrt(50 eps) = 1e-7, has a Matern 1/2 fall by as
        # much.
        assert_allclose(np.diag(value), np.diag(expected), rtol=1e-6)
        assert_allclose(np.diag(value), kernel(rows, full_cov=False), rtol=EXACT)


def test_where_the_origin_is_does_not_matter():
    """
    The center is rounded to eps FAR = 2e-7 and cancels to the last bit, since nothing needs more
    than 53 bits.
    """
    for name in KERNELS:
        kernel = KERNELS[name]()
        for far, near in zip(
            everything(kernel, Z + FAR, X + FAR), everything(kernel, Z, X), strict=True
        ):
            assert_near(far, near, 1e-11 * max(1.0, np.max(np.abs(near))))


@pytest.mark.parametrize("num_inputs", [1, 2, 3])
def test_clusters_far_from_each_other(num_inputs):
    """Within a cluster all is as if there were no other."""
    square = SquaredExponential(active_dims=[0])
    if num_inputs > 1:
        square = square * SquaredExponential(active_dims=slice(1, num_inputs))
    of_both = Matern32() + SquaredExponential(active_dims=[0])
    others = Matern12(), Matern52(), Exponential(), RationalQuadratic(), Cosine(), of_both
    for kernel in (square, *others):
        x = X[:, :num_inputs]
        z = Z[:, :num_inputs]
        points = InducingPoints(np.concatenate([z, z + FAR]))
        rows = tf.constant(np.concatenate([x, x + FAR]))
        prior = Prior(points, kernel)
        alone = Prior(InducingPoints(z), kernel)
        for whole, part in (
            (prior.Kuf(rows, *prior.inputs), alone.Kuf(tf.constant(x), *alone.inputs)),
            (prior.Kff(rows, *prior.inputs), alone.Kff(tf.constant(x), *alone.inputs)),
            (prior.Kuu(1e-6), alone.Kuu(1e-6)),
        ):
            m, n = part.shape
            assert_allclose(whole[:m, :n], part, rtol=EXACT, atol=EXACT)
            assert_allclose(whole[m:, n:], part, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize(
    ("kernel", "accuracy"),
    [
        (SquaredExponential(), 0.2),
        (SquaredExponential(active_dims=[0, 1]), 0.2),
        (Matern52(active_dims=[0, 1, 2, 3]), 0.375),
    ],
)
@either_way
def test_clusters_that_products_cannot_tell_apart_are_refused(kernel, accuracy, way):
    """
    The limit is eps |z|^2 = eps^accuracy, the error of a squared distance; half as far it is
    accepted.
    """
    D = len(np.arange(5)[kernel.active_dims])

    def Kuu(distance):
        points = InducingPoints(np.concatenate([Z, Z + distance]))
        return way(lambda: Prior(points, kernel).Kuu(0.0))()

    error = np.finfo(float).eps ** accuracy
    limit = np.sqrt(error / np.finfo(float).eps)
    near = kernel_matrix(kernel, tf.constant(Z))
    assert_allclose(Kuu(limit / np.sqrt(D))[:4, :4], near, rtol=2.0 * error)
    with stopped(f"within {limit:.0f} lengthscales"):
        Kuu(4.0 * limit)


def test_linear_parts_see_inputs_as_they_are():
    kernel = Linear(0.3) + Matern32(active_dims=[0])
    expected = 0.3 * (Z + FAR) @ (X + FAR).T + kernel.kernels[1](Z, X)
    assert_allclose(kernel_matrix(kernel, Z + FAR, tf.constant(X + FAR)), expected, rtol=EXACT)


def test_a_covariance_of_its_own_is_used():
    class Warped(Matern32):
        def K(self, X, X2=None):
            return super().K(tf.square(X), None if X2 is None else tf.square(X2))

    kernel = Warped() + Warped()
    assert_array_equal(kernel_matrix(kernel, tf.constant(Z), tf.constant(X)), kernel(Z, X))


def test_a_covariance_that_is_registered_is_used():
    class Registered(Matern32):
        pass

    @Kuf.register(InducingPoints, Registered, object)
    def _doubled(inducing_variable, kernel, inputs):
        return 2.0 * kernel(inducing_variable.Z, inputs)

    prior = Prior(InducingPoints(Z), Registered())
    assert_allclose(prior.Kuf(tf.constant(X)), 2.0 * Matern32()(Z, X), rtol=EXACT)


def test_rejects_active_dims_beyond_the_columns_of_X():
    with refused("active_dims of SquaredExponential must be columns of X, 0 to 1, got 3"):
        Prior(InducingPoints(Z[:, :2]), SquaredExponential(active_dims=[3]))


@pytest.mark.parametrize(
    "kernel",
    [
        BrownianMotion(),
        BrownianMotion() * Constant(2.0),
        ChangePoints([BrownianMotion(), BrownianMotion()], [0.5], steepness=9.0),
    ],
    ids=["own", "product", "parts of GPflow's"],
)
def test_blocks_of_a_kernel_that_transposes_its_inputs(kernel):
    """Also as many blocks as rows of each, when the wrong axes would have a right shape."""
    blocks = tf.constant(RNG.uniform(size=(2, 3, 3, 1)))
    expected = [[kernel(rows) for rows in group] for group in blocks]
    assert_allclose(kernel_matrix(kernel, blocks), expected, rtol=1e-15)
    X = tf.reshape(blocks, [18, 1])
    Y = RNG.normal(size=(18, 1))
    loss = PEPR(
        (X, Y), kernel, np.array([[0.3], [0.7]]), alpha=1.0, blocks=18
    ).training_loss()  # exact: one block
    assert_allclose(loss, gpflow.models.GPR((X, Y), kernel).training_loss(), rtol=1e-5)
