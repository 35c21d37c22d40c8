"""
Attacks on the constructors: arguments, likelihoods and noise of one's own, and kernels of other
columns.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Ordinal, ScalarLikelihood, StudentT, SwitchedLikelihood

from campaign.attack_subjects import (
    COLLAPSED,
    MINIBATCH,
    OF_NOISE,
    SITES,
    WITH_DATA,
    Attack,
    Attacks,
    FunctionOf,
    Model,
    Pair,
    Rows,
    drawn,
    masked,
    models,
    new_kernel,
)
from gpflow_pep import ARPEP, PEP, PEPR, TSVGP, CenteredLinear


def _making(name: str, *values: Any) -> Callable[[Model], None]:
    """Construct a model with one of these values of an argument."""

    def act(s: Model) -> None:
        s.make(**{name: drawn(s, values)}).maximum_log_likelihood_objective(*s.batch)

    return act


def _order_of_svgp(s: Model) -> None:
    """Construct a model that holds data as SVGP is constructed."""
    kernel = new_kernel(s.rng)
    data = s.arguments["data"]
    further = drawn(s, [{"num_data": len(s.X)}, {}])
    type(s.model)(kernel, s.model.likelihood, s.model.inducing_variable, data, **further)


def _noise_and_likelihood(s: Model) -> None:
    s.make(noise_variance=0.1)


def _noise(s: Model) -> None:
    likelihood = s.arguments.pop("likelihood")
    try:
        s.make(noise_variance=drawn(s, [0.0, -1.0, np.nan, np.inf, "a", [0.1, 0.2], True]))
    finally:
        s.arguments["likelihood"] = likelihood


class _Own(ScalarLikelihood):
    """A likelihood of a given log density."""

    def __init__(self, log_prob: Callable[[Any, Any], Any]):
        super().__init__()
        self._density = log_prob

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        return self._density(F, Y)

    def _conditional_mean(self, X: Any, F: Any) -> Any:
        return F

    def _conditional_variance(self, X: Any, F: Any) -> Any:
        return tf.ones_like(F)


def _own_likelihood(s: Rows) -> Pair:
    """A Gaussian density, written anew."""
    kernel, alpha = new_kernel(s.rng), float(s.rng.uniform(0.0, 0.6))
    own = _Own(lambda F, Y: -0.5 * (Y - F) ** 2 / 0.3 - 0.5 * np.log(2.0 * np.pi * 0.3))
    found, expected = (
        PEP((s.X, s.Y), kernel, likelihood, s.X[:3].copy(), alpha=alpha, tol=1e-9)
        for likelihood in (own, Gaussian(0.3))
    )
    return {"loss": found.training_loss(), "mean": found.predict_f(s.Xnew)[0]}, {
        "loss": expected.training_loss(),
        "mean": expected.predict_f(s.Xnew)[0],
    }


def _wrong_likelihood(s: Rows) -> None:
    """A log density of another shape or type, or NaN."""
    densities: list[Callable[[Any, Any], Any]] = [
        lambda F, Y: -tf.reduce_sum((F - Y) ** 2),
        lambda F, Y: F * np.nan,
        lambda F, Y: tf.cast(-((F - Y) ** 2), tf.float32),
    ]
    own = _Own(densities[int(s.rng.integers(len(densities)))])
    if s.rng.uniform() < 0.5:
        PEP((s.X, s.Y), new_kernel(s.rng), own, s.X[:3].copy()).training_loss()
    else:
        ARPEP(new_kernel(s.rng), own, s.X[:3].copy(), num_data=len(s.X)).training_loss((s.X, s.Y))


def _noise_of_inputs(s: Rows) -> Pair:
    """A constant function of the inputs acts as that number."""
    kernel, alpha = new_kernel(s.rng), float(s.rng.uniform())
    function = FunctionOf(lambda X: 0.3 * tf.ones_like(X[:, :1]))
    found, expected = (
        PEPR(
            (s.X, s.Y), kernel, s.X[:3].copy(), alpha=alpha, likelihood=Gaussian(variance=variance)
        )
        for variance in (function, 0.3)
    )
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


def _wrong_noise(s: Rows) -> None:
    functions: list[Callable[[Any], Any]] = [
        lambda X: tf.cast(X[:, :1], tf.float32) ** 2,
        lambda X: X[:, :1] * np.nan,
        lambda X: tf.ones([3, 7], tf.float64),
    ]
    likelihood = Gaussian(variance=FunctionOf(functions[int(s.rng.integers(len(functions)))]))
    PEPR((s.X, s.Y), new_kernel(s.rng), s.X[:3].copy(), likelihood=likelihood).training_loss()


def _ordinal(s: Rows) -> None:
    """Labels of no bin, or edges that do not increase."""
    labels = np.digitize(s.f, [-0.4, 0.4]).astype(float)
    edges, shift = drawn(
        s, [([-0.4, 0.4], 1.0), ([-0.4, 0.4], 0.5), ([0.4, -0.4], 0.0), ([0.4, 0.4], 0.0)]
    )
    PEP(
        (s.X, labels + shift), new_kernel(s.rng), Ordinal(np.array(edges)), s.X[:3].copy()
    ).training_loss()


def _switched(s: Rows) -> None:
    """An index of no likelihood, or none."""
    index = np.arange(len(s.X))[:, None] % 2
    index[1] = drawn(s, [2, -1])
    Y = drawn(s, [np.hstack([s.Y, index]), s.Y, np.hstack([s.Y, index % 2 + 0.5])])
    PEP(
        (s.X, Y), new_kernel(s.rng), SwitchedLikelihood([Gaussian(0.1), StudentT()]), s.X[:3].copy()
    ).training_loss()


def _one_switch(s: Rows) -> Pair:
    """All rows of one of two likelihoods."""
    kernel, Y = new_kernel(s.rng), np.hstack([s.Y, np.ones_like(s.Y)])
    found = PEP(
        (s.X, Y), kernel, SwitchedLikelihood([StudentT(), Gaussian(0.1)]), s.X[:3].copy(), tol=1e-9
    )
    expected = PEP((s.X, s.Y), kernel, Gaussian(0.1), s.X[:3].copy(), tol=1e-9)
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


def _category_without_column(s: Rows) -> None:
    """A kernel of categories in a column that the rows do not have."""
    kernel = gpflow.kernels.Matern32(active_dims=[0]) * gpflow.kernels.Coregion(
        2, 1, active_dims=[3]
    )
    calls = (
        lambda: PEPR((s.X, s.Y), kernel, s.X[:3]),
        lambda: TSVGP(kernel, Gaussian(), s.X[:3], num_data=len(s.X)),
        lambda: setattr(PEPR((s.X, s.Y), new_kernel(s.rng), s.X[:3]), "kernel", kernel),
    )
    calls[int(s.rng.integers(len(calls)))]()


def _centered(s: Rows) -> None:
    """Construct a linear kernel of wrong numbers, or assign a scale that is not positive."""
    wrong: list[dict[str, Any]] = [
        {"center": [np.nan, 0.0]},
        {"center": [0.0, np.inf]},
        {"center": [[0.0, 1.0]]},
        {"center": 0.0},
        {"center": None},
        {"center": "origin"},
        {"scale": 0.0},
        {"scale": [1.0, -1.0]},
        {"scale": np.nan},
        {"scale": np.inf},
        {"scale": [1.0, 2.0, 3.0]},
        {"scale": True},
        {"variance": -1.0},
        {"variance": [1.0, 2.0, 3.0]},
        {"active_dims": [0]},
        {},
    ]
    kernel = CenteredLinear(**{"center": [0.0, 1.0], **drawn(s, wrong)})
    kernel.scale.assign(drawn(s, [-1.0, np.nan]))


def _columns_of_center(s: Rows) -> None:
    """Evaluate a kernel with a center of another number of columns."""
    CenteredLinear(np.zeros(3))(s.X)


ATTACKS: Attacks = {
    "own likelihood": Attack(Rows, _own_likelihood),
    "noise that is a function": Attack(Rows, _noise_of_inputs),
    "rows of one of two likelihoods": Attack(Rows, _one_switch),
    "data": Attack(
        models(WITH_DATA),
        _making(
            "data",
            None,
            "xy",
            lambda s: s.X,
            lambda s: (s.X, s.Y, s.Y),
            lambda s: (s.X, s.Y[:2]),
            lambda s: (s.X * np.nan, s.Y),
            lambda s: (s.X, s.Y[:, 0]),
            lambda s: (s.X[:0], s.Y[:0]),
            lambda s: (masked(s.X), s.Y),
            lambda s: (s.X, masked(s.Y)),
        ),
        r"data|\b[XY]\b",
    ),
    "order of SVGP": Attack(
        models(WITH_DATA), _order_of_svgp, "^data must come first, got a kernel or num_data"
    ),
    "kernel": Attack(
        models(), _making("kernel", None, "rbf", 3.0, gpflow.kernels.Matern32), "kernel"
    ),
    "likelihood": Attack(
        models(), _making("likelihood", "probit", 1.0, gpflow.likelihoods.Bernoulli), "likelihood"
    ),
    "inducing variable": Attack(
        models(),
        _making("inducing_variable", None, "kmeans", 5, lambda s: s.X[0], lambda s: s.X[:0]),
        "inducing_variable",
    ),
    "booleans of minibatch models": Attack(
        models(MINIBATCH), _making("whiten", "no", 1, None, np.nan), "whiten must be True or False"
    ),
    "booleans of collapsed models": Attack(
        models(["PEPR", "PEPR scale", "TSGPR"]),
        _making("mixed_precision", "no", 1, None),
        "mixed_precision must be True or False",
    ),
    "shared noise": Attack(
        models(["StreamingSGPR"]),
        _making("shared_noise", "yes", 1, None, [True]),
        "shared_noise must be True or False",
    ),
    "centered linear kernel": Attack(
        Rows, _centered, "^(center|scale|variance) must|active_dims|incompatible with this"
    ),
    "centered linear kernel of other columns": Attack(Rows, _columns_of_center, "center"),
    "alpha": Attack(
        models([*COLLAPSED[:3], *SITES]),
        _making("alpha", -0.1, 2, None, np.nan, "x", True),
        "alpha",
    ),
    "scale": Attack(
        models(["PEPR", "PEP", "PEPSVGP", "ARPEP"]),
        _making("scale", 0, -1.0, np.nan, "x", True),
        "scale",
    ),
    "blocks": Attack(
        models(["PEPR", "BTSGPR"]),
        _making(
            "blocks",
            0,
            -1,
            2.5,
            "all",
            [0, 1],
            lambda s: [np.array([0]), np.array([0])],
            lambda s: [np.array([99])],
        ),
        "blocks",
    ),
    "chunk size": Attack(
        models(WITH_DATA), _making("chunk_size", 0, -1, 2.5, True, "all"), "chunk_size"
    ),
    "max_jitter": Attack(
        models(WITH_DATA), _making("max_jitter", 0, -1, 1e-12, np.nan, "a"), "max_jitter"
    ),
    "noise and likelihood": Attack(
        models(COLLAPSED), _noise_and_likelihood, "noise_variance and likelihood"
    ),
    "noise": Attack(models(COLLAPSED), _noise, "noise_variance"),
    "tolerance of sites": Attack(models(SITES), _making("tol", 0, -1, np.nan, "a", None), "tol"),
    "sweeps": Attack(models(SITES), _making("max_sweeps", 0, 1.5, "a", None, 2**40), "max_sweeps"),
    "damping": Attack(models(SITES), _making("damping", 0, 1.5, "a", None, np.nan), "damping"),
    "projection": Attack(
        models(SITES), _making("projection", "wasserstien", 3, None), "projection"
    ),
    "num_data": Attack(models(MINIBATCH), _making("num_data", 0, -1, 1.5, "60"), "num_data"),
    "q_mu and q_sqrt": Attack(
        models(MINIBATCH),
        lambda s: s.make(**{drawn(s, ["q_mu", "q_sqrt"]): np.zeros((9, 9))}),
        "q_mu|q_sqrt",
    ),
    "likelihood without Gaussian noise": Attack(
        models(OF_NOISE),
        _making("likelihood", lambda s: StudentT(), lambda s: gpflow.likelihoods.Poisson()),
        "likelihood",
    ),
    "own likelihood of another shape": Attack(
        Rows, _wrong_likelihood, "likelihood|log p|objective"
    ),
    "noise of another shape": Attack(
        Rows, _wrong_noise, "likelihood: the noise function|not finite"
    ),
    "ordinal labels": Attack(Rows, _ordinal, r"\(Y\)|bin_edges"),
    "index of a likelihood": Attack(Rows, _switched, r"\(Y\)"),
    "category without its column": Attack(Rows, _category_without_column, "kernel|Coregion"),
}
