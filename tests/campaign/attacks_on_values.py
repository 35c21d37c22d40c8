"""
Attacks on the values of models: parameters, settings and data are assigned, copied or damaged.
"""

import pickle
from copy import deepcopy

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.utilities import freeze, multiple_assign, parameter_dict, positive

from campaign.attack_subjects import (
    BINARY,
    MINIBATCH,
    OF_NOISE,
    ONE_BLOCK,
    SITES,
    WITH_DATA,
    Attack,
    Attacks,
    Model,
    Pair,
    assigning,
    drawn,
    models,
    new_kernel,
    replace,
)


def _lengthscales(s: Model) -> Pair:
    kernel = s.model.kernel
    kernel.lengthscales.assign(np.full(kernel.lengthscales.shape, s.rng.uniform(0.3, 3.0)))
    return s.compared(kernel=kernel)


def _alpha(s: Model) -> Pair:
    alpha = s.rng.uniform(0.0, 0.6)
    s.model.alpha = drawn(s, [alpha, np.array(alpha), lambda _: tf.constant(alpha, tf.float64)])
    return s.compared(alpha=alpha)


def _scale(s: Model) -> Pair:
    scale = s.rng.uniform(0.5, 2.0)
    given = [
        scale,
        np.float64(scale),
        tf.constant(scale, tf.float64),
        gpflow.Parameter(scale, transform=positive()),
    ]
    s.model.scale = drawn(s, given)
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
    s.model.kernel.lengthscales.assign(
        np.full(s.model.kernel.lengthscales.shape, s.rng.uniform(0.3, 3.0))
    )
    for name in ("alpha", "scale"):
        if name in s.arguments and np.ndim(s.arguments[name]) == 0:
            setattr(s.model, name, s.rng.uniform(0.5, 0.7))
    if s.kind in (*ONE_BLOCK, *SITES):
        s.model.data = (s.X[:-1], s.Y[:-1])
    return {"loss": loss()}, {"loss": s.model.training_loss(*s.batch)}


_NUMBERS = (0.7, 1, np.float64(0.7), np.array([0.7]), [0.7], tf.constant(0.7, tf.float32))


def _number_for_parameter(s: Model) -> None:
    replace(s, s.model.kernel, drawn(s, ["variance", "lengthscales"]), drawn(s, _NUMBERS))


def _number_for_noise(s: Model) -> None:
    replace(s, s.model.likelihood, "variance", drawn(s, _NUMBERS))


def _tensor_for_parameter(s: Model) -> Pair:
    """A tensor is a value that is not trained."""
    kernel, value = deepcopy(s.model.kernel), s.rng.uniform(0.5, 2.0)
    kernel.variance.assign(value)
    s.model.kernel.variance = tf.constant(value, tf.float64)
    return s.compared(kernel=kernel)


def _nan_in_data(s: Model) -> None:
    """Assign to the variable, past the check of data."""
    Y = s.Y.copy()
    Y[0] = np.nan
    s.model.data[1].assign(Y)
    try:
        s.numbers()
    finally:
        s.model.data[1].assign(s.Y)


ATTACKS: Attacks = {
    "lengthscales assigned": Attack(models(), _lengthscales),
    "alpha assigned": Attack(
        models([*ONE_BLOCK[:3], *SITES, "PEPSVGP", "APEP", "ARPEP", "RPAPEP"]), _alpha
    ),
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
        models(), assigning("num_latent_gps", 0, 5, None, "1"), "num_latent_gps"
    ),
    "max_jitter": Attack(
        models(),
        assigning("max_jitter", 0, -1, 1e-12, np.nan, np.inf, "a", [1e-3], True),
        "max_jitter",
    ),
    "scale": Attack(
        models([*ONE_BLOCK[:2], *SITES[:2], "PEPSVGP", "ARPEP"]),
        assigning(
            "scale",
            0,
            -1.0,
            np.nan,
            np.inf,
            None,
            "x",
            True,
            1j,
            [1.0, 2.0],
            lambda s: tf.Variable(2.0, dtype=tf.float64),
            lambda s: gpflow.Parameter(-1.0),
        ),
        "scale",
    ),
    "alpha": Attack(
        models([*ONE_BLOCK[:3], *SITES, "PEPSVGP", "APEP", "ARPEP", "RPAPEP"]),
        assigning(
            "alpha",
            None,
            "half",
            "0.5",
            2,
            -0.1,
            np.nan,
            True,
            1j,
            [0.5, 0.5, 0.5],
            [[0.1]],
            lambda s: gpflow.Parameter(0.5),
            lambda s: np.ma.MaskedArray([0.5], mask=[True]),
        ),
        "alpha",
    ),
    "number where the kernel has a parameter": Attack(
        models(), _number_for_parameter, r"(variance|lengthscales).*\.assign"
    ),
    "number where the noise is a parameter": Attack(
        models(OF_NOISE), _number_for_noise, r"variance.*\.assign"
    ),
    "data": Attack(
        models(WITH_DATA),
        assigning(
            "data",
            None,
            "xy",
            lambda s: s.X,
            lambda s: (s.X,),
            lambda s: (s.X, s.Y, s.Y),
            lambda s: {"X": s.X, "Y": s.Y},
            lambda s: (s.X, None),
            lambda s: (s.X, s.Y[:, 0]),
            lambda s: (s.X[:4], s.Y),
            lambda s: (s.X[:0], s.Y[:0]),
            lambda s: (np.hstack([s.X, s.X]), s.Y),
            lambda s: (s.X, np.hstack([s.Y, s.Y])),
            lambda s: (s.X + 1j, s.Y),
            lambda s: (s.X * np.nan, s.Y),
            lambda s: (s.X, s.Y + np.inf),
            lambda s: (s.X.astype(str), s.Y),
            lambda s: (s.X.astype("M8[s]"), s.Y),
            lambda s: (s.X, np.ma.MaskedArray(s.Y, mask=s.Y.max() <= s.Y)),
        ),
        r"data|\b[XY]\b",
    ),
    "labels that the likelihood does not know": Attack(
        models(SITES, [*BINARY, "robust-max"]),
        assigning(
            "data",
            lambda s: (s.X, s.Y + 3.0),
            lambda s: (s.X, s.Y + 0.5),
            lambda s: (s.X, -3.0 - s.Y),
        ),
        r"\(Y\)",
    ),
    "NaN in the variable of Y": Attack(models(WITH_DATA), _nan_in_data, r"\bY\b|finite"),
    "num_data": Attack(
        models(MINIBATCH), assigning("num_data", 0, -1, 1.5, "60", None, np.nan, True), "num_data"
    ),
    "q_mu of another shape": Attack(
        models(MINIBATCH),
        assigning("q_mu", np.zeros((9, 1)), 0.0, None, lambda s: np.zeros(2)),
        "q_mu",
    ),
}
