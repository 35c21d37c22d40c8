"""Attacks on models: parts, parameters, settings and data are replaced, copied or damaged."""

import pickle
from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.likelihoods import Beta, Gaussian, Poisson, StudentT, SwitchedLikelihood
from gpflow.utilities import freeze, multiple_assign, parameter_dict, positive

from campaign.attack_subjects import (
    BINARY,
    LIKELIHOODS,
    MINIBATCH,
    OF_NOISE,
    ONE_BLOCK,
    SITES,
    WITH_DATA,
    Attack,
    Attacks,
    FunctionOf,
    Model,
    Pair,
    Rows,
    drawn,
    models,
    new_kernel,
)
from gpflow_pep import PEP, PEPR

# --- parts ----------------------------------------------------------------------------------------


def _kernel(s: Model) -> Pair:
    s.model.kernel = kernel = new_kernel(s.rng)
    return s.compared(kernel=kernel)


def _lengthscale_per_column(s: Model) -> Pair:
    lengthscales = s.rng.uniform(0.5, 2.0, s.X.shape[1])
    s.model.kernel.lengthscales = gpflow.Parameter(lengthscales, transform=positive())
    return s.compared(kernel=s.model.kernel)


def _likelihood(s: Model) -> Pair:
    names: Sequence[str] = ["Gaussian", "Student-t"]
    if s.likelihood in BINARY:
        names = BINARY
    elif s.kind in (*OF_NOISE, "TSVGP"):  # which stays Gaussian
        names = [s.likelihood]
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
    forms = [lambda _: Z, lambda _: Z.tolist(), lambda _: InducingPoints(Z.copy())]
    s.model.inducing_variable = drawn(s, forms)
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


def _noise_of_inputs(s: Rows) -> Pair:
    """A constant function of the inputs acts as that number."""
    kernel, alpha = new_kernel(s.rng), float(s.rng.uniform())
    function = FunctionOf(lambda X: 0.3 * tf.ones_like(X[:, :1]))
    found, expected = (
        PEPR((s.X, s.Y), kernel, s.X[:3].copy(), alpha=alpha, likelihood=Gaussian(noise))
        for noise in (function, 0.3)
    )
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


def _one_switch(s: Rows) -> Pair:
    """All rows of one of two likelihoods."""
    kernel, Y = new_kernel(s.rng), np.hstack([s.Y, np.ones_like(s.Y)])
    switched = SwitchedLikelihood([StudentT(), Gaussian(0.1)])
    found = PEP((s.X, Y), kernel, switched, s.X[:3].copy(), tol=1e-9)
    expected = PEP((s.X, s.Y), kernel, Gaussian(0.1), s.X[:3].copy(), tol=1e-9)
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


# --- values ---------------------------------------------------------------------------------------


def _new_lengthscales(s: Model) -> gpflow.kernels.Kernel:
    kernel = s.model.kernel
    kernel.lengthscales.assign(np.full(kernel.lengthscales.shape, s.rng.uniform(0.3, 3.0)))
    return kernel


def _lengthscales(s: Model) -> Pair:
    return s.compared(kernel=_new_lengthscales(s))


def _alpha(s: Model) -> Pair:
    alpha = s.rng.uniform(0.0, 0.6)
    s.model.alpha = drawn(s, [alpha, np.array(alpha), lambda _: tf.constant(alpha, tf.float64)])
    return s.compared(alpha=alpha)


def _scale(s: Model) -> Pair:
    scale = s.rng.uniform(0.5, 2.0)
    parameter = gpflow.Parameter(scale, transform=positive())
    s.model.scale = drawn(s, [scale, tf.constant(scale, tf.float64), parameter])
    return s.compared(scale=scale)


def _fewer_rows(s: Model) -> Pair:
    s.X, s.Y = s.X[:-2], s.Y[:-2]
    s.model.data = drawn(
        s, [(s.X, s.Y), (s.X.tolist(), s.Y.tolist()), (tf.constant(s.X), np.asfortranarray(s.Y))]
    )
    return s.compared(data=(s.X, s.Y))


def _max_jitter(s: Model) -> Pair:
    before = s.numbers()
    s.model.max_jitter = drawn(s, [1e-3, np.float64(1e-2), None])
    return s.numbers(), before


def _copied(s: Model) -> Pair:
    """A new kernel in a copy leaves the model unchanged."""
    before, other = s.numbers(), deepcopy(s.model)
    other.kernel = kernel = new_kernel(s.rng)
    found, expected = s.numbers(other), s.numbers(s.make(kernel=kernel))
    return {**s.numbers(), "copy": found["mean"]}, {**before, "copy": expected["mean"]}


def _pickled(s: Model) -> Pair:
    return s.numbers(pickle.loads(pickle.dumps(s.model))), s.numbers()


def _frozen(s: Model) -> Pair:
    """A copy with constants for parameters, as GPflow recommends for exports."""
    return s.numbers(freeze(s.model)), s.numbers()


def _assigned_from_another(s: Model) -> Pair:
    kernel = deepcopy(s.arguments["kernel"])
    kernel.variance.assign(s.rng.uniform(0.5, 2.0))
    other = s.make(kernel=kernel)
    multiple_assign(s.model, parameter_dict(other))
    return s.numbers(), s.numbers(other)


def _q_mu(s: Model) -> Pair:
    q_mu = s.rng.normal(size=s.arguments["q_mu"].shape)
    s.model.q_mu = drawn(s, [q_mu, q_mu.tolist(), tf.constant(q_mu)])
    return s.compared(q_mu=q_mu)


def _compiled(s: Model) -> Pair:
    """A compiled training loss uses values that are assigned later."""
    loss = s.model.training_loss_closure(*s.batch)
    loss()
    _new_lengthscales(s)
    for name in ("alpha", "scale"):
        if name in s.arguments and np.ndim(s.arguments[name]) == 0:
            setattr(s.model, name, s.rng.uniform(0.5, 0.7))
    if s.kind in (*ONE_BLOCK, *SITES):
        s.model.data = (s.X[:-1], s.Y[:-1])
    return {"loss": loss()}, {"loss": s.model.training_loss(*s.batch)}


def _tensor_for_parameter(s: Model) -> Pair:
    """A tensor is a value that is not trained."""
    kernel, value = deepcopy(s.model.kernel), s.rng.uniform(0.5, 2.0)
    kernel.variance.assign(value)
    s.model.kernel.variance = tf.constant(value, tf.float64)
    return s.compared(kernel=kernel)


# --- refused --------------------------------------------------------------------------------------


def _assigning(name: str, *values: Any) -> Any:
    """Assign one of these values, and compute; put the old one back if only that fails."""

    def act(s: Model) -> None:
        old = getattr(s.model, name)
        setattr(s.model, name, drawn(s, values))
        try:
            s.numbers()
        except Exception:
            setattr(s.model, name, old)
            raise

    return act


_WITH_POWER = models([*ONE_BLOCK[:3], *SITES, "PEPSVGP", "APEP", "ARPEP", "RPAPEP"])
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
    "noise that is a function": Attack(Rows, _noise_of_inputs),
    "rows of one of two likelihoods": Attack(Rows, _one_switch),
    "lengthscales assigned": Attack(models(), _lengthscales),
    "alpha assigned": Attack(_WITH_POWER, _alpha),
    "scale assigned": Attack(
        models([*ONE_BLOCK[:2], "PEP", "PEPClassifier", "PEPSVGP", "ARPEP"]), _scale
    ),
    "data replaced by fewer rows": Attack(models([*ONE_BLOCK, *SITES]), _fewer_rows),
    "max_jitter assigned": Attack(models(), _max_jitter),
    "copied, and the copy changed": Attack(models(), _copied),
    "pickled": Attack(models(), _pickled),
    "frozen": Attack(models(), _frozen),
    "values of another model assigned": Attack(models(), _assigned_from_another),
    "q_mu assigned": Attack(models(MINIBATCH), _q_mu),
    "tensor where the kernel has a parameter": Attack(models(), _tensor_for_parameter),
    "values assigned after compilation": Attack(models(), _compiled),
    "num_latent_gps": Attack(
        models(), _assigning("num_latent_gps", 0, 5, None, "1"), "num_latent_gps"
    ),
    "likelihood of other labels": Attack(
        models(SITES, ["Gaussian", "Student-t"]),
        _assigning("likelihood", Poisson(), Beta()),
        r"likelihood|data\[1\] \(Y\)|\bY\b",
    ),
    "data": Attack(
        models(WITH_DATA),
        _assigning(
            "data",
            lambda s: {"X": s.X, "Y": s.Y},
            lambda s: (s.X[:4], s.Y),
            lambda s: (np.hstack([s.X, s.X]), s.Y),
            lambda s: (s.X, np.hstack([s.Y, s.Y])),
            lambda s: (s.X, s.Y + np.inf),
            lambda s: (s.X.astype("M8[s]"), s.Y),
        ),
        r"data|\b[XY]\b",
    ),
    "labels that the likelihood does not know": Attack(
        models(SITES, [*BINARY, "robust-max"]),
        _assigning("data", lambda s: (s.X, s.Y + 3.0), lambda s: (s.X, s.Y + 0.5)),
        r"\(Y\)",
    ),
}
