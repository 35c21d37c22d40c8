"""Kuf in the form of one product and one exp, against GPflow's Kuf.

Both form log k from terms of up to |x|^2 / 2, here 50 at the most, each rounded to eps: 1e-13 of k, and a digit less
for derivatives: 1e-12. Far from the origin GPflow's own form has no digits left; there the reference is numpy's
(z - x)^2, exact for inputs that are multiples of 2^-20.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf

from gpflow_pep.engine import Prior

EXACT = 1e-12
RNG = np.random.default_rng(1)
X, Z = np.round(RNG.normal(size=(2, 9, 3)) * 2**20) / 2**20
Z = Z[:4]
KERNELS = {
    "one lengthscale": lambda: gpflow.kernels.SquaredExponential(variance=1.7, lengthscales=0.8),
    "a lengthscale each": lambda: gpflow.kernels.SquaredExponential(
        variance=0.3, lengthscales=[0.5, 1.0, 3.0]
    ),
    "active_dims": lambda: gpflow.kernels.SquaredExponential(
        lengthscales=[0.5, 1.4], active_dims=[2, 0]
    ),
    "a slice": lambda: gpflow.kernels.SquaredExponential(lengthscales=0.7, active_dims=slice(1, 3)),
}


def value_and_gradient(function, sources):
    weights = np.random.default_rng(2).normal(size=(4, 9))
    with tf.GradientTape() as tape:
        value = function()
        total = tf.reduce_sum(weights * value)
    return value, tape.gradient(total, sources)


def ours(kernel, inducing_variable, inputs=X):
    prior = Prior(inducing_variable, kernel)
    return prior.Kuf(tf.convert_to_tensor(inputs), *prior.inputs)


@pytest.mark.parametrize("name", KERNELS)
def test_values_and_derivatives_are_those_of_gpflow(
    name,
):
    kernel, inducing_variable = KERNELS[name](), gpflow.inducing_variables.InducingPoints(Z)
    sources = [*kernel.trainable_variables, *inducing_variable.trainable_variables]
    assert len(sources) == 3
    value, gradients = value_and_gradient(lambda: ours(kernel, inducing_variable), sources)
    expected, wanted = value_and_gradient(
        lambda: Kuf(inducing_variable, kernel, tf.constant(X)), sources
    )
    np.testing.assert_allclose(value, expected, rtol=EXACT)
    for actual, exact in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(actual, exact, rtol=0, atol=EXACT * np.max(np.abs(exact)))


def test_stationary_kernels_share_the_left_factor():
    """The special form is in use: it hands out tensors that all rows share."""
    kernel, inducing_variable = (
        KERNELS["one lengthscale"](),
        gpflow.inducing_variables.InducingPoints(Z),
    )
    left, *_ = Prior(inducing_variable, kernel).inputs
    assert left.shape == (4, X.shape[1] + 2)


@pytest.mark.parametrize("name", KERNELS)
def test_inputs_far_from_the_origin(name):
    """A shift of 1e6, exact in binary, changes neither values nor derivatives: 9 digits would be lost otherwise."""
    shift = 2.0**20
    results = []
    for offset in (0.0, shift):
        kernel, inducing_variable = (
            KERNELS[name](),
            gpflow.inducing_variables.InducingPoints(Z + offset),
        )
        sources = [*kernel.trainable_variables, *inducing_variable.trainable_variables]
        results.append(
            value_and_gradient(
                lambda k=kernel, i=inducing_variable, o=offset: ours(k, i, X + o), sources
            )
        )
    scaled = np.ones(3)
    active = kernel.active_dims
    scaled = (Z[:, active][:, None] - X[:, active][None]) / kernel.lengthscales.numpy()
    exact = kernel.variance.numpy() * np.exp(-0.5 * np.sum(scaled**2, axis=-1))
    (_, near), (value, far) = results
    # The mean of Z is rounded to eps 2^20 = 2e-10; it cancels between z and x, up to a rounding of each, 2e-16.
    np.testing.assert_allclose(value, exact, rtol=EXACT)
    for actual, expected in zip(far, near, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=EXACT * np.max(np.abs(expected)))


@pytest.mark.parametrize("way", [lambda function: function, tf.function], ids=["eager", "compiled"])
def test_it_can_be_differentiated_twice(way):
    """In the inputs, as acquisition functions may be: the written-out derivatives are differentiable in turn."""
    kernel, points = KERNELS["one lengthscale"](), gpflow.inducing_variables.InducingPoints(Z)

    def hessian(covariance):
        inputs = tf.constant(X)
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                value = tf.reduce_sum(tf.square(covariance(kernel, points, inputs)))
            slope = tf.reduce_sum(tf.sin(inner.gradient(value, inputs)))
        return outer.gradient(slope, inputs)

    actual = way(lambda: hessian(ours))()
    expected = hessian(lambda kernel, points, inputs: kernel(points.Z, inputs))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=EXACT * np.max(np.abs(expected)))


def test_a_subclass_uses_its_own_covariance():
    class Doubled(gpflow.kernels.SquaredExponential):
        def K_r2(self, r2):
            return 2.0 * super().K_r2(r2)

    inducing_variable = gpflow.inducing_variables.InducingPoints(Z)
    kernel, plain = Doubled(), gpflow.kernels.SquaredExponential()
    np.testing.assert_allclose(
        ours(kernel, inducing_variable), 2.0 * ours(plain, inducing_variable), rtol=EXACT
    )


def test_a_subclass_of_inducing_points_uses_its_own_covariance():
    class Halved(gpflow.inducing_variables.InducingPoints):
        pass

    @Kuf.register(Halved, gpflow.kernels.Kernel, object)
    def _halved(inducing_variable, kernel, inputs):
        return 0.5 * kernel(inducing_variable.Z, inputs)

    kernel = gpflow.kernels.SquaredExponential()
    whole = ours(kernel, gpflow.inducing_variables.InducingPoints(Z))
    np.testing.assert_allclose(ours(kernel, Halved(Z)), 0.5 * whole, rtol=EXACT)


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.Matern32(),
        gpflow.kernels.SquaredExponential() + gpflow.kernels.Linear(),
        gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential()),
    ],
    ids=["Matern", "sum", "periodic"],
)
def test_other_kernels_use_gpflow_covariances(kernel):
    inducing_variable = gpflow.inducing_variables.InducingPoints(Z)
    expected = Kuf(inducing_variable, kernel, tf.constant(X))
    np.testing.assert_array_equal(ours(kernel, inducing_variable), expected)


def test_inducing_patches_use_theirs():
    kernel = gpflow.kernels.Convolutional(gpflow.kernels.SquaredExponential(), [3, 1], [2, 1])
    patches = gpflow.inducing_variables.InducingPatches(Z[:, :2])
    expected = Kuf(patches, kernel, tf.constant(X))
    np.testing.assert_array_equal(ours(kernel, patches), expected)
