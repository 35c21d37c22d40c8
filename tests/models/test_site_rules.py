"""
Subclasses of the public site rules that override one method: the gradient is the derivative of the
objective.

Derivatives by hand assumed the methods of `IndependentSites`: a subclass with another penalty had a
wrong gradient.
"""

import itertools

import gpflow
import pytest
import tensorflow as tf
from differences import assert_gradients
from doubles import double
from gpflow.kernels import Matern52
from numpy.testing import assert_allclose
from refusals import refused
from waves import line, wave

from gpflow_pep.engine import (
    BlockSites,
    IndependentSites,
    Powers,
    SharedBlockSites,
    SiteRule,
    SphericalBlockSites,
    StructuredBlockSites,
)
from gpflow_pep.models.collapsed import CollapsedRegression

X, Y = wave(12, 5)
Z = line(-2.0, 2.0, 4)
ROWS = (SiteRule, IndependentSites)
BLOCKS = (BlockSites, StructuredBlockSites, SphericalBlockSites, SharedBlockSites)


def noise(rule):
    """Site noise that depends on everything that a chunk's rows hold."""

    class Noise(rule):
        def noise(self, D, rows, powers):
            inherited = rows.noise if rule is SiteRule else super().noise(D, rows, powers)
            size = tf.reduce_sum(tf.square(rows.Kuf)) + tf.reduce_sum(tf.square(rows.Kff))
            return inherited * (1.0 + 0.3 * tf.reduce_mean(D) + 0.01 * size)

    return Noise


def penalty(rule):
    class Penalty(with_noise(rule)):
        def penalty(self, D, rows, powers):
            more = tf.reduce_sum(D**2) / rows.noise[0] + tf.reduce_sum(rows.residual**2)
            return super().penalty(D, rows, powers) + more

    return Penalty


def forward(rule):
    class Forward(with_noise(rule)):
        def forward(self, V, D, rows, powers):
            sums = super().forward(V, D, rows, powers)
            more = tf.reduce_sum(V**3) + tf.reduce_sum(D)
            return sums._replace(log_noise=sums.log_noise + more, c=1.5 * sums.c)

    return Forward


def leave_one_out_terms(rule):
    class LeaveOneOut(with_noise(rule)):
        def leave_one_out_terms(self, L, rows, powers):
            raise NotImplementedError

    return LeaveOneOut


def zero(rule):
    class Zero(with_noise(rule)):
        def zero(self, L, num_outputs):
            return super().zero(L, num_outputs)._replace(log_noise=tf.constant(1.0, L.dtype))

    return Zero


def with_noise(rule):
    return noise(rule) if rule is SiteRule else rule


def everything(rule):
    return forward(penalty(noise(rule)))


OVERRIDES = (noise, penalty, forward, leave_one_out_terms, zero)


class Model(CollapsedRegression):
    """A model of a given rule, with the powers of PEP or of the structured blocks."""

    def __init__(self, rule, blocks, **options):
        super().__init__((X, Y), Matern52(1.3, 0.8), Z, noise_variance=0.2, **options)
        self._use_blocks(blocks)
        self.rule = rule

    def site_powers(self):
        return Powers.of_pep(double(0.4))

    def site_rule(self):
        return self.rule(4) if issubclass(self.rule, SharedBlockSites) else self.rule()

    def evidence_penalty(self, row_sums):
        return row_sums.penalty + tf.reduce_sum(row_sums.shared**2)


def test_every_method_is_overridden():
    methods = {
        name
        for rule in (*ROWS, *BLOCKS)
        for name, value in vars(rule).items()
        if callable(value) and not name.startswith("_")
    }
    assert methods == {override.__name__ for override in OVERRIDES}


# Only independent sites have derivatives by hand, which any override must turn off.
@pytest.mark.parametrize(
    ("rule", "override", "chunk_size"),
    [
        *itertools.product([IndependentSites], OVERRIDES, [None, 5]),
        *itertools.product([SiteRule, *BLOCKS], [everything], [5]),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_gradient_is_the_derivative_of_the_objective(rule, override, chunk_size):
    """
    Objectives are of order 100, so that differences over h = 1e-3 err by 100 eps / h = 2e-11 from
    rounding, and from truncation by h^4 F(5)/30 = 3e-14 F(5); Kuu of condition 1e2 amplifies
    neither.
    """
    blocks = 4 if rule in BLOCKS else None
    model = Model(override(rule), blocks, chunk_size=chunk_size)
    variables = model.trainable_variables
    assert_gradients(model.maximum_log_likelihood_objective, variables, h=1e-3, tolerance=1e-7)


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_parameters_of_a_rule_have_their_derivatives(chunk_size):
    """Errors are as above. The variance of the kernel is read by the rule and by the rows."""

    class Damped(IndependentSites):
        def __init__(self, *parameters):
            self.parameters = parameters

        def noise(self, D, rows, powers):
            damping, variance = self.parameters
            return rows.noise * tf.exp(damping * D / (variance + rows.noise))

    class Damping(Model):
        def __init__(self):
            super().__init__(IndependentSites, None, chunk_size=chunk_size)
            self.damping = gpflow.Parameter(0.7)

        def site_rule(self):
            return Damped(self.damping, self.kernel.variance)

    model = Damping()
    objective = model.maximum_log_likelihood_objective
    assert_gradients(objective, model.trainable_variables, h=1e-3, tolerance=1e-7)


def test_a_penalty_is_not_lost_by_terms_of_0():
    """A model that adds nothing to the evidence keeps the penalty of its powers."""

    class Bound(CollapsedRegression):
        def site_powers(self):
            return Powers.of_pep(double(0.0))

        def evidence_terms(self, powers):
            return tf.zeros([], tf.float64)

    model = Bound((X, Y), Matern52(1.3, 0.8), Z, noise_variance=0.2)
    sgpr = gpflow.models.SGPR((X, Y), model.kernel, Z, noise_variance=0.2)
    assert_allclose(float(model.maximum_log_likelihood_objective()), sgpr.elbo(), rtol=1e-10)


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("noise", lambda D, rows, powers: rows.noise[0], r"Wrong.noise must .* \[12\], got \[\]"),
        ("penalty", lambda D, rows, powers: D, r"Wrong.penalty must return the sum .* got \[12\]"),
    ],
)
def test_a_rule_that_returns_another_shape_is_named(method, value, message):
    Wrong = type("Wrong", (IndependentSites,), {method: lambda self, *of: value(*of)})
    with refused(message):
        Model(Wrong, None).training_loss()
