"""
Rules for tilted distributions against one another: derivatives, limits, closed forms, kinds of
likelihoods.

EXACT: two ways to the same number, quadrature's 1e-8 at worst, 1e-10 and better for the smooth
cases here; 1e-9. Central differences with step h = 2e-4 in units of the cavity err by h²/6 times a
third derivative, up to ten times the first, 7e-8, and by 2e-13/h = 1e-9 for rounding of values good
to 1e-13: DIFFERENCE 1e-6. They are compared with the largest of the rows.
"""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from doubles import double
from gpflow.functions import Linear
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Ordinal,
    Poisson,
    StudentT,
    SwitchedLikelihood,
)
from numpy.testing import assert_allclose
from quick import partly_slow
from tilted_references import poisson, tilted
from tilted_rules import PROJECTIONS, given, moments, observed
from waves import line

from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.tilted import KL, Cavity, QuadratureRule, tilted_rule

EXACT = 1e-9
DIFFERENCE = 1e-6
STEP = 2e-4

MEANS = np.array([-2.0, -0.3, 0.0, 0.8, 1.7, 3.0])
VARIANCES = np.array([0.02, 0.5, 4.0, 1.3, 9.0, 0.2])

LIKELIHOODS = {
    "probit": (Probit, 1.0),
    "logit": (Logit, 0.0),
    "bernoulli": (Bernoulli, 1.0),
    "bernoulli sigmoid": (lambda: Bernoulli(invlink=tf.sigmoid), 1.0),
    "poisson": (lambda: Poisson(binsize=0.7), 3.0),
    "poisson softplus": (lambda: Poisson(invlink=tf.nn.softplus), 2.0),
    "gaussian": (lambda: Gaussian(0.3), 0.4),
    "student t": (lambda: StudentT(scale=0.4), 0.5),
    "ordinal": (lambda: Ordinal(np.array([-1.0, 0.5])), 1.0),
    "ordinal, last": (lambda: Ordinal(np.array([-1.0, 0.5])), 2.0),
    "gamma": (lambda: Gamma(shape=2.5), 1.2),
    "exponential": (Exponential, 0.6),
    "beta": (lambda: Beta(scale=3.0), 0.3),
}
FEW = ["probit", "poisson", "gaussian", "student t", "ordinal", "beta"]
named = partly_slow("name", LIKELIHOODS, quick=FEW)
powers = pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])


def assert_close(found, expected, tolerance):
    """Each quantity relative to the largest of the rows."""
    for name in found._fields:
        one = getattr(found, name)
        other = getattr(expected, name)
        assert_allclose(one, other, rtol=0.0, atol=tolerance * np.max(np.abs(other)), err_msg=name)


# --- derivatives ----------------------------------------------------------------------------------


@named
@powers
def test_cavity_gradients_match_finite_differences(name, alpha):
    """d1 and d2 in m, (d2 + α d1²)/2 in v, and the variance ratio."""
    make, y = LIKELIHOODS[name]
    rule = tilted_rule(make(), KL())
    h = STEP * np.sqrt(VARIANCES)

    mean = np.concatenate([MEANS, MEANS - h, MEANS + h, MEANS, MEANS])
    variance = np.concatenate(
        [*[VARIANCES] * 3, VARIANCES * (1.0 - STEP), VARIANCES * (1.0 + STEP)]
    )
    found = moments(rule, y, mean, variance, alpha)
    here, left, right, less, more = (
        type(found)(*(part[first : first + 6] for part in found)) for first in range(0, 30, 6)
    )
    pairs = [
        (here.d1, (right.log_partition - left.log_partition) / (2.0 * h)),
        (here.d2, (right.d1 - left.d1) / (2.0 * h)),
        (
            0.5 * (here.d2 + alpha * here.d1**2),
            (more.log_partition - less.log_partition) / (2 * STEP * VARIANCES),
        ),
        (here.variance_ratio, 1.0 + alpha * VARIANCES * here.d2),
    ]
    for value, difference in pairs:
        assert_near(value, difference, DIFFERENCE * np.max(np.abs(value)))


@named
def test_small_alpha_converges_to_alpha_zero(name):
    """
    At α = 1e-10: log Z / α differs by α Var l / 2, d1 by α Cov, d2 likewise; Var l < 1e3 at
    variances up to 1 (that of exp(f) is exp(2 m + 2 v)), hence 1e-7 of itself.
    """
    make, y = LIKELIHOODS[name]
    rule = tilted_rule(make(), KL())
    limit, near = (
        moments(rule, y, MEANS, np.minimum(VARIANCES, 1.0), alpha) for alpha in (0.0, 1e-10)
    )
    assert_close(near, limit, 1e-7)
    assert_allclose(limit.variance_ratio, 1.0, rtol=1e-8)  # the accuracy of quadrature


PARAMETERS = {
    "gaussian": lambda likelihood: likelihood.variance,
    "student t": lambda likelihood: likelihood.scale,
    "gamma": lambda likelihood: likelihood.shape,
    "beta": lambda likelihood: likelihood.scale,
    "ordinal": lambda likelihood: likelihood.sigma,
}


@partly_slow("name", PARAMETERS, quick=["gaussian", "student t", "gamma"])
@partly_slow(
    ("projection", "alpha"), [("kl", 0.0), ("kl", 0.3), ("kl", 1.0), ("wasserstein", 0.6)], 2
)
def test_parameter_gradients_match_finite_differences(name, projection, alpha):
    """
    Against central differences of Σ bar log_partition; the step is 2e-4 of the (unconstrained)
    variable's unit.
    """
    make, y = LIKELIHOODS[name]
    likelihood = make()
    rule = tilted_rule(likelihood, PROJECTIONS[projection])
    variable = PARAMETERS[name](likelihood).unconstrained_variable
    bar = np.array([0.3, -1.0, 2.0, 0.7, 1.1, -0.4])
    rows = given(y, MEANS, VARIANCES)
    (found,) = rule.log_partition_vjp(*rows, double(alpha), tf.constant(bar), [variable])

    def total(value):
        variable.assign(value)
        return bar @ moments(rule, y, MEANS, VARIANCES, alpha).log_partition

    start = variable.numpy()
    difference = (total(start + STEP) - total(start - STEP)) / (2.0 * STEP)
    assert_allclose(found, difference, rtol=10.0 * DIFFERENCE)


def test_gradients_of_unused_variables_are_zero():
    rule = tilted_rule(StudentT(), KL())
    other = tf.Variable(1.0, dtype=tf.float64)
    rows = given(0.0, 1.0, 1.0)
    (found,) = rule.log_partition_vjp(*rows, double(0.5), double([1.0]), [other])
    assert found == 0.0


# --- closed forms ---------------------------------------------------------------------------------


def expectations(likelihood, y):
    """E[log p(y|f)] by GPflow."""
    rows = (np.zeros((6, 1)), MEANS[:, None], VARIANCES[:, None], np.full((6, 1), y))
    return likelihood.variational_expectations(*rows)


def closed_form(likelihood, y, alpha, X=None):
    """The moments by the rule that is registered, which quadrature confirms."""
    rules = tilted_rule(likelihood, KL()), QuadratureRule(likelihood)
    closed, quadrature = (moments(rule, y, MEANS, VARIANCES, alpha, X) for rule in rules)
    assert_close(quadrature, closed, EXACT)
    return closed


@pytest.mark.parametrize("alpha", [0.0, 1e-10, 0.01, 0.5, 1.0])
def test_gaussian_matches_closed_form(alpha):
    closed = closed_form(Gaussian(0.3), 0.4, alpha)
    if alpha > 1e-3:  # N(y; f, s)^α = (2πs)^((1-α)/2) α^(-1/2) N(y; f, s/α)
        spread = 0.3 / alpha + VARIANCES
        log_Z = 0.5 * (1 - alpha) * np.log(2 * np.pi * 0.3) - 0.5 * np.log(alpha)
        log_Z += -0.5 * np.log(2 * np.pi * spread) - 0.5 * (0.4 - MEANS) ** 2 / spread
        assert_allclose(closed.log_partition, log_Z / alpha, rtol=1e-12)
    elif alpha == 0.0:
        assert_allclose(closed.log_partition, expectations(Gaussian(0.3), 0.4), rtol=1e-13)


def test_probit_and_poisson_match_closed_forms():
    for labels in ((0, 1), (-1, 1)):
        for y in labels:
            closed_form(Probit(labels=labels), y, 1.0)
    for binsize in (1.0, 0.05):
        closed_form(Poisson(binsize=binsize), 4.0, 0.0)


def test_poisson_far_from_its_mode():
    """exp(f) at the cavity mean is huge, and Newton steps from there have length 1."""
    means = np.array([68.0, 200.0, 300.0])
    variances = np.array([1.0, 1.0, 1e4])
    rule = tilted_rule(Poisson(), KL())
    exact, rough = (
        moments(rule, 3.0, means, variances, 0.5, negligible=one) for one in (0.0, np.inf)
    )
    for row, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        log_Z, d1, d2, ratio = map(float, tilted(poisson(3.0), mean, variance, 0.5)[:4])
        for found, tolerance in ((exact, 1e-8), (rough, 0.1)):
            assert_allclose(found.log_partition[row], log_Z, rtol=min(tolerance, 1e-3))
            assert_allclose(found.d1[row], d1, rtol=tolerance)
            assert_allclose(found.d2[row], d2, rtol=tolerance)
            assert_allclose(found.variance_ratio[row], ratio, rtol=10 * tolerance)


@pytest.mark.parametrize(
    "make",
    [Exponential, lambda: Gamma(shape=2.5), lambda: Gamma(shape=Linear([[0.4]], [1.5]))],
)
def test_gamma_matches_expectation(make):
    """
    Also if the mass of exp(-f) is seven standard deviations from m, outside of the first window.
    """
    likelihood = make()
    X = line(-1.0, 2.0, 6)
    closed = closed_form(likelihood, 1.7, 0.0, X)
    wide = moments(tilted_rule(likelihood, KL()), 1.7, 0.3, 49.0, 0.0, X=X[:1])
    # exp(24) is good to 24 roundings.
    assert_allclose(wide.d2, -1.7 * np.exp(-0.3 + 24.5), rtol=1e-13)
    if isinstance(likelihood, Exponential):
        assert_allclose(closed.log_partition, expectations(likelihood, 1.7), rtol=1e-13)


# --- kinds of likelihoods -------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_heteroscedastic_noise_equals_separate_likelihoods(alpha):
    """Equals one likelihood with constant noise per row."""
    X = line(-1.0, 1.0, 6)
    noise = 0.4 + 0.2 * X[:, 0]
    for kind in (Gaussian, StudentT):
        depends = kind(Linear([[0.2]], [0.4]))
        rule = tilted_rule(depends, KL())
        together = np.stack(moments(rule, 0.4, MEANS, VARIANCES, alpha, X=X))
        for n in (0, 3, 5):
            alone = moments(tilted_rule(kind(noise[n]), KL()), 0.4, MEANS[n], VARIANCES[n], alpha)
            # softplus and its inverse between the value given and the one used: 1e-14.
            assert_allclose(together[:, n], np.stack(alone)[:, 0], rtol=1e-11)
        quadrature = moments(QuadratureRule(depends), 0.4, MEANS, VARIANCES, alpha, X=X)
        assert_allclose(np.stack(quadrature), together, rtol=EXACT)


@partly_slow("alpha", [0.0, 0.3, 1.0], quick=[0.3])
@partly_slow("projection", ["kl", "wasserstein"], 1)
def test_switched_equals_separate_likelihoods(alpha, projection):
    """The second column of Y selects the likelihood of each row."""
    parts = [StudentT(scale=0.4), Gaussian(0.3)]
    which = np.array([0, 1, 1, 0, 1, 0])
    y = np.array([0.3, -0.4, 1.0, 2.0, 0.1, -1.0])

    def found(likelihood, Y):
        cavity = Cavity(tf.constant(MEANS), tf.constant(VARIANCES))
        rule = tilted_rule(likelihood, PROJECTIONS[projection])
        return np.stack(rule.moments(cavity, observed(Y), double(alpha)))

    together = found(SwitchedLikelihood(parts), np.stack([y, which], axis=1))
    each = np.stack([found(part, y[:, None]) for part in parts])  # [2, 4, 6]
    assert_allclose(together, each[which, :, np.arange(6)].T, rtol=EXACT)
