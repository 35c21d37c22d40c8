"""Binary likelihoods against 40 digits, in both codings of the labels."""

import mpmath
import numpy as np
import pytest
import tensorflow as tf
from mpmath import mp, mpf
from numpy.testing import assert_allclose
from refusals import refused

from gpflow_pep.likelihoods import Logit, Probit

LABELS = [(0, 1), (-1, 1)]
both_labels = pytest.mark.parametrize("labels", LABELS)
both = pytest.mark.parametrize("kind", [Probit, Logit])
F = np.array([-60.0, -13.0, -5.0, -1.2, 0.0, 0.3, 2.0, 6.0, 20.0])
MEANS = np.array([-3.0, -0.4, 0.0, 1.1, 4.0])
VARIANCES = np.array([0.3, 2.0, 1.0, 0.05, 9.0])


@pytest.fixture(autouse=True)
def forty_digits():
    with mp.workdps(40):
        yield


def log_phi(x):
    x = mpf(float(x))
    return mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x > 0 else mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def log_sigmoid(x):
    x = mpf(float(x))
    return -mp.log1p(mp.exp(-x))


LOG_CDF = {Probit: log_phi, Logit: log_sigmoid}


def floats(values):
    return np.array([float(value) for value in values])


def probability(kind, mean, variance):
    """∫ S(f) N(f; mean, variance) df."""
    mean = mpf(float(mean))
    variance = mpf(float(variance))
    sd = mp.sqrt(variance)

    def integrand(x):
        return mp.exp(LOG_CDF[kind](mean + sd * x)) * mp.npdf(x)

    with mp.workdps(20):
        return mpmath.quad(integrand, [-10, -5, -2, 0, 2, 5, 10], maxdegree=4)


# --- likelihoods ----------------------------------------------------------------------------------


def call(function, *columns):
    """Call a method of a likelihood on columns of numbers, with X."""
    columns = [tf.constant(np.asarray(column, float)[:, None]) for column in columns]
    return function(tf.zeros_like(columns[0]), *columns)


@both
@both_labels
def test_log_prob_matches_high_precision(kind, labels):
    """Relative error 1e-14 for log p above 1e-80; the two probabilities sum to 1."""
    likelihood = kind(labels=labels)
    low, high = (call(likelihood.log_prob, F, np.full(9, label)).numpy() for label in labels)
    assert_allclose(high, floats(LOG_CDF[kind](f) for f in F), rtol=1e-13)
    assert_allclose(low, floats(LOG_CDF[kind](-f) for f in F), rtol=1e-13)
    assert_allclose(np.exp(low) + np.exp(high), 1.0, rtol=1e-14)


@both
def test_log_prob_in_the_tails(kind):
    """log p neither overflows nor underflows."""
    found = call(kind().log_prob, [-800.0, 800.0, 800.0, -800.0], [1.0, 1.0, 0.0, 0.0]).numpy()
    assert found[1] == 0.0 and found[3] == 0.0 and found[0] == found[2]
    assert_allclose(found[0], float(LOG_CDF[kind](-800.0)), rtol=1e-14)


@both
@both_labels
def test_conditional_moments_match_probabilities(kind, labels):
    likelihood, (low, high) = kind(labels=labels), labels
    mean, variance = (
        call(method, F) for method in (likelihood.conditional_mean, likelihood.conditional_variance)
    )
    p = floats(mp.exp(LOG_CDF[kind](f)) for f in F)
    q = floats(mp.exp(LOG_CDF[kind](-f)) for f in F)
    # 1 - p has an error of 1e-16 for p near 1; p has an error of x² roundings.
    assert_allclose(mean[:, 0], low * q + high * p, rtol=1e-12, atol=1e-15)
    assert_allclose(variance[:, 0], (high - low) ** 2 * p * q, rtol=1e-12, atol=1e-15)


@both
@both_labels
def test_predictions_match_quadrature(kind, labels):
    """
    Probit: in closed form. Logit: by GPflow's Gauss-Hermite with 20 nodes, good to 1e-3 at variance
    9 (a sigmoid over three units, nodes that are 1.4 apart).
    """
    likelihood, (low, high) = kind(labels=labels), labels
    p = floats(probability(kind, m, v) for m, v in zip(MEANS, VARIANCES, strict=True))
    tolerance = 1e-13 if kind is Probit else 1e-3
    mean, variance = call(likelihood.predict_mean_and_var, MEANS, VARIANCES)
    assert_allclose(mean[:, 0], low + (high - low) * p, rtol=tolerance, atol=tolerance)
    assert_allclose(variance[:, 0], (high - low) ** 2 * p * (1 - p), rtol=20 * tolerance)
    for label, expected in ((low, np.log1p(-p)), (high, np.log(p))):
        density = call(likelihood.predict_log_density, MEANS, VARIANCES, np.full(5, label))
        assert_allclose(density, expected, rtol=20 * tolerance)


def test_certain_predictions_are_accurate():
    """log p = -1e-23, not 0."""
    found = float(call(Probit().predict_log_density, [10.0], [1e-4], [1.0])[0])
    assert_allclose(found, float(log_phi(mpf(10) / mp.sqrt(1 + mpf(1e-4)))), rtol=1e-12)


@both
@both_labels
def test_predict_y_with_several_outputs(kind, labels):
    """Densities are summed over outputs, means are not."""
    likelihood = kind(labels=labels)
    X = np.zeros((3, 1))
    Fmu = np.array([[0.3, -1.0], [2.0, 0.1], [-0.4, 0.0]])
    Fvar = np.full((3, 2), 0.7)
    Y = np.array([labels, labels[::-1], labels], float)
    together = likelihood.predict_log_density(X, Fmu, Fvar, Y)
    each = sum(
        likelihood.predict_log_density(X, Fmu[:, [k]], Fvar[:, [k]], Y[:, [k]]) for k in range(2)
    )
    assert_allclose(together, each, rtol=1e-13)
    assert likelihood.predict_mean_and_var(X, Fmu, Fvar)[0].shape == (3, 2)


@both
@both_labels
def test_variational_expectations_match_integrals(kind, labels):
    """
    Against E log S in 20 digits: 20 nodes are good to 1e-6 at variance 1 (poles at a distance of 2
    or more).
    """
    likelihood = kind(labels=labels)
    rows = MEANS, np.full(5, 0.5), np.full(5, labels[1])
    found = call(likelihood.variational_expectations, *rows)
    with mp.workdps(20):
        expected = [
            mpmath.quad(
                lambda x, m=m: LOG_CDF[kind](mpf(float(m)) + mp.sqrt(0.5) * x) * mp.npdf(x),
                [-9, -4, 0, 4, 9],
                maxdegree=4,
            )
            for m in MEANS
        ]
    assert_allclose(found, floats(expected), rtol=1e-5)


@both
def test_rejects_invalid_labels(kind):
    for labels in ((1, 2), (1, 0), (0, 1, 2), (-1, 0)):
        with refused(r"labels must be \(0, 1\) or \(-1, 1\), got"):
            kind(labels=labels)
    assert kind(labels=[-1, 1]).labels == (-1, 1) and kind().labels == (0, 1)
