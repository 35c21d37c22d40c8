"""
The first calls of a model converge its sites without a graph: to the same results, and while that
is less work.

Sums in another order: 1e-12 leaves room for the condition of Kuu, 1e2, and for sites that converge
to 1e-6.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close
from gpflow.kernels import Matern52
from model_values import loss_and_gradient
from numpy.testing import assert_array_equal
from refusals import stopped
from waves import line, signs, wave

from gpflow_pep import PEP, PEPClassifier
from gpflow_pep.ep import inference

X, LABELS = signs(30, 12, noise=0.4)
COUNTS = np.floor(np.exp(wave(30, 12)[1]))
Z = line(-1.8, 1.8, 5)


def classifier(**options):
    return PEPClassifier((X, LABELS), Matern52(), inducing_variable=Z, **options)


class OwnDensity(gpflow.likelihoods.Exponential):
    """Differentiated by tapes, since no rule knows it."""


MODELS = {
    "labels": classifier,
    "bound": lambda: classifier(alpha=0.0),
    "chunks": lambda: classifier(chunk_size=15),
    "wasserstein": lambda: classifier(projection="wasserstein"),
    "density of its own": lambda: PEP((X, COUNTS + 0.5), Matern52(), OwnDensity(), Z),
    "three classes": lambda: PEPClassifier((X, COUNTS % 3), Matern52(), inducing_variable=Z),
}


def is_traced(model):
    return model._converge_step.func.experimental_get_tracing_count() > 0


def results(model):
    return [
        model.training_loss(),
        *model.predict_f(X[:3]),
        *model.predict_y(X[:3]),
        model.sites.stacked(),
    ]


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_graph(name):
    first = MODELS[name]()
    compiled = MODELS[name]()
    compiled._eager_sweeps = 0
    assert_all_close(results(first), results(compiled), rtol=1e-12, atol=1e-12)
    assert not is_traced(first) and is_traced(compiled)
    assert first.sites_status.sweeps == compiled.sites_status.sweeps


def test_derivatives_are_compiled(monkeypatch):
    """With the energy, once. Calls without a tape go on without a graph."""
    model = classifier()
    traced = []
    solve = inference.solve_fixed_point
    monkeypatch.setattr(
        inference, "solve_fixed_point", lambda *a, **k: traced.append(a) or solve(*a, **k)
    )
    for _ in range(2):
        assert all(np.all(np.isfinite(each)) for each in loss_and_gradient(model)[1])
    tf.function(model.training_loss, autograph=False)()
    assert len(traced) == 1
    model.update_sites()
    assert not is_traced(model)


def test_unfinished_eager_solve_restarts_in_a_graph():
    """From the sites that there were: the number of sweeps is that of a graph."""
    model = classifier(tol=1e-9)
    compiled = classifier(tol=1e-9)
    model._eager_sweeps, compiled._eager_sweeps = 4, 0
    assert model.update_sites().sweeps == compiled.update_sites().sweeps > 4
    assert is_traced(model) and model._eager_sweeps == 0


def test_an_error_names_the_matrix_and_keeps_the_sites():
    model = classifier()
    model.update_sites()
    before = model.sites.stacked().numpy()
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with stopped("Kuu has size 5 x 5, 25 of its entries are not finite"):
        model.update_sites()
    assert not is_traced(model)
    assert_array_equal(model.sites.stacked(), before)
