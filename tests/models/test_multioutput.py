"""
Several columns of Y in collapsed regression: shared kernels are accepted, separate kernels rejected
with advice.
"""

import gpflow
import numpy as np
import pytest
from comparisons import assert_all_equal
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Matern52, SeparateIndependent, SharedIndependent
from numpy.testing import assert_allclose, assert_array_equal
from waves import line

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, StreamingSGPR

rng = np.random.default_rng(17)
X = rng.uniform(-2.0, 2.0, (24, 1))
Y = np.concatenate([np.sin(2.0 * X), np.cos(X)], axis=1) + 0.1 * rng.normal(size=(24, 2))
Z = line(-2.0, 2.0, 5)
NEW = line(-2.5, 2.5, 7)
MODELS = {
    "PEPR of blocks": (PEPR, {"alpha": 0.4, "blocks": 6}),
    "TSGPR": (TSGPR, {}),
    "BTSGPR": (BTSGPR, {"blocks": 6}),
    "StreamingSGPR": (StreamingSGPR, {"alpha": 0.4}),
}


@pytest.mark.parametrize("name", MODELS)
def test_shared_kernel_and_points_equal_plain_ones(name):
    """Bit-identical: both use one kernel, and the points themselves, for all columns."""
    kind, options = MODELS[name]
    points = InducingPoints(Z)
    shared = SharedIndependentInducingVariables(points)
    named = kind((X, Y), SharedIndependent(Matern52(), 2), shared, **options)
    plain = kind((X, Y), Matern52(), Z, **options)
    assert named.inducing_variable.Z is points.Z
    assert named.training_loss() == plain.training_loss()
    for full_cov in (False, True):
        assert_all_equal(named.predict_f(NEW, full_cov), plain.predict_f(NEW, full_cov))
    assert_array_equal(named.loo_log_predictive_density(), plain.loo_log_predictive_density())
    points = InducingPoints(Z + 0.1)
    named.inducing_variable = SharedIndependentInducingVariables(points)
    assert named.inducing_variable.Z is points.Z


def test_recommended_model_accepts_separate_kernels():
    """PEP accepts separate kernels."""
    kernel = SeparateIndependent([Matern52(), Matern52(lengthscales=0.5)])
    separate = SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z + 0.1)])
    model = PEP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.1), separate, alpha=0.4)
    parts = [
        PEPR((X, Y[:, [p]]), kernel.kernels[p], Z + 0.1 * p, alpha=0.4, noise_variance=0.1)
        for p in range(2)
    ]
    expected = sum(part.training_loss() for part in parts)
    assert_allclose(model.training_loss(), expected, rtol=1e-9)
