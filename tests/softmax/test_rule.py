"""
Tilted distributions of softmax against integrals over the latent values, identities and
differences.

Integrals must have relative errors below 1e-9 (measured; 1e-8 is documented). Errors of derivatives
in the means are relative to their value, or to 1e-2 (their size if probabilities are not near 0 or
1) if that is larger.
"""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_near
from differences import assert_gradients, slope_and_curvature
from doubles import double
from gpflow.likelihoods import Softmax
from numpy.testing import assert_allclose, assert_array_less
from quick import partly_slow
from refusals import refused, stopped
from scipy.special import expit, log_expit, log_softmax

from gpflow_pep.tilted import Cavity, Observations, TiltedRule, log_partition, rule_for

POWERS = (0.0, 1e-3, 0.5, 1.0)
CLOSE = 1e-9


def rows_of(label):
    return Observations(
        tf.zeros([len(label), 1], tf.float64), tf.constant(np.asarray(label, float)[:, None])
    )


def random_rows(seed, C, n, lowest=-2.0, highest=1.0):
    """Labels [n], means and variances [C, n]; the powers of ten of the variances are given."""
    generator = np.random.default_rng(seed)
    mean = 2.0 * generator.normal(size=(C, n))
    variance = 10.0 ** generator.uniform(lowest, highest, (C, n))
    return generator.integers(0, C, n), mean, variance


def tilted(label, mean, variance, alpha):
    """log Z / α [n], d1, d2 and ratio [C, n]."""
    rule = rule_for(Softmax(len(mean)), "kl")
    cavity = Cavity(double(mean), double(variance))
    log_Z, *others = rule.moments(cavity, rows_of(label), double(alpha))
    return [log_Z.numpy()[0], *(value.numpy() for value in others)]


def expectations(weight, log_p, slopes, curvatures, alpha):
    """
    log E[p^α]/α and its derivatives: E_π l' and E_π l'' + α Var_π l', π being the tilted
    distribution, from weights of nodes [K] and log p and its derivatives there.
    """
    change = np.sum(weight * np.expm1(alpha * log_p))
    log_Z = np.log1p(change) if change > -0.5 else np.log(np.sum(weight * np.exp(alpha * log_p)))
    posterior = weight * np.exp(alpha * log_p - log_Z)
    d1 = slopes @ posterior
    d2 = curvatures @ posterior + alpha * np.square(slopes - d1[:, None]) @ posterior
    return log_Z / alpha if alpha > 0.0 else np.sum(weight * log_p), d1, d2


def two_classes(mean, variance, alpha):
    """
    p = logistic(d) of d = f_y - f_k, one Gaussian: Gauss-Legendre on panels of one standard
    deviation or 1.5.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    sd = np.sqrt(variance)
    edges = np.arange(mean - 12.0 * sd, mean + 12.0 * sd + min(variance, 12.0 * sd), min(1.5, sd))
    half = 0.5 * np.diff(edges)[:, None]
    d = (edges[:-1, None] + half * (nodes + 1.0)).ravel()
    density = np.exp(-0.5 * np.square((d - mean) / sd)) / np.sqrt(2.0 * np.pi * variance)
    p = expit(d)
    q = expit(-d)
    log_Z, d1, d2 = expectations(
        (half * weights).ravel() * density, log_expit(d), q[None], -(p * q)[None], alpha
    )
    return log_Z, d1[0], d2[0]


def several_classes(label, mean, variance, alpha):
    """The trapezoid rule in all latent values, a quarter of a standard deviation apart."""
    x = np.arange(-8.5, 8.6, 0.25)
    grid = np.stack(np.meshgrid(*[x] * len(mean), indexing="ij")).reshape(len(mean), -1)
    weight = np.exp(-0.5 * np.sum(np.square(grid), axis=0))
    log_p = log_softmax(mean[:, None] + np.sqrt(variance)[:, None] * grid, axis=0)
    p = np.exp(log_p)
    own = (np.arange(len(mean)) == label)[:, None]
    return expectations(weight / weight.sum(), log_p[label], own - p, -p * (1.0 - p), alpha)


def assert_close(actual, expected, rel=CLOSE):
    """
    Errors of log Z / α relative to its value, of derivatives relative to the larger of their value
    and 1e-2.
    """
    assert_allclose(actual[0], expected[0], rtol=rel, atol=1e-14)
    for value, wanted in zip(actual[1:3], expected[1:], strict=True):
        assert_array_less(np.abs(value - wanted), rel * (1e-2 + np.abs(wanted)))


@partly_slow("alpha", POWERS, quick=[0.0, 0.5])
def test_two_classes_equal_logit(alpha):
    """Means within 10 and variances from 1e-4 to 1e3; log Z / α from -15 to -1e-9."""
    generator = np.random.default_rng(121)
    mean = generator.uniform(-10.0, 10.0, (2, 60))
    variance = 10.0 ** generator.uniform(-4.0, 3.0, (2, 60))
    label = generator.integers(0, 2, 60)
    for row, (first, second) in enumerate(((1e-4, 1e-4), (1e3, 1e3), (1e3, 1e-4), (1e-4, 1e3))):
        mean[:, 2 * row : 2 * row + 2] = np.array([[10.0], [-10.0]])
        variance[:, 2 * row : 2 * row + 2] = np.array([[first], [second]])
        label[2 * row : 2 * row + 2] = (0, 1)
    found = tilted(label, mean, variance, alpha)
    for n, y in enumerate(label):
        log_Z, d1, d2 = two_classes(mean[y, n] - mean[1 - y, n], variance[:, n].sum(), alpha)
        sign = np.where(np.arange(2) == y, 1.0, -1.0)
        assert_close([value[..., n] for value in found], (log_Z, sign * d1, d2))
    assert found[0].min() < -15.0 and found[0].max() > -1e-8


@partly_slow("alpha", POWERS, quick=[0.0, 0.5])
def test_three_classes_match_quadrature(alpha):
    label, mean, variance = random_rows(122, 3, 6, lowest=-3.0, highest=0.5)
    found = tilted(label, mean, variance, alpha)
    for n, y in enumerate(label):
        assert_close(
            [value[..., n] for value in found],
            several_classes(y, mean[:, n], variance[:, n], alpha),
        )


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_derivatives_match_finite_differences(alpha):
    """
    Fourth-order differences in each mean, h = 2e-2: h⁴ F(6)/90 is 1e-9, rounding 1e-12/h² less.
    """
    C = 20
    n = 4
    h = 2e-2
    label, mean, variance = random_rows(124, C, n, lowest=-1.3, highest=1.3)
    _, d1, d2, ratio = tilted(label, mean, variance, alpha)
    for k in (0, int(label[0]), C - 1):
        step = (
            h * np.kron([[-2, -1, 0, 1, 2]], np.ones((1, n))) * (np.arange(C) == k)[:, None]
        )  # [C, 5 n]
        values = tilted(np.tile(label, 5), np.tile(mean, 5) + step, np.tile(variance, 5), alpha)[
            0
        ].reshape(5, n)
        slope, curvature = slope_and_curvature(values, h)
        assert_near(d1[k], slope, 2e-8)
        assert_near(d2[k], curvature, 2e-8)
    assert_allclose(ratio, 1.0 + alpha * variance * d2, rtol=1e-12)


@pytest.mark.parametrize(
    "case",
    [(2, 3.0, 1e-4, 0.05), (10, 15.0, 0.05, 60.0), (2, 40.0, 0.1, 1e6), (10, 30.0, 1e-4, 1e3)],
)
def test_probabilities_of_all_classes_by_one_integral(case):
    """
    They equal those of each label to 2e-9, the sum of both errors; with very different variances
    some rows need panels.
    """
    generator = np.random.default_rng(0)
    C, largest, *ends = case
    mean = generator.uniform(-largest, largest, (C, 50))
    variance = np.exp(generator.uniform(*np.log(ends), (C, 50)))
    mean[0, 0] = -1e5  # far below the others
    cavity = Cavity(double(mean), double(variance))
    rule = rule_for(Softmax(C), "kl")
    inputs = double(mean.T)
    found = rule.class_probabilities(cavity, inputs).numpy()
    assert found[0, 0] < 1e-12
    by_label = TiltedRule.class_probabilities(rule, cavity, inputs)
    assert_allclose(found[:, 1:], by_label[:, 1:], rtol=1e-7, atol=2e-9)
    assert_allclose(found.sum(axis=0), 1.0, rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_gradients(alpha):
    """
    Of log Z / α and of probabilities, in means and variances; differences with h = 3e-3, h⁴ F(5)/30
    = 1e-9.
    """
    rule = rule_for(Softmax(4), "kl")
    label, *moments = random_rows(125, 4, 5, lowest=-0.5, highest=0.5)
    rows = rows_of(label)
    sources = list(map(tf.Variable, moments))
    power = double(alpha)

    def value():
        cavity = Cavity(*map(tf.convert_to_tensor, sources))
        p = rule.class_probabilities(cavity, rows.X)
        return tf.reduce_sum(log_partition(rule, cavity, rows, power)) + tf.reduce_sum(p * p)

    assert_gradients(value, sources, h=3e-3, tolerance=1e-7)


def test_small_alpha_converges_to_alpha_zero():
    """log Z / α = E[log p] + α Var[log p]/2 + ..., without cancellation in the division by α."""
    rows = random_rows(126, 5, 20, highest=2.0)
    limit, nearer, half, near = (tilted(*rows, alpha)[:3] for alpha in (0.0, 1e-12, 0.5e-6, 1e-6))
    assert_all_close(nearer, limit, rtol=1e-9, atol=1e-11)
    # To 1e-15 E[log p]/1e-6 and 1e-6 of itself.
    slope = (near[0] - limit[0]) / 1e-6
    assert_allclose((half[0] - limit[0]) / 0.5e-6, slope, rtol=1e-4, atol=1e-6)
    assert np.all(slope > 0.0)


@partly_slow("alpha", [0.0, 1.0], quick=[1.0])
def test_extreme_cavities_are_finite(alpha):
    """
    Means apart by 1000, no variance, one of 1e7; -log p is convex with a curvature of at most 1/4.
    """
    mean = np.array(
        [
            [0.0, 1000.0, 0.0, 0.0, 30.0],
            [1000.0, 0.0, 1.0, 300.0, 0.0],
            [-500.0, 3.0, 2.0, -300.0, -1e3],
        ]
    )
    variance = np.array(
        [[1e-4, 1.0, 0.0, 1e7, 40.0], [1e-4, 1.0, 0.0, 30.0, 1e4], [1.0, 1e-9, 0.0, 1e-3, 1e-8]]
    )
    found = tilted(np.zeros(5, int), mean, variance, alpha)
    for value in found:
        assert np.all(np.isfinite(value))
    assert np.all(found[3] <= 1.0 + 1e-9) and np.all(
        found[3] * (1.0 + 0.25 * alpha * variance) >= 1.0 - 1e-6
    )
    # The first is -1000 + α (v_0 + v_1)/2; the second 0; the third known
    assert found[0][0] == pytest.approx(-1000.0 + alpha * 1e-4, rel=CLOSE)
    assert abs(found[0][1]) < 1e-300
    known = log_softmax(mean[:, 2])
    assert found[0][2] == pytest.approx(known[0], rel=1e-10)
    assert_allclose(found[1][:, 2], np.eye(3)[0] - np.exp(known), rtol=1e-9)
    assert_allclose(found[2][:, 2], -np.exp(known) * (1.0 - np.exp(known)), rtol=1e-9)
    # The remaining rows have two classes: the third is far away
    for n in (3, 4):
        log_Z, d1, d2 = two_classes(mean[0, n] - mean[1, n], variance[:2, n].sum(), alpha)
        sign = np.array([1.0, -1.0])
        assert_close(
            [found[0][n], found[1][:2, n], found[2][:2, n]], (log_Z, sign * d1, d2), rel=1e-8
        )


def test_distant_means():
    """
    y's mean 19,000 below another one: p = exp(f_y - f_k). Farther below, log Z / α is NaN, not a
    wrong number. Above, p is 1.
    """
    gap = np.array([1.9e4, -1e8, 2.1e4, 1e6])
    for alpha in (0.0, 0.5):
        found = tilted(
            np.zeros(4, int), np.stack([0.0 * gap, gap, gap - 3e5]), np.full((3, 4), 0.5), alpha
        )
        assert_close(
            [value[..., 0] for value in found],
            (-gap[0] + 0.5 * alpha, np.array([1.0, -1.0, 0.0]), 0.0),
        )
        assert abs(found[0][1]) < 1e-300
        assert np.all(np.isnan(found[0][2:]))


def test_compiles_for_any_number_of_rows():
    """More rows than a chunk; rows depend on each other only through rounding."""
    C = 30
    n = 10
    label, mean, variance = random_rows(128, C, n)
    rule = rule_for(Softmax(C), "kl")

    @tf.function(
        input_signature=[
            tf.TensorSpec([C, None], tf.float64), tf.TensorSpec([C, None], tf.float64),
            tf.TensorSpec([None, 1], tf.float64), tf.TensorSpec([], tf.float64),
        ]
    )  # fmt: skip
    def compiled(mean, variance, Y, alpha):
        return rule.moments(Cavity(mean, variance), Observations(Y, Y), alpha)

    expected = tilted(label, mean, variance, 0.4)
    for rows in (slice(0, n), slice(5, 6)):
        found = compiled(mean[:, rows], variance[:, rows], label[rows, None].astype(float), 0.4)
        assert found.log_partition.shape[0] == 1 and found.d1.shape == mean[:, rows].shape
        for actual, wanted in zip(found, expected, strict=True):
            assert_allclose(
                np.squeeze(actual), np.squeeze(wanted[..., rows]), rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("variance", [1e8, 1e10, 1e12])
def test_variance_ratio_is_bounded(variance):
    """
    -(log p)'' is between 0 and 1/4; d2, of which rounding leaves 1e-16 or so, is multiplied by the
    variance.
    """
    generator = np.random.default_rng(3)
    mean = np.sqrt(variance) * 3.0 * generator.normal(size=(3, 100))
    _, _, d2, ratio = tilted(generator.integers(0, 3, 100), mean, np.full((3, 100), variance), 1.0)
    assert np.all((ratio >= 1.0 / (1.0 + 0.25 * variance)) & (ratio <= 1.0))
    assert_near(1.0 + variance * d2, ratio, 1e-12)


@pytest.mark.parametrize("label", [-1.0, 3.0, 0.5])
def test_rejects_invalid_labels(label):
    with stopped(r"Y must hold the labels 0, 1, \.\.\., 2"):
        tilted([label, 0.0], np.zeros((3, 2)), np.ones((3, 2)), 0.5)


def test_rejects_wasserstein():
    with refused('projection must be "kl" for Softmax, got'):
        rule_for(Softmax(3), "wasserstein")
