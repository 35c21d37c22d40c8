"""
The registry of tilted rules: the examples of CONTRIBUTING.md, executed, and rejected registrations.

Closed forms agree with GPflow's Gaussian of variance 1 to rounding, 1e-12, and with quadrature to
its 1e-8.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from differences import derivative
from doubles import double
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gamma, Gaussian, MultiClass, Poisson, Softmax, StudentT
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from tilted_rules import observed

from gpflow_pep import PEPR
from gpflow_pep.likelihoods import Probit
from gpflow_pep.tilted import (
    KL,
    AtPower,
    Cavity,
    LogDensity,
    Projection,
    QuadratureRule,
    Wasserstein,
    log_density,
    log_partition,
    rule,
    rule_for,
    tilted_rule,
)
from gpflow_pep.tilted.blocks import ProductRule, block_rule
from gpflow_pep.tilted.wasserstein import WassersteinRule

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
POWERS = (0.0, 0.3, 1.0)
MIXED = np.array([0.0, 0.5, 1.0, 0.5, 0.0, 1.0])
rng = np.random.default_rng(131)
CAVITY = Cavity(double(rng.normal(size=(1, 6))), double(rng.uniform(0.1, 4.0, (1, 6))))


@pytest.fixture
def registered():
    """A namespace in which to execute examples; their registrations are undone."""
    functions = dict(tilted_rule.funcs)
    names = dict(rule._PROJECTIONS)
    yield {}
    rule._PROJECTIONS.clear()
    rule._PROJECTIONS.update(names)
    tilted_rule.funcs.clear()
    tilted_rule._cache.clear()
    for signature, function in functions.items():
        tilted_rule.add(signature, function)


def examples():
    section = (
        CONTRIBUTING.read_text()
        .split("## Adding a likelihood or a projection")[1]
        .split("\n## ")[0]
    )
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def moments(rule, Y, alpha, cavity=CAVITY):
    return np.concatenate(rule.moments(cavity, observed(Y[:, None]), double(alpha)))


@pytest.mark.parametrize("alpha", [*POWERS, pytest.param(MIXED, id="mixed")])
def test_registers_a_closed_form(registered, alpha):
    exec(examples()[0], registered)
    likelihood = registered["UnitNoise"]()
    rule = rule_for(likelihood, "kl")
    Y = rng.normal(size=6)
    found = moments(rule, Y, alpha)
    expected = moments(rule_for(Gaussian(1.0), KL()), Y, alpha)
    assert_allclose(found, expected, rtol=1e-12)


def test_registers_a_projection(registered):
    for example in examples():
        exec(example, registered)
    likelihood = StudentT(scale=0.2)
    Y = 6.0 * rng.normal(size=6)
    kl, narrowing = (rule_for(likelihood, name) for name in ("kl", "narrowing"))
    found, expected = (moments(rule, Y, 1.0) for rule in (narrowing, kl))
    assert np.any(expected[2] > 0.0)  # likelihoods that widen a cavity are among them
    assert_array_equal(found[:2], expected[:2])
    assert_array_equal(found[2:], np.minimum(expected[2:], [[0.0], [1.0]]))
    assert_array_equal(moments(rule_for(likelihood, registered["Narrowing"]()), Y, 1.0), found)
    with refused("projection must be one of 'kl', 'wasserstein', 'narrowing', got 'laplace'"):
        rule_for(likelihood, "laplace")
    with refused("projection must be one of 'kl', 'wasserstein', 'narrowing' for StudentT"):
        tilted_rule(likelihood, type("Unregistered", (Projection,), {})())


def test_rejects_duplicate_projection_names(registered):
    with refused("name must be unique, got 'kl', the name of KL"):
        type("Other", (Projection,), {"name": "kl"})


def test_subclass_does_not_inherit_registered_log_density():
    """
    A subclass that overrides ``_scalar_log_prob`` does not use the registration of its base class.
    """

    class Shifted(StudentT):
        def _scalar_log_prob(self, X, F, Y):
            return super()._scalar_log_prob(X, F - 1.0, Y)

    class Same(StudentT):
        pass

    f = double([[0.3]])
    zero = double([[0.0]])
    base, same = (log_density(kind()).log_prob(f, zero, zero) for kind in (StudentT, Same))
    assert base == same
    assert_allclose(log_density(Shifted()).log_prob(f + 1.0, zero, zero), base, rtol=1e-12)

    @log_density.register(Shifted)
    def _(likelihood):
        return LogDensity(lambda F, X, Y: -tf.square(F))

    assert_allclose(log_density(Shifted())(f, zero, zero).curvature, -2.0, rtol=1e-6)


@pytest.mark.parametrize("base", [Gaussian, Probit, Poisson])
def test_subclass_does_not_inherit_closed_forms(base):
    """If it overrides ``_scalar_log_prob``."""

    class Halved(base):
        def _scalar_log_prob(self, X, F, Y):
            return 0.5 * super()._scalar_log_prob(X, F, Y)

    assert isinstance(tilted_rule(Halved(), KL()), QuadratureRule)
    assert isinstance(tilted_rule(Halved(), Wasserstein()), WassersteinRule)
    assert isinstance(block_rule(Halved(), 2), ProductRule)
    Y = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    for alpha in (0.0, 0.5):
        found = moments(rule_for(Halved(), "kl"), Y, 2.0 * alpha)
        log_partition, *_ = moments(rule_for(base(), "kl"), Y, alpha)
        assert_allclose(found[0], 0.5 * log_partition, rtol=1e-8)
    if base is Gaussian:
        with refused("got Halved, which overrides _scalar_log_prob: use gpflow_pep.PEP"):
            PEPR((Y[:, None], Y[:, None]), SquaredExponential(), Y[:1, None], likelihood=Halved())


# --- a power per row ------------------------------------------------------------------------------

KINDS = {
    "probit": (Probit, lambda: rng.integers(0, 2, 6)),
    "poisson": (Poisson, lambda: rng.poisson(3.0, 6)),
    "student t": (StudentT, lambda: rng.normal(size=6)),
    "gaussian": (Gaussian, lambda: rng.normal(size=6)),
}


def assert_rows_are_as_alone(rule, Y, cavity=CAVITY):
    """
    Each row equals the result with its power for all rows, up to the order of sums: 100 roundings.
    """
    together = moments(rule, Y, MIXED, cavity)
    for alpha in np.unique(MIXED):
        of_alpha = alpha == MIXED
        alone = moments(rule, Y, alpha, cavity)
        assert_allclose(together[:, of_alpha], alone[:, of_alpha], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("projection", ["kl", "wasserstein"])
@pytest.mark.parametrize("name", KINDS)
def test_alpha_per_row(name, projection):
    make, observe = KINDS[name]
    assert_rows_are_as_alone(rule_for(make(), projection), observe())


@pytest.mark.parametrize("make", [lambda: Softmax(3), lambda: MultiClass(3)])
def test_alpha_per_row_multiclass(make):
    cavity = Cavity(double(rng.normal(size=(3, 6))), double(rng.uniform(0.1, 4.0, (3, 6))))
    assert_rows_are_as_alone(rule_for(make(), "kl"), rng.integers(0, 3, 6), cavity)


def test_closed_form_rows_do_not_affect_other_rows():
    """
    exp(m + v/2) overflows at α = 0, without effect on rows with α = 1/2 or on gradients of
    parameters.
    """
    likelihood = Gamma(shape=2.0)
    rule = rule_for(likelihood, "kl")
    shape = likelihood.shape.unconstrained_variable
    cavity = Cavity(double([[-0.5, 0.3]]), double([[2000.0, 1.0]]))
    observations = observed([[1.0], [2.0]])
    alpha = double([0.5, 0.0])

    def total(_):
        return tf.reduce_sum(log_partition(rule, cavity, observations, alpha))

    assert np.isfinite(total(shape)) and np.isfinite(derivative(total, shape))
    first = Cavity(*(value[:, :1] for value in cavity))
    both = np.stack(rule.moments(cavity, observations, alpha))
    alone = np.stack(rule.moments(first, observed([[1.0]]), alpha[:1]))
    assert_allclose(both[..., :1], alone, rtol=1e-8)
    assert np.all(np.isfinite(both))


def test_closed_form_is_used_at_its_power_only():
    """Also in compiled graphs, in which the power is a tensor."""
    likelihood = Probit()
    Y = rng.integers(0, 2, 6)
    assert isinstance(tilted_rule(likelihood, KL()), AtPower)
    # log Z and d1 equal the KL values.
    quadrature = moments(rule_for(likelihood, "wasserstein"), Y, MIXED)[:2]
    assert_allclose(moments(rule_for(likelihood, "kl"), Y, MIXED)[:2], quadrature, rtol=1e-8)
    assert isinstance(tilted_rule(StudentT(), KL()), QuadratureRule)
