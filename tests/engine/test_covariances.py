"""Kuf in the form of one product and one exp, against GPflow's Kuf.

Both form log k from terms of up to |x|^2 / 2, here 50 at the most, each rounded to eps: 1e-13 of k,
and a digit less for derivatives: 1e-12. Far from the origin GPflow's own form has no digits left;
there the reference is numpy's (z - x)^2, exact for inputs that are multiples of 2^-20.
"""

import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPatches, InducingPoints
from gpflow.kernels import Convolutional, Kernel, SquaredExponential
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.engine import Prior

EXACT = 1e-12
RNG = np.random.default_rng(1)
X, Z = np.round(RNG.normal(size=(2, 9, 3)) * 2**20) / 2**20
Z = Z[:4]


def ours(kernel, inducing_variable):
    prior = Prior(inducing_variable, kernel)
    return prior.Kuf(tf.convert_to_tensor(X), *prior.inputs)


def test_a_subclass_of_inducing_points_uses_its_own_covariance():
    class Halved(InducingPoints):
        pass

    @Kuf.register(Halved, Kernel, object)
    def _halved(inducing_variable, kernel, inputs):
        return 0.5 * kernel(inducing_variable.Z, inputs)

    kernel = SquaredExponential()
    whole = ours(kernel, InducingPoints(Z))
    assert_allclose(ours(kernel, Halved(Z)), 0.5 * whole, rtol=EXACT)


def test_inducing_patches_use_theirs():
    kernel = Convolutional(SquaredExponential(), [3, 1], [2, 1])
    patches = InducingPatches(Z[:, :2])
    expected = Kuf(patches, kernel, tf.constant(X))
    assert_array_equal(ours(kernel, patches), expected)
