"""Quadrature against integrals with 40 digits, its cost, and its behavior for invalid rows.

REQUIRED, 1e-8 relative, is the documented error of log Z, d1 and d2. If one of them nearly vanishes
because its integrand has both signs (below CROSSING = 1/100 of the integral of the modulus), the
error is 1e-8 of that integral. (For a probit or logit this never happens, so 1e-8 of d2 = 1e-23 is
required.) At the nodes l, l' and l'' have errors of 1e-15, which are negligible; the errors of
panels are a small multiple of the square of their tolerance, 2e-7.
"""

import dataclasses
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tilted_references
from doubles import double
from gpflow.likelihoods import Bernoulli, Beta, Ordinal, Poisson, StudentT
from numpy.testing import assert_allclose
from quick import partly_slow
from scipy import special, stats
from tilted_rules import PROJECTIONS, PanelRule, given, moments
from waves import line

from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.tilted import (
    KL,
    LogDensity,
    QuadratureRule,
    log_density,
    quadrature,
    tilted_rule,
    trapezoid,
)
from gpflow_pep.tilted.quadrature import far_modes, locate, on_windows
from gpflow_pep.tilted.trapezoid import TiltedRows

GROUPS = tilted_references.recorded()["groups"]
REQUIRED = 1e-8
CROSSING = 1e-2
QUANTITIES = ("log_partition", "d1", "d2", "variance_ratio")
ALPHAS = (0.0, 0.01, 0.5, 1.0)


def located(density, rows, negligible=0.0):
    """Tilted distributions on shared points and on windows."""
    tilted, is_accurate, center = locate(
        density, partial(on_windows, density), partial(far_modes, density), rows, negligible
    )
    return SimpleNamespace(tilted=tilted, is_accurate=is_accurate, center=center)


def errors(found, cases):
    """
    Errors of log_partition, d1, d2 and ratio, [4, R]: relative, or as defined in the module
    docstring.
    """
    values = cases[:, 3:7].T
    scales = np.vstack([cases[:, 7:10].T, cases[:, 6]])
    scales = np.where(np.abs(values) < CROSSING * scales, scales, np.abs(values))
    return np.abs(np.stack(found) - values) / scales


def assert_within(found, cases, limit=REQUIRED):
    assert np.all(np.isfinite(found))
    for name, error in zip(QUANTITIES, errors(found, cases), strict=True):
        worst = np.argmax(error)
        assert error[worst] <= limit, (
            f"{name} at mean, variance, alpha {cases[worst, :3]}: {error[worst]:.1e}"
        )


def assert_as_precise(likelihood, density, y, mean, variance, alpha):
    reference = tilted_references.tilted(density, mean, variance, alpha)
    case = np.array([[mean, variance, alpha, *reference[:4], *reference.scales]], float)
    assert_within(moments(QuadratureRule(likelihood), y, mean, variance, alpha), case)


def cases_of(name, alpha):
    """The recorded cases of a likelihood, [R, 10], and the observation of each, [R]."""
    groups = [group for group in GROUPS if group["likelihood"] == name]
    cases = np.concatenate([group["cases"] for group in groups])
    y = np.concatenate([np.full(len(group["cases"]), group["y"]) for group in groups])
    return cases[cases[:, 2] == alpha], y[cases[:, 2] == alpha]


# --- against 40 digits ----------------------------------------------------------------------------

NAMES = ["probit", "logit", "bernoulli", "poisson", "student_t", "student_t_0.1"]


@partly_slow("alpha", ALPHAS, quick=[0.0, 0.5])
@pytest.mark.parametrize("name", NAMES)
@partly_slow("by", ["rule", "panels"], 1)
def test_matches_recorded_cases(name, alpha, by):
    """
    Means -10 to 10, variances 1e-4 to 1e3. A Poisson has a closed form at α = 0: the mass of exp(f)
    is v from m.
    """
    cases, y = cases_of(name, alpha)
    assert len(cases) % 20 == 0 < len(cases)
    likelihood = tilted_references.LIKELIHOODS[name][0]()
    closed = name == "poisson" and alpha == 0.0
    make = PanelRule if by == "panels" else QuadratureRule
    rule = tilted_rule(likelihood, KL()) if closed else make(likelihood)
    assert_within(moments(rule, y, cases[:, 0], cases[:, 1], alpha), cases)


@partly_slow("name", NAMES, quick=["logit"])
def test_matches_recorded_cases_with_many_rows(name):
    """Enough rows that very narrow cavities use separate Gauss-Hermite nodes."""
    for alpha in (0.01, 0.5, 1.0):
        cases, y = cases_of(name, alpha)
        times = -(-quadrature._MANY_ROWS // len(cases))
        cases = np.tile(cases, [times, 1])
        y = np.tile(y, times)
        rule = QuadratureRule(tilted_references.LIKELIHOODS[name][0]())
        assert_within(moments(rule, y, cases[:, 0], cases[:, 1], alpha), cases)


@pytest.mark.parametrize("make", [Probit, Logit, StudentT, Poisson])
def test_hermite_nodes_match_panels(make):
    """
    At the largest width for which nodes are used; panels have an error of 1e-8. Few rows are
    inaccurate.
    """
    density = log_density(make())
    radius = np.max(density.radius(double([[0.0]])))
    mean = np.linspace(-2.0, 2.0, 41)
    sd = 0.199 * radius
    for alpha in (0.01, 0.5, 1.0):
        rows = TiltedRows.of(*given(1.0, mean, sd**2), double(alpha))
        assert np.all(trapezoid.are_narrow(density, rows, hermite=True))
        found, good = trapezoid.on_shared_points(density, rows, True, double(0.0))
        reference = np.stack(moments(PanelRule(make()), 1.0, mean, sd**2, alpha))[:, good]
        assert np.mean(good) > 0.7
        assert_allclose(np.stack(found)[:, good], reference, rtol=2.0 * REQUIRED, atol=1e-10)


def test_accurate_if_powers_underflow():
    """
    Phi(f) leaves the normal numbers at f = -37.5. Rounding of exp(log Phi), 1e-13, is h = 38 and
    38² times that.
    """
    mean = np.linspace(-38.8, -36.8, 41)
    v = 0.05**2
    z = mean / np.sqrt(1.0 + v)
    log_Z = special.log_ndtr(z)
    h = np.exp(-0.5 * z**2 - log_Z) / np.sqrt(2.0 * np.pi)
    found = moments(QuadratureRule(Probit()), 1.0, mean, v, 1.0)
    expected = log_Z, h / np.sqrt(1.0 + v), -h * (z + h) / (1.0 + v)
    assert_allclose(np.stack(found[:3]), expected, rtol=REQUIRED)


def test_matches_probit_closed_form():
    """
    z and φ(z)/Phi(z) are good to z² roundings; -h (z + h), for z = -10, loses 100 times that:
    1e-11.
    """
    cases, y = cases_of("probit", 1.0)
    assert_within(
        moments(tilted_rule(Probit(), KL()), y, cases[:, 0], cases[:, 1], 1.0), cases, 1e-11
    )


@partly_slow(
    ("scale", "out", "alpha"),
    [(0.1, 6.2, 0.0), (0.02, -6.1, 0.01), (0.1, -7.3, 0.5), (0.02, 8.4, 1)],
    quick=[(0.02, 8.4, 1)],
)
def test_resolves_narrow_distant_peak(scale, out, alpha):
    """
    Student's t, an observation 6 to 8.5 cavity standard deviations from m: its peak, 1/50 of a
    panel, stands between two nodes, yet l'' = -1e2 to -1e4 there, so that 1e-9 of the density makes
    1e-6 of d2.
    """
    sd = 1.1
    y = 0.3
    density = tilted_references.student_t(y, scale)
    assert_as_precise(StudentT(scale), density, y, y + out * sd, sd**2, alpha)


FAR_OUT = np.linspace(-40.0, 40.0, 2_000_001)


def beta(scale, y):
    """GPflow's Beta, whose mean stays 1e-3 away from 0 and 1."""

    def log_prob(f):
        p = 1e-3 + (1.0 - 2e-3) * special.ndtr(f)
        return stats.beta.logpdf(y, scale * p, scale * (1.0 - p))

    return Beta(scale=scale), log_prob, y


def student_t(df, scale, y):
    return StudentT(scale, df), partial(stats.t.logpdf, loc=y, scale=scale, df=df), y


CONTRADICTED = {
    "Beta, 3 % of the mass at the cavity mean": (beta(55.93, 0.5389), 5.585, 0.654),
    "Beta, mirrored": (beta(55.93, 0.4611), -5.585, 0.654),
    "Beta, mode 14 sd away": (beta(26.722, 0.98382), -7.891, 0.612),
    "Student-t, y 12 sd away": (student_t(100.0, 0.02, 12.0), 0.0, 1.0),
    "Student-t, y 22 sd away": (student_t(100.0, 0.1, -22.0), 0.0, 1.0),
    "Student-t, y 18 sd away": (student_t(70.0, 0.26, 38.2), 0.4, 2.1),
    "Student-t, y 20 sd away": (student_t(70.0, 0.26, 43.45), 0.4, 2.1),
    "Student-t, y 15 sd away": (student_t(70.0, 0.26, -31.1), 0.4, 2.1),
    "Student-t, 0.3 % of the mass at y": (student_t(16.0, 0.018, -11.15), -7.25, 0.33),
}


@pytest.mark.parametrize("alpha", [1.0, 0.6])
@pytest.mark.parametrize("name", CONTRADICTED)
def test_finds_all_modes_if_y_contradicts_the_cavity(name, alpha):
    """Likelihoods that are not log-concave: π may have modes at the cavity mean and far from it."""
    (likelihood, log_prob, y), mean, sd = CONTRADICTED[name]
    expected = by_dense_sum(log_prob, mean, sd, alpha, x=FAR_OUT)
    found = moments(QuadratureRule(likelihood), y, mean, sd**2, alpha)
    # Rounding of the sums.
    assert_allclose(np.ravel(found[:3]), expected, rtol=REQUIRED, atol=1e-12)


# --- wide cavities --------------------------------------------------------------------------------

# At most 0.007 apart in f: the trapezoid rule is right to rounding.
DENSE = np.linspace(-14.0, 14.0, 400_001)


def by_dense_sum(log_prob, mean, sd, alpha, x=DENSE):
    """
    log Z / α, d1 and d2 of one row (E[l] and its derivatives at α = 0), by NumPy on 400,001 points.
    """
    weight = np.exp(-0.5 * x**2) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi)
    log_p = log_prob(mean + sd * x)
    if alpha == 0.0:
        E0, E1, E2 = (np.sum(weight * log_p * x**k) for k in range(3))
        return E0, E1 / sd, (E2 - E0) / sd**2
    pi = weight * np.exp(alpha * log_p)
    Z = np.sum(pi)
    center = np.sum(pi * x) / Z
    ratio = np.sum(pi * (x - center) ** 2) / Z
    return np.log(Z) / alpha, center / (alpha * sd), (ratio - 1.0) / (alpha * sd**2)


WIDE = {
    "probit": (Probit, special.log_ndtr),
    "logit": (Logit, lambda f: -np.logaddexp(0.0, -f)),
    "bernoulli": (Bernoulli, lambda f: np.log(1e-3 + (1.0 - 2e-3) * special.ndtr(f))),
}


@partly_slow("alpha", [0.0, 0.5, 1.0], quick=[0.5])
@partly_slow("name", WIDE, quick=["logit"])
def test_matches_dense_sum_for_wide_cavities(name, alpha):
    """
    REQUIRED, without adaptive_quadrature, which are not that accurate here; 60 points are enough
    for many rows.
    """
    make, log_prob = WIDE[name]
    rng = np.random.default_rng(4)
    sd = 10.0 ** rng.uniform(0.5, 2.0, size=40)
    mean = sd * rng.uniform(-2.0, 2.0, size=40)
    density = QuadratureRule(make())._density
    rows = TiltedRows.of(*given(1.0, mean, sd**2), double(alpha))
    found = located(density, rows)
    zero = tf.zeros(40, tf.float64)
    points = tf.constant(trapezoid.trapezoid_table(60))
    first = trapezoid.trapezoid(density, rows, zero, zero + trapezoid.HALF, points, 0.0)
    expected = np.transpose(
        [by_dense_sum(log_prob, *row, alpha) for row in zip(mean, sd, strict=True)]
    )
    accurate = found.is_accurate.numpy()
    assert np.mean(accurate) > 0.6 and np.mean(first.is_accurate) > 0.1
    assert_allclose(np.stack(found.tilted[:3])[:, accurate], expected[:, accurate], rtol=REQUIRED)


def test_negligible_rows_skip_panels():
    """Errors are relative to 1e-4 if log Z, d1 √v or d2 v is smaller; such rows use no panels."""
    sd, ratio = (values.ravel() for values in np.meshgrid([1.5, 3.0, 5.0], [4.0, 5.5, 7.0, 8.0]))
    mean = ratio * sd
    rule = QuadratureRule(Probit())
    expected = np.transpose(
        [by_dense_sum(special.log_ndtr, *row, 0.0) for row in zip(mean, sd, strict=True)]
    )
    units = np.stack([np.ones_like(sd), sd, sd**2])
    rows = given(1.0, mean, sd**2)
    zero = double(0.0)
    refused = []
    for size in (0.0, 1e-4):
        found = located(rule._density, TiltedRows.of(*rows, zero), size)
        refused.append(np.sum(~found.is_accurate.numpy()))
        error = np.abs(np.stack(rule.moments(*rows, zero, size)[:3]) - expected)
        # The dense sums themselves are right to 1e-12 or so.
        assert np.all(
            error * units <= REQUIRED * np.maximum(np.abs(expected) * units, max(size, 1e-5))
        )
    assert refused[0] > refused[1] == 0


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_inaccurate_rows_are_centered_on_mode(alpha):
    """
    On the point next to it, of points that are 0.3 cavity standard deviations apart at first, and
    nearer later.
    """
    mean, variance = (
        values.ravel() for values in np.meshgrid(np.linspace(-9.0, 9.0, 7), [1.0, 30.0, 1000.0])
    )
    sd = np.sqrt(variance)
    y = 0.5
    scale = 0.1

    class OfUnknownRadius(StudentT):
        def _scalar_log_prob(self, X, F, Y):
            return super()._scalar_log_prob(X, F, Y)

    density = log_density(OfUnknownRadius(scale))
    found = located(density, TiltedRows.of(*given(y, mean, variance), double(alpha)))
    refused = ~found.is_accurate
    assert np.sum(refused) > 10
    f = np.concatenate([mean + sd * line(-9.0, 9.0, 5001), y + line(-1.0, 1.0, 501) + 0 * mean])
    log_pi = alpha * stats.t.logpdf(f, 3.0, y, scale) - 0.5 * np.square((f - mean) / sd)
    mode = f[np.argmax(log_pi, axis=0), np.arange(len(mean))]
    assert np.all(np.abs(found.center - mode)[refused] < 0.15 * sd[refused])


@pytest.mark.parametrize("df", [1e12, 1e17, 1e300])
def test_large_df_equals_gaussian(df):
    found = moments(QuadratureRule(StudentT(df=df)), 0.5, 0.5, 1.0, 0.5)
    # N(y; f, 1)^(1/2) is N(y; f, 2) times (8π)^(1/4): log Z / α is that of N(y; m, 1 + 2), and
    # twice log(8π)/4.
    log_partition = 0.5 * np.log(8.0 * np.pi) - np.log(2.0 * np.pi * 3.0)
    expected = [log_partition, 0.0, -2.0 / 3.0, 2.0 / 3.0]
    assert_allclose(np.stack(found)[:, 0] - expected, 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("mean", "variance", "alpha"),
    [(5.07920044797028, 1.497403086347712, 0.0), (5.529, 1.445, 0.0451)],
)
def test_variance_ratio_near_one_is_accurate(mean, variance, alpha):
    """The ratio is computed as 1 + α v d2; from sums over π its error would be 1e-6."""
    found = moments(QuadratureRule(Probit()), 1.0, mean, variance, alpha)
    assert_allclose(found.variance_ratio, 1.0 + alpha * variance * found.d2, rtol=1e-14)


def points_per_row(make, rows, alpha):
    """The result of :func:`locate`, and the number of evaluations of log p per row."""
    count = []
    density = QuadratureRule(make())._density

    def counted(F, X, Y):
        count.append(int(tf.size(F)))
        return density.log_prob(F, X, Y)

    rows = TiltedRows.of(*rows, double(alpha))
    found = located(dataclasses.replace(density, log_prob=counted), rows)
    return found, sum(count) / len(found.center)


@pytest.mark.parametrize(
    ("make", "deviations", "cost"),
    [
        (Probit, (1e-2, 0.3), 18.0),
        (Logit, (1e-2, 0.3), 18.0),
        (StudentT, (1e-2, 0.3), 24.0),
        (Probit, (16.0, 40.0), 150.0),
        (Logit, (16.0, 40.0), 150.0),
    ],
)
def test_most_rows_use_few_points(make, deviations, cost):
    """
    Narrow cavities, and no panels but for 2 % of the rows or so; 96 points for most rows of wide
    ones, of which 60 would suffice for only 1 %.
    """
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, size=1000)
    sd = np.exp(rng.uniform(*np.log(deviations), 1000))
    mean = (sd + 1.5) * rng.normal(size=1000)
    rows = given(y, mean, np.square(sd))
    for alpha in (0.0, 0.5, 1.0):
        found, points = points_per_row(make, rows, alpha)
        assert np.mean(found.is_accurate) > 0.97
        assert points < cost


# --- never silently wrong -------------------------------------------------------------------------

FAR_MEANS, FAR_VARIANCES = np.meshgrid(
    [-800.0, -30.0, 0.0, 30.0, 800.0], [1e-12, 1e-4, 1.0, 1e3, 1e6]
)
FAR = FAR_MEANS.ravel(), FAR_VARIANCES.ravel()
BOUNDED = {
    "probit": (Probit, (0.0, 1.0)),
    "logit": (Logit, (0.0, 1.0)),
    "bernoulli": (Bernoulli, (0.0, 1.0)),
    "bernoulli sigmoid": (lambda: Bernoulli(invlink=tf.sigmoid), (0.0, 1.0)),
    "student t": (StudentT, (0.0, 1e6)),
    "student t 0.1": (lambda: StudentT(scale=0.1), (0.0, 1e6)),
    "ordinal": (lambda: Ordinal(np.array([-1.0, 0.5])), (0.0, 1.0, 2.0)),
    "beta": (Beta, (0.0, 0.3, 1.0)),
}


@pytest.mark.parametrize("projection", PROJECTIONS.values())
@pytest.mark.parametrize("name", BOUNDED)
def test_extreme_rows_are_finite(name, projection):
    """
    All, but for the widest cavities under likelihoods without a `center`, for which the points of
    the Wasserstein projection are too far apart: d2 and the ratio may be NaN.
    """
    make, ys = BOUNDED[name]
    rule = tilted_rule(make(), projection)
    y, mean = (values.ravel() for values in np.meshgrid(ys, FAR[0]))
    variance = np.repeat(FAR[1], len(ys))
    is_known = (variance < 1e6) | (name not in ("ordinal", "beta")) | isinstance(projection, KL)
    for alpha in (0.0, 1e-10, 1.0):
        log_partition, d1, d2, ratio = moments(rule, y, mean, variance, alpha)
        assert np.all(np.isfinite([log_partition, d1])), f"alpha = {alpha}"
        assert np.all(np.isfinite(d2[is_known])), f"alpha = {alpha}"
        assert np.all(ratio[is_known] > 0.0)
        assert np.array_equal(np.isnan(d2), np.isnan(ratio))


@pytest.mark.parametrize("y", [0.0, 1.0, 1e6])
def test_extreme_poisson_rows(y):
    """
    Numbers as long as exp(m), and at α = 0 exp(m + v/2), are; then -inf, which E[log p] is within
    rounding.
    """
    rule = tilted_rule(Poisson(), KL())
    for alpha in (1e-10, 0.5, 1.0):
        ordinary = FAR[0] < 700.0
        found = np.stack(moments(rule, y, FAR[0][ordinary], FAR[1][ordinary], alpha))
        assert np.all(np.isfinite(found)), f"alpha = {alpha}"
        assert np.all(found[3] > 0.0)
    found = moments(rule, y, *FAR, 0.0)
    overflows = FAR[0] + 0.5 * FAR[1] > 709.0
    assert np.all(np.isfinite(found.log_partition[~overflows]))
    assert np.all(found.log_partition[overflows] == -np.inf)


@partly_slow("projection", ["kl", "wasserstein"], 1)
def test_invalid_rows_are_nan_and_do_not_affect_other_rows(projection):
    """A count of -1 or a mean of NaN gives NaN quickly: NaN panels are not divided indefinitely."""
    rule = tilted_rule(Poisson(), PROJECTIONS[projection])
    y = np.array([2.0, -1.0, 3.0, 0.0, 1.0])
    mean = np.array([0.3, 0.5, 1.0, np.nan, -0.4])
    for alpha in (0.5, 1.0):
        found = np.stack(moments(rule, y, mean, 1.0, alpha))
        assert np.all(np.isnan(found[1:, [1, 3]]))
        good = np.stack(moments(rule, y[[0, 2, 4]], mean[[0, 2, 4]], 1.0, alpha))
        # Fewer rows: products of matrices may be summed in another order, 100 roundings.
        assert_allclose(found[:, [0, 2, 4]], good, rtol=1e-11)


def test_poisson_with_overflowing_rate_at_mean():
    """
    A count of 0 at m = 800, v = 1: the mode f solves α exp(f) = m - f, and with λ = α exp(f) = 1600
    or so π is Gaussian of precision 1 + λ but for 1/λ of a standard deviation.
    """
    found = moments(tilted_rule(Poisson(), KL()), 0.0, 800.0, 1.0, 0.5)
    mode = np.log(2.0 * 792.6)
    for _ in range(9):
        mode = np.log(2.0 * (800.0 - mode))
    assert_allclose(found.d1, (mode - 800.0) / 0.5, rtol=1e-5)
    assert_allclose(found.variance_ratio, 1.0 / (801.0 - mode), rtol=1e-2)


def test_noise_terminates_panel_division():
    """
    f = m + sd x has only 6 digits of x, so no panel is resolved to 10 digits: panels are accepted
    with the error of the noise.
    """
    mean = 1e4
    variance = 1e-12
    found = moments(QuadratureRule(StudentT()), mean + 1.0, mean, variance, 1.0)
    # The density hardly changes within 1e-6: density and derivatives of Student's t with 3 degrees
    # of freedom, at 1; of f 1e4 eps = 2e-12 is lost, of the integrals, for which x is wrong by
    # 2e-6, no more than that.
    log_p = np.log(6.0 * np.sqrt(3.0) / (np.pi * 16.0))
    assert_allclose(np.stack(found)[:, 0], [log_p, 1.0, -0.5, 1.0], rtol=1e-5)


def test_oscillating_windows_terminate():
    """
    Alternately π is a slope, which extends the window, and a spike, which shrinks it: the search
    ends after 24 windows and two kinds of shared points, and the row is inaccurate.
    """
    calls = []

    def log_prob(F, X, Y):
        calls.append(F)
        assert len(calls) < 100
        left = tf.reduce_min(F)
        right = tf.reduce_max(F)
        x = (2.0 * F - left - right) / (right - left)
        return 0.5 * tf.square(F) + (300.0 * x if len(calls) % 2 else -30.0 * tf.square(10.0 * x))

    rows = TiltedRows.of(*given(0.0, 0.0, 1.0), double(1.0))
    found = located(LogDensity(log_prob, radius=lambda X: 100.0), rows)
    assert len(calls) == 2 + 24 and not found.is_accurate.numpy().any()


def test_rounded_slope_variance_is_not_negative():
    """
    l' is constant over π, so its variance is 0 up to rounding, and d2 = E[l''] + α Var[l'] = E[l'']
    = 0.
    """
    zero = double([0.0])
    one = double([1.0])
    centered = quadrature.Centered(zero, one, zero, zero, zero)
    h = 3.0e8
    slope_squared = np.nextafter(h**2, 0.0)
    assert slope_squared < h**2
    sums = double([[1.0, 0.0, 1.0, h, slope_squared, 0.0, 0.0]])
    assert quadrature._tilted(centered, sums, one).d2[0] == 0.0
