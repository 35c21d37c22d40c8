"""KL and Wasserstein projections against an oracle and 40 digits, and their invariants.

σ_QP: F is integrated from values with errors of 1e-15; the documented error is 1e-8, as for the
moments. Rounding of F, 1e-16, and of φ(Φ⁻¹(F)), seven times larger, is negligible.
"""

import functools

import numpy as np
import pytest
import tilted_references
from gpflow.likelihoods import Bernoulli, Beta, Gamma, Gaussian, Poisson, StudentT
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from model_values import references
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow
from scipy.special import ndtri
from tilted_rules import PROJECTIONS, moments

from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.tilted import KL, Wasserstein, tilted_rule
from gpflow_pep.tilted.wasserstein import WassersteinRule

ORACLE = references("qp_projection")
REQUIRED = 1e-8
ROUNDING = 1e-12


def likelihood_of(case):
    if case["likelihood"] == "gaussian":
        return Gaussian(case["noise_variance"]), case["y"]
    if case["likelihood"] == "probit":
        return Probit(labels=(-1, 1)), case["y"]
    return Bernoulli(), float(case["y"] == 1)


def name_of(case):
    return "{likelihood}, y = {y}, N({mean}, {variance})".format(**case)


# --- against numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [pytest.param(case, id=name_of(case)) for case in ORACLE])
def test_matches_oracle(case):
    """
    Includes log Z = -43. If the oracle has no tolerance, its quadrature error is 1e-10; GPflow's
    probit has no closed form and is accurate to REQUIRED.
    """
    likelihood, y = likelihood_of(case)
    expected = case["expected"]
    m = case["mean"]
    v = case["variance"]
    for projection, sigma in (("kl", "sigma_EP"), ("wasserstein", "sigma_QP")):
        found = moments(tilted_rule(likelihood, PROJECTIONS[projection]), y, m, v, 1.0)
        tolerance = {"log_Z": 1e-10, "mean": 1e-10, "sigma_EP": 1e-10, **case["tolerance"]}
        if isinstance(likelihood, Bernoulli):
            tolerance = {name: max(value, REQUIRED) for name, value in tolerance.items()}
        assert_allclose(found.log_partition, expected["log_Z"], rtol=tolerance["log_Z"])
        assert_allclose(m + v * found.d1, expected["mean"], rtol=tolerance["mean"])
        assert_allclose(np.sqrt(v * found.variance_ratio), expected[sigma], rtol=tolerance[sigma])
        assert_allclose(np.sqrt(v + v * v * found.d2), expected[sigma], rtol=tolerance[sigma])


@pytest.mark.parametrize(
    ("likelihood", "y", "center", "scale", "mean", "variance"),
    [
        (Poisson(), 300.0, np.log(300.0), 0.05, -3.0, 6000.0),
        (StudentT(0.2), 0.0, 0.0, 0.05, 1.3, 660.0),
        (StudentT(0.2), 5.0, 5.0, 0.05, -11.0, 471.0),
        (StudentT(1e-4, df=1.0), 0.0, 0.0, 1e-4, 10.0, 100.0),
        (StudentT(1e-4), 0.0, 0.0, 1e-4, 2.0, 1.0),
        (Beta(), 0.5, 0.0, 0.05, -5.0, 958.0),
    ],
)
def test_quantile_deviation_of_a_wide_cavity(likelihood, y, center, scale, mean, variance):
    """
    The likelihood is far narrower than the cavity, or has heavy tails. The reference is the
    trapezoid rule at f = center + scale sinh(t) with steps of t of 1e-4, whose error is of the
    order of 1e-8.
    """
    t = np.linspace(-15.0, 15.0, 300_001)
    t = t[np.abs(center + scale * np.sinh(t) - mean) < 8.5 * np.sqrt(variance)]
    f = center + scale * np.sinh(t)
    width = scale * np.cosh(t) * 1e-4
    log_prob = likelihood._scalar_log_prob(np.zeros((1, 1)), f[:, None], np.full((1, 1), y))
    log_pi = np.ravel(log_prob) - 0.5 * (f - mean) ** 2 / variance
    mass = width * np.exp(log_pi - log_pi.max())
    mass /= mass.sum()
    below, above = (np.cumsum(part) - part / 2 for part in (mass, mass[::-1]))
    T = ndtri(np.maximum(np.minimum(below, above[::-1]), 1e-300))
    deviation = np.sum(width * np.exp(-0.5 * T**2)) / np.sqrt(2.0 * np.pi)
    found = moments(tilted_rule(likelihood, Wasserstein()), y, mean, variance, 1.0)
    assert_allclose(np.sqrt(variance * found.variance_ratio), deviation, rtol=10.0 * REQUIRED)


def test_a_quantile_deviation_that_no_level_resolves_is_nan():
    """A cavity 1,000 times as wide as the likelihood, at points equally far apart."""
    found = moments(tilted_rule(Gamma(), Wasserstein()), 1.0, 0.0, 1e6, 0.3)
    assert np.isnan(found.variance_ratio) and np.isfinite(found.log_partition)


def test_quantile_deviation_matches_high_precision():
    """Against 40 digits, for several powers. d2 = (ratio - 1)/(α v) if this does not cancel."""
    recorded = tilted_references.recorded()["quantile_deviations"]
    assert len(recorded) > 10
    for name, y, mean, variance, alpha, deviation in recorded:
        rule = tilted_rule(tilted_references.LIKELIHOODS[name][0](), Wasserstein())
        found = moments(rule, y, mean, variance, alpha)
        ratio = np.sqrt(found.variance_ratio)
        assert_allclose(ratio, deviation, rtol=REQUIRED, err_msg=name)
        if abs(deviation - 1.0) > 1e-3:
            d2 = (deviation**2 - 1.0) / (alpha * variance)
            assert_allclose(found.d2, d2, rtol=REQUIRED, err_msg=name)


# --- invariants -----------------------------------------------------------------------------------

LIKELIHOODS = {
    "probit": (Probit, [0.0, 1.0]),
    "logit": (Logit, [0.0, 1.0]),
    "bernoulli": (Bernoulli, [0.0, 1.0]),
    "poisson": (Poisson, [0.0, 1.0, 7.0, 300.0]),
    "student t": (lambda: StudentT(scale=0.2), [-3.0, 0.0, 5.0]),
}


@functools.cache  # until the end of this module
def rules(name):
    """Both projections of a likelihood, and observations."""
    make, ys = LIKELIHOODS[name]
    likelihood = make()
    return tilted_rule(likelihood, KL()), tilted_rule(likelihood, Wasserstein()), ys


def random_rows(ys, number, seed):
    """Observations, means and variances, [3, number]."""
    rng = np.random.default_rng(seed)
    y = rng.choice(ys, size=number)
    mean = rng.uniform(-12.0, 12.0, size=number)
    return np.stack([y, mean, 10.0 ** rng.uniform(-4.0, 3.0, size=number)])


@given(
    st.sampled_from(sorted(LIKELIHOODS)),
    st.integers(0, 1000),
    st.one_of(st.just(1.0), st.floats(1e-6, 1.0)),
)
@settings(max_examples=4, derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_wasserstein_deviation_is_at_most_kl(name, seed, alpha):
    """
    For 40 rows with means from -12 to 12 and variances from 1e-4 to 1e3: σ_QP <= σ_EP, and log Z
    and d1 are equal. (The KL projection of a probit is a closed form at α = 1: accurate to 1e-11,
    and to 1e-13 of the cavity's ratio.)
    """
    kl, wasserstein, ys = rules(name)
    rows = random_rows(ys, 40, seed)
    one, other = (moments(rule, *rows, alpha) for rule in (kl, wasserstein))
    closed = name == "probit" and alpha == 1.0
    assert np.all(other.variance_ratio <= one.variance_ratio + (1e-11 if closed else 0.0))
    assert np.all(other.variance_ratio > 0.0)
    if not closed:
        assert np.all(other.d2 <= one.d2)
        assert_array_equal(other.log_partition, one.log_partition)
        assert_array_equal(other.d1, one.d1)


def test_projections_coincide_for_gaussian():
    """Also with panels, not only because the registry returns the same closed form for both."""
    likelihood = Gaussian(0.3)
    mean = np.array([-2.0, 0.0, 0.5, 8.0])
    variance = np.array([0.01, 1.0, 40.0, 900.0])
    for alpha in (0.1, 1.0):
        closed = moments(tilted_rule(likelihood, Wasserstein()), 0.4, mean, variance, alpha)
        panels = moments(WassersteinRule(likelihood), 0.4, mean, variance, alpha)
        assert_allclose(panels.variance_ratio, closed.variance_ratio, rtol=REQUIRED)
        assert_allclose(panels.d2, closed.d2, rtol=REQUIRED)


@partly_slow("alpha", [0.01, 1.0], quick=[0.01])
@partly_slow("name", ["probit", "poisson", "student t"], 1)
def test_rows_are_independent(name, alpha):
    """
    Rows alone or among 1000, in any order, for the Wasserstein projection, which includes KL.
    Orders of sums and products may differ: 100 roundings, ROUNDING, and 100 times that in the
    ratio, a difference of squares in units of a window 10 times as wide. α v d2 = ratio - 1 cancels
    if the cavity hardly changes: d2 loses ROUNDING / (α v).
    """
    _, rule, ys = rules(name)
    rows = random_rows(ys, 1000, seed=3)
    together = moments(rule, *rows, alpha)
    variance = rows[2]

    def assert_same(some):
        found = moments(rule, *rows[:, some], alpha)
        for quantity, factor in (("log_partition", 1.0), ("d1", 1.0), ("variance_ratio", 100.0)):
            expected = getattr(together, quantity)[some]
            assert_allclose(
                getattr(found, quantity), expected, rtol=factor * ROUNDING, err_msg=quantity
            )
        lost = ROUNDING / (alpha * variance[some])
        assert np.all(
            np.abs(found.d2 - together.d2[some]) <= ROUNDING * np.abs(together.d2[some]) + lost
        )

    assert_same(np.random.default_rng(4).permutation(1000))
    for row in (0, 1, 500, 998, 999):
        assert_same([row])


def test_projections_coincide_at_alpha_zero():
    """At α = 0 tilting is infinitesimal, and the projections coincide."""
    for kl, wasserstein, ys in map(rules, LIKELIHOODS):
        one, other = (
            moments(rule, ys[0], [-1.0, 2.0], [0.5, 3.0], 0.0) for rule in (kl, wasserstein)
        )
        assert_array_equal(np.stack(one), np.stack(other))
