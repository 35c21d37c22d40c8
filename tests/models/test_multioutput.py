"""
Several columns of Y in collapsed regression: shared kernels are accepted, separate kernels rejected
with advice.
"""

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Matern52, SeparateIndependent, SharedIndependent
from quick import some_slow

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, StreamingSGPR

rng = np.random.default_rng(17)
X = rng.uniform(-2.0, 2.0, (24, 1))
Y = np.concatenate([np.sin(2.0 * X), np.cos(X)], axis=1) + 0.1 * rng.normal(size=(24, 2))
Z = np.linspace(-2.0, 2.0, 5)[:, None]
NEW = np.linspace(-2.5, 2.5, 7)[:, None]
MODELS = {
    "PEPR": (PEPR, {"alpha": 0.4}),
    "PEPR of blocks": (PEPR, {"alpha": 0.4, "blocks": 6}),
    "TSGPR": (TSGPR, {}),
    "BTSGPR": (BTSGPR, {"blocks": 6}),
    "StreamingSGPR": (StreamingSGPR, {"alpha": 0.4}),
}


@pytest.mark.parametrize("name", some_slow(MODELS, quick=["PEPR of blocks", "StreamingSGPR"]))
def test_shared_kernel_equals_plain_kernel(name):
    """Bit-identical: both use one kernel for all columns."""
    kind, options = MODELS[name]
    named, plain = (
        kind((X, Y), kernel, Z, **options)
        for kernel in (SharedIndependent(Matern52(), 2), Matern52())
    )
    assert float(named.maximum_log_likelihood_objective()) == float(
        plain.maximum_log_likelihood_objective()
    )
    for full_cov in (False, True):
        for actual, expected in zip(
            named.predict_f(NEW, full_cov), plain.predict_f(NEW, full_cov), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(
        named.loo_log_predictive_density(), plain.loo_log_predictive_density()
    )


@pytest.mark.parametrize("name", MODELS)
def test_accepts_inducing_points_that_outputs_share(name):
    """They are the points themselves: no operation differs."""
    kind, options = MODELS[name]
    points = InducingPoints(Z)
    shared = kind((X, Y), Matern52(), SharedIndependentInducingVariables(points), **options)
    plain = kind((X, Y), Matern52(), Z, **options)
    assert shared.inducing_variable.Z is points.Z
    assert float(shared.training_loss()) == float(plain.training_loss())
    np.testing.assert_array_equal(shared.predict_f(NEW), plain.predict_f(NEW))
    points = InducingPoints(Z + 0.1)
    shared.inducing_variable = SharedIndependentInducingVariables(points)
    assert shared.inducing_variable.Z is points.Z


def test_recommended_model_accepts_separate_kernels():
    """PEP accepts separate kernels."""
    kernel = SeparateIndependent([Matern52(), Matern52(lengthscales=0.5)])
    separate = SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z + 0.1)])
    model = PEP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.1), separate, alpha=0.4)
    parts = [
        PEPR((X, Y[:, [p]]), kernel.kernels[p], Z + 0.1 * p, alpha=0.4, noise_variance=0.1)
        for p in range(2)
    ]
    expected = sum(float(part.maximum_log_likelihood_objective()) for part in parts)
    assert float(model.maximum_log_likelihood_objective()) == pytest.approx(expected, rel=1e-9)
