"""
Kernels in the form of one product and a profile, against GPflow's function of exactly computed
differences.

The product has t = |z|² - 2 z'x + |x|² with an error of some eps S, S the largest sum of its terms
in squared lengthscales. Kernels smooth in t err by as much; a kernel that falls by the distance,
its root, by sqrt(eps S) where points coincide. Derivatives have the errors of values times S.
"""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from covariances import values_and_slopes
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import (
    Constant,
    Exponential,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)
from marks import either_way
from numpy.testing import assert_allclose
from quick import partly_slow

from gpflow_pep.engine import Prior

EPS = np.finfo(float).eps
RNG = np.random.default_rng(5)
X, Z = np.round(RNG.normal(size=(2, 9, 6)) * 2**10) / 2**10
Z = Z[:4]
CLASSES = [SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic, Exponential]
STEEP = (Matern12, Exponential)
ARD = [0.8, 1.0, 2.0, 0.7, 3.0, 1.3]
OPTIONS = {
    "one lengthscale": {"lengthscales": 0.8},
    "ARD": {"lengthscales": ARD},
    "one for all": {"lengthscales": [0.8]},
    "active_dims": {"lengthscales": ARD[:4], "active_dims": [5, 0, 3, 1]},
    "a slice": {"active_dims": slice(1, 6)},
}
COMBINATIONS = {
    "sum": lambda: Matern32(1.3, ARD) + SquaredExponential(0.4, 2.0),
    "product": lambda: Matern52(1.3, ARD) * RationalQuadratic(0.4, 2.0, 3.0),
    "nested": lambda: (
        SquaredExponential(1.3, ARD) * (Matern32(active_dims=[0, 1, 2, 4]) + Constant(0.3))
        + Linear(0.1)
    ),
    "few inputs": lambda: (
        SquaredExponential(active_dims=[2]) * Matern32(active_dims=slice(2)) + Matern52()
    ),
    "twice the same": lambda: (lambda kernel: kernel * kernel + kernel)(Matern52(1.1, 1.7)),
}


def exactly(kernel, X, X2):
    """GPflow's function of the distance, of differences."""
    if type(kernel) in (Sum, Product):
        parts = [exactly(part, X, X2) for part in kernel.kernels]
        return tf.add_n(parts) if type(kernel) is Sum else tf.reduce_prod(tf.stack(parts), axis=0)
    if type(kernel) not in CLASSES:
        return kernel(X, X2)
    difference = gpflow.utilities.ops.difference_matrix(*kernel.slice(X, X2)) / kernel.lengthscales
    return kernel.K_r2(tf.reduce_sum(tf.square(difference), axis=-1))


def differences(kernel, Z, X):
    points = InducingPoints(Z)
    jitter = 1e-6 * np.eye(len(Z))
    return points, lambda rows: (
        exactly(kernel, tf.convert_to_tensor(points.Z), points.Z) + jitter,
        exactly(kernel, tf.convert_to_tensor(points.Z), rows),
        exactly(kernel, rows, rows),
        kernel(rows, full_cov=False),
    )


def ours(kernel, Z, X):
    points = InducingPoints(Z)

    def covariances(rows):
        prior = Prior(points, kernel)
        return (
            prior.Kuu(1e-6),
            prior.Kuf(rows, *prior.inputs),
            prior.Kff(rows, *prior.inputs),
            prior.variances(rows, *prior.inputs),
        )

    return points, covariances


def everything(way, kernel, Z, X):
    """Kuu, Kuf, Kff and variances, and the derivatives of each in parameters, Z and X."""
    points, covariances = way(kernel, Z, X)
    rows = tf.constant(X)
    sources = [*kernel.trainable_variables, points.Z.unconstrained_variable, rows]
    return values_and_slopes(lambda: covariances(rows), sources)


def agree(actual, expected, value_error, derivative_error):
    for ours, theirs, error in zip(actual, expected, (value_error, derivative_error), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert_near(one, other, error * max(1.0, np.max(np.abs(other))))


@partly_slow(
    ("kernel", "options"),
    itertools.product(CLASSES, OPTIONS),
    quick=[
        *((kernel, "ARD") for kernel in CLASSES),
        *((Matern52, options) for options in OPTIONS),
    ],
)
def test_values_and_derivatives_of_gpflow(kernel, options):
    made = kernel(1.3, **OPTIONS[options])
    assert Prior(InducingPoints(Z), made).inputs[0].shape[-1] >= 4 + 2  # the form is in use
    agree(everything(ours, made, Z, X), everything(differences, made, Z, X), 1e-13, 1e-11)


@partly_slow("name", COMBINATIONS, quick=["product", "nested", "few inputs"])
def test_sums_and_products(name):
    kernel = COMBINATIONS[name]()
    agree(everything(ours, kernel, Z, X), everything(differences, kernel, Z, X), 1e-13, 1e-11)


@pytest.mark.parametrize("shift", [0.0, 2.0**30])
@pytest.mark.parametrize("kernel", CLASSES)
def test_points_that_coincide(kernel, shift):
    """
    Rows are inducing points, or as near as 2^-10, 2^-26 of a lengthscale; all of it also far from
    the origin.
    """
    made = kernel(1.3, ARD)
    near = np.concatenate([Z, Z[:2] + 2.0**-10, Z[2:] + (2.0**-26 if shift == 0.0 else 0.0)])
    actual = everything(ours, made, Z + shift, near + shift)
    expected = everything(differences, made, Z, near)
    error = 100.0 * EPS * 100.0
    if kernel not in STEEP:
        # A Matern 3/2 has a slope that errs by sqrt(eps S), but in t, whose own derivative is 0
        # there.
        agree(actual, expected, error, 100.0 * error)
        return
    agree([actual[0], []], [expected[0], []], np.sqrt(error), 0.0)
    assert all(np.all(np.isfinite(part)) for part in actual[1])


def test_points_far_apart():
    """
    A row so far away that its covariance underflows: 0 and no slope, and near rows keep their
    covariances.
    """
    for kernel in [
        *CLASSES,
        lambda *_: COMBINATIONS["sum"](),
        lambda *_: COMBINATIONS["product"](),
    ]:
        made = kernel(1.3, 0.8)
        far = np.concatenate([X, X[:1] + 2.0**13])
        (values, derivatives), (alone, _) = (
            everything(ours, made, Z, far),
            everything(ours, made, Z, X),
        )
        assert_allclose(values[1][:, :-1], alone[1], rtol=1e-13)
        assert_allclose(
            values[1][:, -1], exactly(made, tf.constant(Z), tf.constant(far[-1:]))[:, 0], rtol=1e-6
        )
        assert all(np.all(np.isfinite(part)) for part in derivatives)


@partly_slow("kernel", CLASSES, quick=[SquaredExponential, Matern12])
def test_tiny_and_huge_lengthscales(kernel):
    """
    Tiny lengthscales correlate coinciding points only, with an error of eps S; huge lengthscales
    all points.
    """
    for lengthscale in [1e-3, 1e8, 1e100, 1e200]:
        made = kernel(1.3, lengthscale)
        near = np.concatenate([Z, X])
        actual = everything(ours, made, Z, near)
        expected = everything(differences, made, Z, near)
        error = 100.0 * EPS * max(1.0, 20.0 * (1.0 / lengthscale) ** 2)
        agree(
            [actual[0], []],
            [expected[0], []],
            error if kernel not in STEEP else np.sqrt(error),
            0.0,
        )
        if lengthscale > 1.0:
            agree([[], actual[1]], [[], expected[1]], 0.0, 100.0 * EPS)
        assert all(np.all(np.isfinite(part)) for part in actual[1])


@pytest.mark.parametrize("kernel", CLASSES)
@either_way
def test_it_can_be_differentiated_twice(kernel, way):
    made = kernel(1.3, ARD)
    points = InducingPoints(Z)

    def slope(covariance, inputs):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                value = tf.reduce_sum(tf.square(covariance(inputs)))
            total = tf.reduce_sum(tf.sin(inner.gradient(value, inputs)))
        return outer.gradient(total, inputs)

    def covariance(inputs):
        prior = Prior(points, made)
        return prior.Kuf(inputs, *prior.inputs)

    actual = way(lambda inputs: slope(covariance, inputs))(tf.constant(X))
    expected = slope(lambda inputs: exactly(made, tf.constant(Z), inputs), tf.constant(X))
    assert_near(actual, expected, 1e-11 * np.max(np.abs(expected)))
    assert np.all(np.isfinite(way(lambda inputs: slope(covariance, inputs))(tf.constant(Z))))


class _Doubled(Matern32):
    def K_r(self, r):
        return 2.0 * super().K_r(r)


class _Warped(SquaredExponential):
    def scale(self, X):
        return tf.sin(X)


class _Called(Matern52):
    def __call__(self, X, X2=None, *, full_cov=True, presliced=False):
        return 3.0 * super().__call__(X, X2, full_cov=full_cov, presliced=presliced)


class _Whole(RationalQuadratic):
    def K(self, X, X2=None):
        return 4.0 * super().K(X, X2)


@pytest.mark.parametrize("kernel", [_Doubled, _Warped, _Called, _Whole])
def test_classes_derived_from_these_have_their_own(kernel):
    alone = kernel()
    prior = Prior(InducingPoints(Z), alone)
    assert prior.inputs == ()
    assert_allclose(prior.Kuf(tf.constant(X)), alone(Z, X), rtol=1e-12)
    both = alone + Matern32()
    prior = Prior(InducingPoints(Z), both)
    assert_allclose(
        prior.Kuf(tf.constant(X), *prior.inputs), alone(Z, X) + Matern32()(Z, X), rtol=1e-12
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_single_precision(kind):
    """
    Values err by a few eps of the variance and derivatives by as much of themselves, also where x
    is near z and both are far from the center: distances are in double precision. In single
    precision they would err by 100² eps = 1e-3.
    """
    eps = np.finfo(np.float32).eps
    far = Z + 100.0 * np.array([[1.0], [-1.0], [1.0], [-1.0]])
    rows = tf.constant(far + 0.3 * X[:4])
    weights = np.random.default_rng(1).normal(size=(4, 4))
    kernel = kind(variance=1.3, lengthscales=ARD)
    points = InducingPoints(far)
    found = []
    for dtype in (tf.float64, tf.float32):
        with tf.GradientTape() as tape:
            prior = Prior(points, kernel)
            value = prior.Kuf(rows, *prior.inputs, dtype=dtype)
            total = tf.reduce_sum(tf.cast(weights, dtype) * value)
        assert value.dtype == dtype
        found.append(
            (
                value,
                tape.gradient(
                    total, [*kernel.trainable_variables, points.Z.unconstrained_variable]
                ),
            )
        )
    (exact, derivatives), (value, others) = found
    assert_near(value, exact, 4.0 * 1.3 * eps)
    for other, derivative in zip(others, derivatives, strict=True):
        assert other.dtype == tf.float64
        assert_near(other, derivative, 30.0 * eps * np.abs(derivative).max())
