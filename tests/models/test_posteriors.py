"""The posterior of given sums against the dense formula.

With u = L v and q(v) = N(B^-1 c, B^-1), B = I + A:  mean k_*u Kuu^-1 L B^-1 c,  covariance k_** -
Q_** + T' B^-1 T, T = L^-1 K_u*. Condition numbers are below 1e3: 1e3 eps, and 1e-11 leaves room.
"""

import pickle
from copy import deepcopy

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_equal, assert_near
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Matern12, Matern32, Matern52, SeparateIndependent
from gpflow.posteriors import PrecomputeCacheType
from refusals import stopped

from gpflow_pep import PEPR, StreamingSGPR
from gpflow_pep.engine import SiteSums
from gpflow_pep.models.posteriors import WhitenedPosterior

EXACT = 1e-11
RNG = np.random.default_rng(2)
Z = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.8, 0.9]])
FEATURES = RNG.normal(size=(4, 6))
A = FEATURES @ FEATURES.T
C = RNG.normal(size=(4, 3))
XNEW = RNG.uniform(-2.0, 2.0, size=(5, 2))


def make_kernel():
    return Matern52(variance=1.4, lengthscales=0.9)


class Given:
    """Fixed sums, with a count of their evaluations."""

    def __init__(self, kernel, A=A, c=C):
        self.calls, self.A, self.c = 0, A, c
        self.L = np.linalg.cholesky(kernel(Z) + 1e-6 * np.eye(4))

    def __call__(self):
        self.calls += 1
        return SiteSums(tf.constant(self.L), tf.constant(self.A), tf.constant(self.c))


def make_posterior(cache=PrecomputeCacheType.TENSOR, mean_function=None, **changes):
    kernel = make_kernel()
    given = Given(kernel, **changes)
    points = InducingPoints(Z)
    mean_function = mean_function or gpflow.functions.Constant([0.5, 0.0, -1.0])
    return WhitenedPosterior(
        kernel, points, mean_function, lambda: given().posterior(), precompute_cache=cache
    ), given


KERNELS = [
    Matern52(1.4, 0.9),
    Matern32(0.6, 1.2),
    Matern12(1.0, 2.0),
]


@pytest.mark.parametrize("kernels", [KERNELS[:1] * 3, KERNELS], ids=["one Kuu", "a Kuu each"])
def test_separate_sums_equal_separate_posteriors(kernels):
    """Marginals and covariances, also for batches, with shared and separate kernels."""
    points = InducingPoints(Z)
    shares = kernels[0] is kernels[1]
    L = np.stack([np.linalg.cholesky(kernel(Z) + 1e-6 * np.eye(4)) for kernel in kernels])
    As = np.stack([A, 0.3 * A, A + np.eye(4)])
    cs = C.T[..., None]

    def posterior(kernel, *sums):
        sums = SiteSums(*map(tf.constant, sums))
        zero = gpflow.functions.Zero(sums.c.shape[0] if sums.c.shape.rank == 3 else 1)
        return WhitenedPosterior(
            kernel, points, zero, sums.posterior, precompute_cache=PrecomputeCacheType.TENSOR
        )

    kernel = kernels[0] if shares else SeparateIndependent(kernels)
    together = posterior(kernel, L[0] if shares else L, As, cs)
    alone = [posterior(*parts) for parts in zip(kernels, L, As, cs, strict=True)]
    for X in (XNEW, np.stack([XNEW, XNEW + 0.5])):
        for full_cov, axis in ((False, -1), (True, -3)):
            mean, cov = together.predict_f(X, full_cov=full_cov)
            means, covs = zip(
                *(each.predict_f(X, full_cov=full_cov) for each in alone), strict=True
            )
            assert_near(mean, np.concatenate(means, axis=-1), EXACT)
            assert_near(cov, np.concatenate(covs, axis=axis), EXACT)


@pytest.mark.parametrize(
    ("cache", "calls"), list(zip(PrecomputeCacheType, [1, 1, 0], strict=True)), ids=str
)
def test_sums_are_computed_once_per_cache(cache, calls):
    posterior, given = make_posterior(cache)
    assert given.calls == calls
    for number in range(3):
        if cache is PrecomputeCacheType.NOCACHE:
            posterior.fused_predict_f(XNEW)
            assert given.calls == number + 1
        else:
            posterior.predict_f(XNEW)
            assert given.calls == calls


def test_informative_data_give_nonnegative_variance():
    """At an inducing point k - T'T + T'B^-1 T is 0 up to rounding (the jitter, 1e-6, is left)."""
    posterior, _ = make_posterior(A=1e18 * np.eye(4))
    _, variance = posterior.predict_f(Z)
    assert np.all(variance >= 0.0) and np.all(variance < 2e-6)


@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_posterior_follows_the_copy_of_its_model(copied):
    Y = np.sin(XNEW[:, :1])
    model = PEPR((XNEW, Y), make_kernel(), Z)
    model.kept = model.posterior()
    clone = copied(model)
    clone.data = XNEW, -Y
    clone.kernel.variance.assign(2.0)
    clone.kept.update_cache()
    assert_all_equal(clone.kept.predict_f(XNEW), clone.predict_f(XNEW))
    assert_all_equal(model.kept.predict_f(XNEW), model.predict_f(XNEW))


def test_the_number_of_points_may_change():
    model = StreamingSGPR((XNEW, np.sin(XNEW[:, :1])), make_kernel(), Z)
    posterior = model.posterior("variable")
    model.update((XNEW, np.cos(XNEW[:, :1])), Z[:3])
    posterior.update_cache()
    assert_all_equal(posterior.predict_f(XNEW), model.predict_f(XNEW))


@pytest.mark.parametrize("shape", [(0, 5, 2), (2, 0, 2)])
def test_accepts_empty_batches(shape):
    posterior, _ = make_posterior()
    X = np.resize(XNEW, shape)
    for full_cov in (False, True):
        mean, cov = posterior.predict_f(X, full_cov=full_cov)
        assert mean.shape == (*shape[:-1], 3)
        assert cov.shape == ((*shape[:-2], 3, shape[-2], shape[-2]) if full_cov else mean.shape)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": np.full((4, 4), np.nan)}, "B = I .* 16 of its entries are not finite"),
        ({"A": -3.0 * np.eye(4)}, "B = I .* smallest eigenvalue -2"),
        ({"c": np.full((4, 3), np.nan)}, "predictive mean.* not finite"),
    ],
)
def test_invalid_sums_raise(changes, message):
    posterior, _ = make_posterior(PrecomputeCacheType.NOCACHE, **changes)
    for predict in (posterior.fused_predict_f, tf.function(posterior.fused_predict_f)):
        with stopped(message):
            predict(XNEW)


@pytest.mark.parametrize("dtype", [tf.float32, tf.int32])
def test_inputs_of_another_type_are_converted(dtype):
    """Small whole numbers are exact in every type."""
    whole = np.round(2.0 * XNEW)
    posterior, _ = make_posterior()
    for predict in (
        posterior.predict_f,
        posterior.fused_predict_f,
        tf.function(posterior.predict_f),
    ):
        assert_all_equal(predict(tf.constant(whole, dtype)), predict(whole))
