"""Predictions of y agree with numerical integration over f at any variance, for all likelihoods."""

import functools
from itertools import product

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_near
from gpflow.functions import Linear
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    MultiClass,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from numpy.testing import assert_allclose
from quick import some_slow
from scipy import stats
from scipy.special import expit, gammaln, logsumexp, softplus
from scipy.stats import norm

from gpflow_pep import likelihoods
from gpflow_pep.tilted.predictive import predicted_log_density, predicted_moments

EDGES = np.array([-1.0, 0.2, 1.5])
X = np.linspace(-2.0, 2.0, 12)[:, None]
MARGINALS = [(0.0, 1.0), (0.5, 1e-4), (-3.0, 0.3), (4.0, 3.3), (-1.0, 30.0), (2.0, 100.0)]
NO_INPUTS = np.zeros((1, 1))


def with_value(likelihood, name, value):
    getattr(likelihood, name).assign(value)
    return likelihood


def one_row(*values):
    return [np.full((1, 1), value) for value in values]


def ordinal_probabilities(f):
    """
    GPflow's probabilities, [K, n], divided by their sum: differences of (1 - 2e-3) Phi + 1e-3, plus
    1e-6.
    """
    below = norm.cdf((EDGES[:, None] - f) / 0.3)
    return (0.998 * np.diff(below, axis=0, prepend=0.0, append=1.0) + 1e-6) / (0.998 + 4e-6)


def ordinal_mean(f):
    return np.arange(4) @ ordinal_probabilities(f)


class Tanh(ScalarLikelihood):
    """y = tanh(f) and noise of variance 1, as users define a likelihood."""

    def _scalar_log_prob(self, X, F, Y):
        return -0.5 * tf.square(Y - tf.tanh(F)) - 0.5 * np.log(2.0 * np.pi)

    def _conditional_mean(self, X, F):
        return tf.tanh(F)

    def _conditional_variance(self, X, F):
        return tf.ones_like(F)


class ZeroInflated(Poisson):
    """Counts, three of ten of which are 0 for another reason."""

    def _scalar_log_prob(self, X, F, Y):
        of_rate = np.log(0.7) + super()._scalar_log_prob(X, F, Y)
        return tf.where(Y == 0.0, tf.math.log(0.3 + tf.exp(of_rate)), of_rate)

    def _conditional_mean(self, X, F):
        return 0.7 * tf.exp(F)

    def _conditional_variance(self, X, F):
        return 0.7 * tf.exp(F) + 0.21 * tf.exp(2.0 * F)


class Mistaken(likelihoods.Probit):
    """Every tenth label is the other one."""

    def _scalar_log_prob(self, X, F, Y):
        return tf.math.log(0.1 + 0.8 * tf.exp(super()._scalar_log_prob(X, F, Y)))

    def _conditional_mean(self, X, F):
        return 0.1 + 0.8 * super()._conditional_mean(X, F)

    def _conditional_variance(self, X, F):
        return self._conditional_mean(X, F) * (1.0 - self._conditional_mean(X, F))


def jittered(f):
    """GPflow's probit, which stays 1e-3 away from 0 and 1."""
    return 1e-3 + (1.0 - 2e-3) * norm.cdf(f)


def log_softplus(f):
    return np.where(f < -30.0, f, np.log(softplus(np.maximum(f, -30.0))))


def gamma_density(log_scale, y, shape):
    constant = (shape - 1.0) * np.log(y) - gammaln(shape)
    return constant - shape * log_scale - y * np.exp(-log_scale)


def poisson_density(log_rate, y):
    return y * log_rate - np.exp(log_rate) - gammaln(y + 1.0)


def beta_density(f, y):
    """a = expit(f) and b = 1 - a; log Γ(a) = log Γ(a + 1) - log a."""
    a = expit(f)
    b = expit(-f)
    log_gammas = gammaln(a + 1.0) + gammaln(b + 1.0) + softplus(-f) + softplus(f)
    return (a - 1.0) * np.log(y) + (b - 1.0) * np.log1p(-y) - log_gammas


# A likelihood, mean and variance of y given f, log p(y|f), and values of y, some improbable.
ANYWHERE = {
    "student-t": (
        StudentT(scale=1.0, df=4.0),
        lambda f: f,
        lambda f: 2.0 + 0.0 * f,
        lambda f, y: stats.t.logpdf(y, 4.0, f),
        [0.0, 3.0],
    ),
    "poisson, softplus": (
        Poisson(tf.nn.softplus, binsize=2.0),
        lambda f: 2.0 * softplus(f),
        lambda f: 2.0 * softplus(f),
        lambda f, y: poisson_density(np.log(2.0) + log_softplus(f), y),
        [0.0, 1.0, 30.0],
    ),
    "exponential, softplus": (
        Exponential(tf.nn.softplus),
        softplus,
        lambda f: softplus(f) ** 2,
        lambda f, y: gamma_density(log_softplus(f), y, 1.0),
        [0.1, 1.0, 50.0],
    ),
    "gamma, softplus": (
        with_value(Gamma(tf.nn.softplus), "shape", 3.0),
        lambda f: 3.0 * softplus(f),
        lambda f: 3.0 * softplus(f) ** 2,
        lambda f, y: gamma_density(log_softplus(f), y, 3.0),
        [0.1, 1.0, 50.0],
    ),
    "logit": (
        likelihoods.Logit(),
        expit,
        lambda f: expit(f) * expit(-f),
        lambda f, y: -softplus(-f if y else f),
        [0.0, 1.0],
    ),
    "bernoulli": (
        Bernoulli(),
        jittered,
        lambda f: jittered(f) * jittered(-f),
        lambda f, y: np.log(jittered(f if y else -f)),
        [0.0, 1.0],
    ),
    "beta": (
        Beta(scale=5.0),
        jittered,
        lambda f: jittered(f) * jittered(-f) / 6.0,
        lambda f, y: stats.beta.logpdf(y, 5.0 * jittered(f), 5.0 * jittered(-f)),
        [1e-3, 0.3, 0.999],
    ),
    "beta, sigmoid": (
        Beta(tf.sigmoid),
        expit,
        lambda f: expit(f) * expit(-f) / 2.0,
        beta_density,
        [0.3, 0.999],
    ),
    "probit with mistakes": (
        Mistaken(),
        lambda f: 0.1 + 0.8 * norm.cdf(f),
        lambda f: (0.1 + 0.8 * norm.cdf(f)) * (0.9 - 0.8 * norm.cdf(f)),
        lambda f, y: np.log(0.1 + 0.8 * norm.cdf(f if y else -f)),
        [0.0, 1.0],
    ),
    "custom": (
        Tanh(),
        np.tanh,
        lambda f: 1.0 + 0.0 * f,
        lambda f, y: norm.logpdf(y, np.tanh(f)),
        [0.5, 2.0],
    ),
}
# Their moments overflow for some marginals, or their densities are too narrow for `panels`.
SOMEWHERE = {
    "narrow student-t": (
        StudentT(scale=0.05),
        lambda f: f,
        lambda f: 3.0 * 0.05**2 + 0.0 * f,
        lambda f, y: stats.t.logpdf(y, 3.0, f, 0.05),
        [0.0, 1.0, 30.0],
    ),
    "poisson": (Poisson(), np.exp, np.exp, poisson_density, [0.0, 1.0, 100.0, 300.0]),
    "poisson with zeros": (
        ZeroInflated(),
        lambda f: 0.7 * np.exp(f),
        lambda f: 0.7 * np.exp(f) + 0.21 * np.exp(2.0 * f),
        lambda f, y: np.logaddexp(
            np.log(0.3) if y == 0.0 else -np.inf, np.log(0.7) + poisson_density(f, y)
        ),
        [0.0, 1.0, 5.0],
    ),
    "exponential": (
        Exponential(),
        np.exp,
        lambda f: np.exp(2.0 * f),
        lambda f, y: gamma_density(f, y, 1.0),
        [1e-3, 1.0, 100.0],
    ),
    "gamma": (
        with_value(Gamma(), "shape", 100.0),
        lambda f: 100.0 * np.exp(f),
        lambda f: 100.0 * np.exp(2.0 * f),
        lambda f, y: gamma_density(f, y, 100.0),
        [1e-2, 1.0, 300.0],
    ),
    "bernoulli, sigmoid": (Bernoulli(tf.sigmoid), *ANYWHERE["logit"][1:]),
    "ordinal": (
        with_value(Ordinal(EDGES), "sigma", 0.3),
        ordinal_mean,
        lambda f: np.arange(4) ** 2 @ ordinal_probabilities(f) - ordinal_mean(f) ** 2,
        lambda f, y: np.log(ordinal_probabilities(f)[int(y)]),
        [0.0, 1.0, 2.0, 3.0],
    ),
}
RATIOS = [0.0, 1.0, -3.0, 10.0, -15.0, 27.0, -40.0, 1e4]  # mean over standard deviation
VARIANCES = 10.0 ** np.arange(-8.0, 6.5, 3.0)
WIDE = [(ratio * np.sqrt(variance), variance) for ratio, variance in product(RATIOS, VARIANCES)]


@functools.lru_cache(maxsize=16)  # tests take the same marginals
def panels(mean, sd, reach):
    """
    Points f and log weights, about 1e5 of each: panels of half a standard deviation, and of a third
    of |f|.
    """
    near_zero = 10.0 ** np.arange(-3.0, 11.0, 0.125)
    edges = np.concatenate(
        [mean + sd * np.linspace(-38.0, 38.0, 153), near_zero, -near_zero, [0.0]]
    )
    edges = np.unique(edges[np.abs(edges - mean) <= reach])
    x, weights = np.polynomial.legendre.leggauss(300)
    half = 0.5 * np.diff(edges)[:, None]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, None]
    z = (middle - mean) / sd + half / sd * x
    log_weights = norm.logpdf(z) + np.log(half / sd * weights)
    return (middle + half * x).ravel(), log_weights.ravel()


def of_all(quick):
    """All likelihoods at some marginals, and those that can at any, of which one is not slow."""
    few = [(name, MARGINALS) for name in ANYWHERE | SOMEWHERE]
    return some_slow([*few, *((name, WIDE) for name in ANYWHERE)], len(few), quick=[(quick, WIDE)])


@pytest.mark.parametrize(("name", "marginals"), of_all("student-t"))
def test_moments_match_integration(name, marginals):
    """
    Narrow and wide marginals of f, up to 10,000 standard deviations from 0, where the links change.
    """
    likelihood, conditional_mean, conditional_variance, _, _ = (ANYWHERE | SOMEWHERE)[name]
    rows = np.array(marginals)
    found = predicted_moments(likelihood, np.zeros((len(rows), 1)), rows[:, :1], rows[:, 1:])
    for (mean, variance), *moments in zip(
        rows, *(each.numpy()[:, 0] for each in found), strict=True
    ):
        sd = np.sqrt(variance)
        # Farther out the squares of exponentials overflow.
        f, log_weights = panels(mean, sd, 33.0 * sd)
        weights = np.exp(log_weights)
        expected = weights @ conditional_mean(f)
        spread = weights @ np.square(conditional_mean(f) - expected)
        # Likelihoods round p(1 - p), and means near 0, to eps. The mean of f at 0 is rounded
        # relative to sd.
        atol = 1e-8 * sd if "student-t" in name else 1e-15
        assert_allclose(
            moments,
            [expected, spread + weights @ conditional_variance(f)],
            rtol=1e-7,
            atol=atol,
            err_msg=f"mean {mean}, variance {variance}",
        )


@pytest.mark.parametrize(("name", "marginals"), of_all("exponential, softplus"))
def test_log_densities_match_integration(name, marginals):
    likelihood, _, _, log_density, values = (ANYWHERE | SOMEWHERE)[name]
    rows = [
        (mean, variance, y)
        for (mean, variance), y in product(marginals, values)
        # Farther out the mode is more than 38 standard deviations from the mean of f, where
        # `panels` are too wide.
        if variance < 1e5 and (abs(mean) < 100.0 * np.sqrt(variance) or variance < 1e-7)
    ]
    tolerance = 1e-6
    if marginals is WIDE:
        tolerance = 1e-5
    columns = np.array(rows).T[:, :, None]
    found = predicted_log_density(likelihood, np.zeros((len(rows), 1)), *columns)
    for (mean, variance, y), density in zip(rows, found, strict=True):
        sd = np.sqrt(variance)
        f, log_weights = panels(mean, sd, 38.0 * sd + abs(mean) + 1e3)
        with np.errstate(over="ignore"):
            expected = logsumexp(log_weights + log_density(f, y))
        assert_allclose(
            density, expected, rtol=1e-9, atol=tolerance, err_msg=f"{mean, variance, y}"
        )


def test_a_density_that_is_not_a_number_is_not_zero():
    """
    A custom density whose link underflows: NaN, which models refuse, but not the probability 0.
    """

    class Underflowing(Tanh):
        def _scalar_log_prob(self, X, F, Y):
            scale = tf.nn.softplus(F)
            return -tf.math.log(scale) - Y / scale

    found = predicted_log_density(Underflowing(), NO_INPUTS, *one_row(0.0, 1e4, 1.0))
    assert np.isnan(found).all()


LABELLED = {
    "probit": (likelihoods.Probit(), 1, 2),
    "logit": (likelihoods.Logit(), 1, 2),
    "bernoulli": (Bernoulli(), 1, 2),
    "ordinal": (Ordinal(EDGES), 1, 4),
    "softmax": (Softmax(3), 3, 3),
    "multi-class": (MultiClass(3), 3, 3),
    "robust-max": (likelihoods.MultiClassRobustMax(3), 3, 3),
}


@pytest.mark.parametrize("name", LABELLED)
def test_probabilities_add_up_to_one(name):
    likelihood, C, count = LABELLED[name]
    rng = np.random.default_rng(0)
    mean = 3.0 * rng.normal(size=(20, C))
    variance = 10.0 ** rng.uniform(-4.0, 4.0, (20, C))
    densities = [
        predicted_log_density(
            likelihood, np.zeros((20, 1)), mean, variance, np.full((20, 1), float(k))
        )
        for k in range(count)
    ]
    p = np.exp(densities)
    assert_near(p.sum(axis=0), 1.0, 1e-9)
    found, spread = predicted_moments(likelihood, np.zeros((20, 1)), mean, variance)
    if C > 1:
        assert_near(found, p.T, 1e-9)
    else:
        assert_near(found[:, 0], np.arange(count) @ p, 1e-9)
        assert_near(spread[:, 0], np.arange(count) ** 2 @ p - (np.arange(count) @ p) ** 2, 1e-8)


def test_several_columns_and_batch_dimensions():
    """Labels of a row are independent given f; leading dimensions are preserved."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(2, 5, 3))
    variance = rng.uniform(size=(2, 5, 3))
    labels = rng.integers(0, 4, (2, 5, 3))
    likelihood = Ordinal(EDGES)
    density = predicted_log_density(likelihood, np.zeros((2, 5, 1)), mean, variance, labels)
    apart = [
        predicted_log_density(
            likelihood,
            X[:1],
            *(np.reshape(each[b, n, c], (1, 1)) for each in (mean, variance, labels)),
        )
        for b, n, c in np.ndindex(2, 5, 3)
    ]
    assert_allclose(density, np.reshape(apart, (2, 5, 3)).sum(axis=-1), rtol=1e-12)


def test_many_rows_are_predicted_in_chunks():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(5000, 1))
    variance = rng.uniform(size=(5000, 1))
    inputs = np.zeros((5000, 1))
    likelihood = likelihoods.Logit()
    Y = rng.integers(0, 2, (5000, 1)).astype(float)
    density = predicted_log_density(likelihood, inputs, mean, variance, Y)
    moments = predicted_moments(likelihood, inputs, mean, variance)
    last = slice(4990, None)
    rows = inputs[last], mean[last], variance[last]
    assert_allclose(density[last], predicted_log_density(likelihood, *rows, Y[last]), rtol=1e-12)
    some = predicted_moments(likelihood, *rows)
    assert_all_close([values[last] for values in moments], some, rtol=1e-12)


@pytest.mark.parametrize(("df", "expected"), [(1.0, np.inf), (2.0, np.inf), (3.0, 2.75)])
def test_a_variance_of_student_t_may_be_infinite(df, expected):
    """It is s² df / (df - 2) with s = 0.5 here, and 2 of f."""
    _, variance = predicted_moments(StudentT(0.5, df=df), NO_INPUTS, *one_row(0.3, 2.0))
    assert variance[0, 0] == expected


def test_densities_of_a_switched_likelihood_of_two_functions():
    """The index in the last column belongs to both."""
    parts = [Gaussian(0.1), StudentT(0.5)]
    mean = np.linspace(-1.0, 1.0, 12).reshape(6, 2)
    variance = np.linspace(0.2, 2.0, 12).reshape(6, 2)
    y = np.sin(np.arange(12.0)).reshape(6, 2)
    index = np.arange(6)[:, None] % 2
    Y = np.hstack([y, index])
    found = predicted_log_density(SwitchedLikelihood(parts), X[:6], mean, variance, Y)
    apart = [
        sum(
            predicted_log_density(part, X[:6], mean[:, [c]], variance[:, [c]], y[:, [c]])
            for c in range(2)
        )
        for part in parts
    ]
    assert_allclose(found, np.where(index[:, 0] == 0, *apart), rtol=1e-7)


@pytest.mark.parametrize(
    "likelihood",
    [
        StudentT(scale=Linear([[0.2], [0.0]], 0.5)),
        with_value(Gamma(), "shape", 2.0),
        ZeroInflated(),
        Ordinal(EDGES),
    ],
)
def test_gradients_of_log_densities_in_all_arguments(likelihood):
    """Two latent functions. Labels and counts have no gradient."""
    arguments = [
        np.array([[0.5, -0.3], [1.5, 0.4]]),
        np.array([[0.3, -0.4], [0.1, 30.0]]),
        np.array([[0.5, 2.0], [0.01, 0.7]]),
        np.array([[1.0, 2.0], [3.0, 1.0]]),
    ]
    step = 3e-6
    variables = list(map(tf.Variable, arguments))
    with tf.GradientTape() as tape:
        densities = predicted_log_density(likelihood, *variables)
    gradients = tape.gradient(densities, variables, unconnected_gradients="zero")
    number = 12 if isinstance(likelihood, ZeroInflated | Ordinal) else 16
    moves = step * np.eye(16).reshape(16, 4, 2, 2)[:number]  # of one entry each
    below, above = (
        np.sum(predicted_log_density(likelihood, *np.swapaxes(each + arguments, 0, 1)), axis=1)
        for each in (-moves, moves)
    )
    slopes = (above - below) / (2.0 * step)
    assert_allclose(np.ravel(gradients)[:number], slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variance", [0.0, 1e-200])
def test_a_certain_f_far_from_0_has_the_variance_of_the_likelihood(variance):
    """
    A Poisson rate exp(400), 5e173: its variance is the mean, and its square times v = 1e-200 adds
    e^800 1e-200.
    """
    found, spread = predicted_moments(Poisson(), NO_INPUTS, *one_row(400.0, variance))
    rate = np.exp(400.0)
    assert_allclose(
        [found[0, 0], spread[0, 0]], [rate, rate + rate * (rate * variance)], rtol=1e-13
    )


def test_a_subclass_of_ordinal_has_its_own_density():
    class Squared(Ordinal):
        def _scalar_log_prob(self, X, F, Y):
            return 2.0 * super()._scalar_log_prob(X, F, Y)

    row = one_row(0.3, 0.0, 1.0)
    found = predicted_log_density(Squared(EDGES), NO_INPUTS, *row)
    expected = 2.0 * Ordinal(EDGES).log_prob(NO_INPUTS, row[0], row[2])
    assert_allclose(found, expected, rtol=1e-6)


def test_a_certain_f_has_the_density_of_the_likelihood():
    likelihood = StudentT()
    found = predicted_log_density(likelihood, NO_INPUTS, *one_row(0.3, 0.0, 1.0))
    assert_allclose(
        found, likelihood.log_prob(NO_INPUTS, np.array([[0.3]]), np.array([[1.0]])), rtol=1e-9
    )
    mean, variance = predicted_moments(likelihood, NO_INPUTS, *one_row(0.3, 0.0))
    assert_allclose(
        [mean[0, 0], variance[0, 0]],
        [0.3, likelihood.conditional_variance(NO_INPUTS, NO_INPUTS)[0, 0]],
        rtol=1e-9,
    )
