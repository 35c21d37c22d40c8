"""
Settings of two models are equal exactly if their classes, public settings, functions and priors
are.
"""

import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.models import SGPR, SVGP
from own_kernels import repeated, tied
from small_models import (
    LABELS,
    MAKERS,
    Trend,
    X,
    Y,
    Z,
    classifier,
    collapsed,
    kernel,
    of_minibatches,
)

import gpflow_pep
from gpflow_pep.saving.run_identity import differing, run_identity, settings_of


def steep(X, slope=2.0):
    return slope * X[:, :1]


def flat(X):
    return 0.0 * X[:, :1]


class Line:
    def __call__(self, X):
        return X[:, :1]

    def method(self, X):
        return X[:, :1]


FUNCTIONS = {
    "functions": (lambda: steep, lambda: flat),
    "partial": (
        lambda: functools.partial(steep, slope=1.0),
        lambda: functools.partial(steep, slope=4.0),
    ),
    "objects": (Line, lambda: steep),
    "methods": (lambda: Line().method, lambda: Line().__call__),
    "compiled": (lambda: tf.function(steep), lambda: tf.function(flat)),
    "TensorFlow": (lambda: tf.sin, lambda: tf.cos),
    "NumPy": (lambda: np.sin, lambda: np.cos),
    "Python": (lambda: abs, lambda: hash),
    "arrays": (lambda: np.zeros(5000), lambda: np.arange(5000) == 2500),
    "tensors": (lambda: tf.constant(1.0), lambda: tf.constant(2.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_told_apart_by_name(name):
    first, other = FUNCTIONS[name]
    parts = [{"mean": Trend(make()), "links": {"link": make()}} for make in (first, first, other)]
    assert differing(*map(settings_of, parts[:2])) == []
    assert differing(*map(settings_of, parts[1:])) == ["links.link", "mean.trend"]


def test_classes_and_settings_of_parts_are_told_apart():
    kernels = gpflow.kernels
    parts = [
        kernels.SquaredExponential() + kernels.Matern32(),
        kernels.SquaredExponential() + kernels.Matern52(),
        kernels.SquaredExponential(active_dims=[0]) + kernels.Matern32(),
        kernels.SquaredExponential(),
    ]
    settings = [settings_of({"kernel": part}) for part in parts]
    assert differing(settings[0], settings[1]) == ["kernel.kernels.1"]
    assert differing(settings[0], settings[2]) == ["kernel.kernels.0.active_dims"]
    assert "kernel" in differing(settings[0], settings[3])


def test_priors_and_transforms_are_told_apart():
    def prior(mean):
        return tfp.distributions.Normal(np.float64(mean), np.float64(1.0))

    def settings(prior=None, prior_on="constrained", transform=None):
        kernel = SquaredExponential()
        kernel.variance = gpflow.Parameter(1.0, prior=prior, prior_on=prior_on, transform=transform)
        return settings_of(kernel)

    assert differing(settings(prior(0.0)), settings(prior(0.0))) == []
    others = [
        settings(),
        settings(prior(1.0)),
        settings(prior(0.0), "unconstrained"),
        settings(prior(0.0), transform=gpflow.utilities.positive(1e-3)),
    ]
    for other in others:
        assert differing(settings(prior(0.0)), other) == ["variance"]


def test_tied_parameters_and_repeated_parts_are_told_apart():
    assert differing(settings_of(tied("variance")), settings_of(tied("variance"))) == []
    for other in (
        tied("lengthscales"),
        SquaredExponential(1.0, 2.0) + SquaredExponential(2.0, 3.0),
    ):
        assert differing(settings_of(tied("variance")), settings_of(other))
    assert differing(settings_of(repeated(0)), settings_of(repeated(1)))
    assert settings_of(tied("variance"))["kernels.1.variance"] == "same as kernels.0.variance"


def test_parameter_values_are_not_settings():
    kernel = SquaredExponential()
    before = settings_of(kernel)
    kernel.variance.assign(2.0)
    assert settings_of(kernel) == before


# --- runs -----------------------------------------------------------------------------------------


def streaming(count):
    model = gpflow_pep.StreamingSGPR((X[:20], Y[:20]), kernel(), Z)
    for start in range(20, 20 + 20 * count, 20):
        model.update((X[start : start + 20], Y[start : start + 20]))
    return model


def with_alpha(model, alpha):
    model.alpha = alpha
    return model


RUNS = {
    "block labels": (
        lambda: collapsed(gpflow_pep.BTSGPR, blocks=np.arange(60) % 5),
        lambda: collapsed(gpflow_pep.BTSGPR, blocks=np.arange(60) // 12),
        ["model.blocks"],
    ),
    "shared block": (
        lambda: collapsed(gpflow_pep.BTSGPR, blocks=12),
        lambda: collapsed(gpflow_pep.BTSGPR, blocks=12, shared=True),
        ["model.shared"],
    ),
    **{
        f"alpha of {name}": (
            MAKERS[name],
            lambda name=name: with_alpha(MAKERS[name](), 0.9),
            ["model.alpha"],
        )
        for name in ("APEP", "PEPSVGP", "PEPClassifier", "StreamingSGPR")
    },
    "projection": (classifier, lambda: classifier(projection="wasserstein"), ["model.projection"]),
    "tolerance": (classifier, lambda: classifier(tol=1e-5), ["model.tol"]),
    "whitening": (
        MAKERS["SVGP"],
        lambda: of_minibatches(SVGP, whiten=False),
        ["model.whiten"],
    ),
    "number of rows": (
        lambda: gpflow_pep.TSVGP(kernel(), Gaussian(), Z, num_data=60),
        lambda: gpflow_pep.TSVGP(kernel(), Gaussian(), Z, num_data=61),
        ["model.num_data"],
    ),
    "data": (
        lambda: SGPR((X, Y), kernel(), Z),
        lambda: SGPR((X, LABELS), kernel(), Z),
        ["data"],
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_told_apart_whatever_their_parameters(name):
    make, other, expected = RUNS[name]
    data = None if hasattr(make(), "data") else (X, Y)
    first = make()
    again = make()
    for variable in again.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    assert run_identity(first, data) == run_identity(again, data)
    assert differing(run_identity(first, data), run_identity(other(), data)) == expected


def test_a_stream_with_another_old_posterior_is_another_run():
    first = streaming(1)
    again = streaming(1)
    later = streaming(2)
    assert run_identity(first, None) == run_identity(again, None)
    assert differing(run_identity(first, None), run_identity(later, None)) == [
        "data",
        "model.old_posterior",
    ]


@pytest.mark.parametrize("name", ["PEPR", "PEPClassifier", "SGPR", "SVGP"])
def test_private_attributes_and_use_do_not_change_a_run(name):
    model = MAKERS[name]()
    data = None if hasattr(model, "data") else (X, Y)
    before = run_identity(model, data)
    model._calls = 1
    model.kernel._note = "private"
    model.predict_f(X)
    model.training_loss(*([] if data is None else [data]))
    assert run_identity(model, data) == before
    model.calls = 1
    assert differing(run_identity(model, data), before) == ["model.calls"]
