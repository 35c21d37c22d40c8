"""
Constructors and `greedy_variance` reject kernels whose active dimensions or ARD parameters do not
fit X.
"""

import numpy as np
import pytest
from gpflow import kernels as k
from refusals import refused

from gpflow_pep import PEPR
from gpflow_pep.inducing import greedy_variance

rng = np.random.default_rng(0)
X = rng.normal(size=(10, 3))
Y = np.sin(X[:, :1])

WRONG = {
    "lengthscales of SquaredExponential": k.SquaredExponential(lengthscales=[1.0, 1.0]),
    "lengthscales of Matern32": k.Sum([k.White(), k.Matern32(lengthscales=np.ones(4))]),
    "variance of Linear": k.Linear(variance=[1.0, 1.0]),
    "period of Periodic": k.Periodic(k.SquaredExponential(), period=[1.0, 2.0]),
    "weight_variances of ArcCosine": k.ArcCosine(weight_variances=[1.0, 1.0]),
    "lengthscales of Matern12": k.SharedIndependent(
        k.Matern12(lengthscales=[1.0, 1.0]), output_dim=1
    ),
    "active_dims of Matern52": k.Matern52(active_dims=[0, 3]),
    "active_dims of Matern12": k.Matern12(active_dims=[-1]),
    "active_dims of Coregion": k.Matern52(active_dims=[0]) * k.Coregion(2, rank=1, active_dims=[3]),
}


@pytest.mark.parametrize(
    "make",
    [
        lambda kernel: PEPR((X, Y), kernel, X[:4]),
        lambda kernel: greedy_variance(getattr(kernel, "kernel", kernel), X, 4),
    ],
    ids=["PEPR", "greedy_variance"],
)
def test_rejects_invalid_active_dims(make):
    for part in WRONG:
        with refused(f"kernel: {part} must "):
            make(WRONG[part])


def test_accepts_valid_active_dims():
    for kernel in [
        k.SquaredExponential(lengthscales=[1.0]),
        k.Matern32(lengthscales=[1.0, 2.0], active_dims=[0, 2]),
        k.SquaredExponential(lengthscales=[1.0, 2.0], active_dims=slice(1, None)),
        k.Periodic(k.SquaredExponential(lengthscales=np.ones(3)), period=np.ones(3)),
        k.Matern52(active_dims=[2]) * k.Linear(variance=np.ones(3)),
    ]:
        PEPR((X, Y), kernel, X[:4])


class Own(k.SquaredExponential):
    """A custom kernel with its own selection of columns."""

    def K(self, X, X2=None):
        return super().K(X[:, :2], None if X2 is None else X2[:, :2])

    def __call__(self, X, X2=None, *, full_cov=True, presliced=False):
        X2 = None if X2 is None else X2[..., :2]
        return super().__call__(X[..., :2], X2, full_cov=full_cov, presliced=True)


def test_custom_kernels_are_not_checked():
    assert PEPR((X, Y), Own(lengthscales=[1.0, 1.0]), X[:4]).num_data == 10
