"""
Attacks on the parts of models: kernel, likelihood, mean function and inducing variable are
replaced.
"""

from copy import copy

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.utilities import positive

from campaign.attack_subjects import (
    BINARY,
    COLLAPSED,
    LIKELIHOODS,
    OF_NOISE,
    ONE_BLOCK,
    SITES,
    WITH_DATA,
    Attack,
    Attacks,
    FunctionOf,
    Model,
    Pair,
    assigning,
    drawn,
    models,
    new_kernel,
)


def _kernel(s: Model) -> Pair:
    s.model.kernel = kernel = new_kernel(s.rng)
    return s.compared(kernel=kernel)


def _lengthscale_per_column(s: Model) -> Pair:
    lengthscales = s.rng.uniform(0.5, 2.0, s.X.shape[1])
    s.model.kernel.lengthscales = gpflow.Parameter(lengthscales, transform=positive())
    return s.compared(kernel=s.model.kernel)


def _likelihood(s: Model) -> Pair:
    names = (
        [s.likelihood]
        if s.kind in OF_NOISE
        else BINARY
        if s.likelihood in BINARY
        else ["Gaussian", "Student-t"]
    )
    s.model.likelihood = likelihood = LIKELIHOODS[drawn(s, names)][0](s.rng)
    return s.compared(likelihood=likelihood)


def _mean_function(s: Model) -> Pair:
    D = s.X.shape[1]
    linear = gpflow.mean_functions.Linear(s.rng.normal(size=(D, 1)), s.rng.normal(size=1))
    s.model.mean_function = function = drawn(
        s, [linear, gpflow.mean_functions.Constant(np.ones(1))]
    )
    found = s.compared(mean_function=function)
    s.model.mean_function = None
    zero = s.compared()
    return {**found[0], "zero": zero[0]["mean"]}, {**found[1], "zero": zero[1]["mean"]}


def _points(s: Model) -> Pair:
    Z = s.rng.uniform(-2.0, 2.0, (int(s.rng.integers(2, 6)), s.X.shape[1]))
    s.model.inducing_variable = drawn(
        s, [lambda _: Z, lambda _: Z.tolist(), lambda _: InducingPoints(Z.copy())]
    )
    return s.compared(inducing_variable=Z)


def _points_as_parameter(s: Model) -> Pair:
    Z = s.rng.uniform(-2.0, 2.0, (int(s.rng.integers(2, 6)), s.X.shape[1]))
    s.model.inducing_variable.Z = gpflow.Parameter(Z)
    return s.compared(inducing_variable=Z)


def _shared_kernel(s: Model) -> Pair:
    """Another model of the same kernel object has another part afterwards."""
    other = copy(s.arguments) | {"kernel": s.model.kernel}
    second = type(s.model)(**other)
    s.numbers(second)
    second.kernel = new_kernel(s.rng)
    s.model.kernel.variance.assign(s.rng.uniform(0.5, 2.0))
    return s.compared(kernel=s.model.kernel)


def _wrong_means(s: Model) -> gpflow.mean_functions.MeanFunction:
    functions = [
        lambda X: X[:, 0],
        lambda X: tf.tile(X[:, :1], [1, 5]),
        lambda X: tf.cast(X[:, :1], tf.float32),
        lambda X: X[:2, :1],
    ]
    return FunctionOf(functions[int(s.rng.integers(len(functions)))])


def _old_posterior(s: Model) -> None:
    """Use a posterior after a part was replaced."""
    posterior = s.model.posterior("variable")
    old = s.model.kernel
    s.model.kernel = new_kernel(s.rng)
    try:
        posterior.update_cache()
    finally:
        s.model.kernel = old


ATTACKS: Attacks = {
    "kernel replaced": Attack(models(), _kernel),
    "lengthscales replaced by one per column": Attack(models(), _lengthscale_per_column),
    "likelihood replaced": Attack(models(likelihoods=["Gaussian"]), _likelihood),
    "labels' likelihood replaced": Attack(models([*SITES, "APEP", "ARPEP"], BINARY), _likelihood),
    "mean function replaced": Attack(models(likelihoods=["Gaussian"]), _mean_function),
    "inducing variable replaced": Attack(
        models([*ONE_BLOCK[:2], "TSGPR", "BTSGPR", "PEP"]), _points
    ),
    "inducing points replaced": Attack(
        models(["PEPR", "TSGPR", "PEP", "PEPClassifier"]), _points_as_parameter
    ),
    "kernel shared with another model": Attack(models(), _shared_kernel),
    "no kernel": Attack(
        models(),
        assigning(
            "kernel", None, "rbf", 3.0, gpflow.kernels.Matern32, gpflow.likelihoods.Gaussian()
        ),
        "kernel",
    ),
    "lengthscales of other columns": Attack(
        models(),
        assigning("kernel", lambda s: gpflow.kernels.Matern32(lengthscales=np.ones(3))),
        "lengthscales",
    ),
    "active_dims outside": Attack(
        models(WITH_DATA),
        assigning("kernel", lambda s: gpflow.kernels.Matern52(active_dims=[0, 5])),
        "active_dims",
    ),
    "kernel of several outputs": Attack(
        models(likelihoods=["Gaussian"]),
        assigning(
            "kernel",
            lambda s: gpflow.kernels.SharedIndependent(new_kernel(s.rng), 3),
            lambda s: gpflow.kernels.SeparateIndependent([new_kernel(s.rng), new_kernel(s.rng)]),
            lambda s: gpflow.kernels.LinearCoregionalization(
                [new_kernel(s.rng)], W=np.ones((1, 1))
            ),
        ),
        "kernel",
    ),
    "no likelihood": Attack(
        models(),
        assigning("likelihood", None, "probit", 1.0, gpflow.likelihoods.StudentT),
        "likelihood",
    ),
    "likelihood without Gaussian noise": Attack(
        models(OF_NOISE),
        assigning("likelihood", lambda s: drawn(s, [gpflow.likelihoods.Poisson()])),
        "likelihood",
    ),
    "likelihood of other labels": Attack(
        models(SITES, ["Gaussian", "Student-t"]),
        assigning(
            "likelihood",
            lambda s: gpflow.likelihoods.Poisson(),
            lambda s: gpflow.likelihoods.Beta(),
        ),
        r"likelihood|data\[1\] \(Y\)|\bY\b",
    ),
    "likelihood of more classes": Attack(
        models(SITES, BINARY),
        assigning("likelihood", lambda s: gpflow.likelihoods.Softmax(3)),
        "likelihood|latent",
    ),
    "no mean function": Attack(
        models(),
        assigning("mean_function", 3.0, "zero", lambda s: lambda X: X, gpflow.mean_functions.Zero),
        "mean_function",
    ),
    "mean function of another shape": Attack(
        models(), assigning("mean_function", _wrong_means), "mean.function"
    ),
    "no inducing variable": Attack(
        models(),
        assigning(
            "inducing_variable",
            None,
            "kmeans",
            5,
            lambda s: s.X[:0],
            lambda s: s.X[0],
            lambda s: s.X * np.nan,
        ),
        "inducing_variable",
    ),
    "inducing variable of other columns": Attack(
        models(WITH_DATA),
        assigning("inducing_variable", np.ones((2, 3)), lambda s: InducingPoints(np.ones((2, 3)))),
        "inducing_variable",
    ),
    "inducing variable of another kind": Attack(
        models(COLLAPSED),
        assigning(
            "inducing_variable",
            lambda s: SharedIndependentInducingVariables(InducingPoints(s.X[:2].copy())),
            lambda s: np.ma.MaskedArray(s.X[:3], mask=True),
            lambda s: s.X[:3] + 1j,
            lambda s: s.X[:3].astype(str),
        ),
        "inducing_variable",
    ),
    "posterior after the kernel was replaced": Attack(models(), _old_posterior, "posterior"),
}
