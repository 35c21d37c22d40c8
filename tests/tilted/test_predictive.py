"""Predictions of y agree with numerical integration over f at any variance, for all likelihoods."""

from itertools import product

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from scipy.stats import norm

from gpflow_pep import PEP, likelihoods
from gpflow_pep.tilted.predictive import predicted_log_density, predicted_moments

EDGES = np.array([-1.0, 0.2, 1.5])
X = np.linspace(-2.0, 2.0, 12)[:, None]
MARGINALS = [(0.0, 1.0), (0.5, 1e-4), (-3.0, 0.3), (4.0, 3.3), (-1.0, 30.0), (2.0, 100.0)]
NO_INPUTS = np.zeros((1, 1))


def with_value(likelihood, name, value):
    getattr(likelihood, name).assign(value)
    return likelihood


def scalar_likelihoods():
    """Each likelihood with observations, some of them improbable."""
    lib = gpflow.likelihoods
    return {
        "poisson": (lib.Poisson(), [0.0, 1.0, 100.0, 300.0]),
        "poisson, softplus": (lib.Poisson(tf.nn.softplus, binsize=2.0), [0.0, 3.0, 30.0]),
        "student-t": (lib.StudentT(scale=0.05), [0.0, 1.0, 30.0]),
        "gamma": (with_value(lib.Gamma(), "shape", 100.0), [1e-2, 1.0, 300.0]),
        "exponential": (lib.Exponential(), [1e-3, 1.0, 100.0]),
        "beta": (lib.Beta(scale=5.0), [1e-3, 0.4, 0.999]),
        "logit": (likelihoods.Logit(), [0.0, 1.0]),
        "bernoulli": (lib.Bernoulli(), [0.0, 1.0]),
        "bernoulli, sigmoid": (lib.Bernoulli(tf.sigmoid), [0.0, 1.0]),
        "ordinal": (with_value(lib.Ordinal(EDGES), "sigma", 0.3), [0.0, 1.0, 2.0, 3.0]),
    }


def one_row(*values):
    return [np.full((1, 1), value) for value in values]


def ordinal_probabilities(f, sigma=0.3):
    """GPflow's probabilities, [K, n], divided by their sum: differences of (1 - 2e-3) Phi + 1e-3, plus 1e-6."""
    below = norm.cdf((EDGES[:, None] - f) / sigma)
    return (0.998 * np.diff(below, axis=0, prepend=0.0, append=1.0) + 1e-6) / (0.998 + 4e-6)


def grid(mean, variance):
    """Points f [K, 1] and the log weights [K] of expectations."""
    sd = np.sqrt(variance)
    z = np.linspace(-33.0, 33.0, 60_001)
    return (mean + sd * z)[:, None], -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) + np.log(z[1] - z[0])


@pytest.mark.parametrize("name", scalar_likelihoods())
def test_log_density_matches_integration(name):
    likelihood, values = scalar_likelihoods()[name]
    rows = [(*marginal, value) for marginal, value in product(MARGINALS, values)]
    found = predicted_log_density(
        likelihood, np.zeros((len(rows), 1)), *np.array(rows).T[:, :, None]
    )
    for (mean, variance, value), density in zip(rows, found.numpy(), strict=True):
        f, log_weights = grid(mean, variance)
        if name == "ordinal":
            log_prob = np.log(ordinal_probabilities(f[:, 0])[int(value)])
        else:
            log_prob = np.asarray(likelihood.log_prob(NO_INPUTS, f, np.full(f.shape, value)))
        expected = logsumexp(log_weights + np.where(np.isnan(log_prob), -np.inf, log_prob))
        assert density == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", scalar_likelihoods())
def test_moments_match_integration(name):
    likelihood, _ = scalar_likelihoods()[name]
    for mean, variance in MARGINALS:
        f, log_weights = grid(mean, variance)
        weights = np.exp(log_weights)
        if name == "ordinal":
            p = ordinal_probabilities(f[:, 0])
            first, second = np.arange(4) @ p, np.arange(4) ** 2 @ p
        else:
            first = np.asarray(likelihood.conditional_mean(NO_INPUTS, f))[:, 0]
            second = np.asarray(likelihood.conditional_variance(NO_INPUTS, f))[:, 0] + first**2
        expected = weights @ first, weights @ second - (weights @ first) ** 2
        found = predicted_moments(likelihood, NO_INPUTS, *one_row(mean, variance))
        np.testing.assert_allclose(
            [float(each[0, 0]) for each in found], expected, rtol=1e-7, atol=1e-15
        )


LABELLED = {
    "probit": (likelihoods.Probit(), 1, 2),
    "logit": (likelihoods.Logit(), 1, 2),
    "bernoulli": (gpflow.likelihoods.Bernoulli(), 1, 2),
    "ordinal": (gpflow.likelihoods.Ordinal(EDGES), 1, 4),
    "softmax": (gpflow.likelihoods.Softmax(3), 3, 3),
    "multi-class": (gpflow.likelihoods.MultiClass(3), 3, 3),
    "robust-max": (likelihoods.MultiClassRobustMax(3), 3, 3),
}


@pytest.mark.parametrize("name", LABELLED)
def test_probabilities_add_up_to_one(name):
    likelihood, C, count = LABELLED[name]
    rng = np.random.default_rng(0)
    mean, variance = 3.0 * rng.normal(size=(20, C)), 10.0 ** rng.uniform(-4.0, 4.0, (20, C))
    densities = [
        predicted_log_density(
            likelihood, np.zeros((20, 1)), mean, variance, np.full((20, 1), float(k))
        )
        for k in range(count)
    ]
    p = np.exp(densities)
    np.testing.assert_allclose(p.sum(axis=0), 1.0, rtol=0, atol=1e-9)
    found, spread = predicted_moments(likelihood, np.zeros((20, 1)), mean, variance)
    if C > 1:
        np.testing.assert_allclose(found, p.T, rtol=0, atol=1e-9)
    else:
        np.testing.assert_allclose(found[:, 0], np.arange(count) @ p, rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            spread[:, 0], np.arange(count) ** 2 @ p - (np.arange(count) @ p) ** 2, rtol=0, atol=1e-8
        )


def test_softmax_probabilities_match_quadrature_and_do_not_depend_on_batches():
    Y = np.digitize(X, [-0.5, 0.5]).astype(float)
    model = PEP(
        (X, Y), gpflow.kernels.SquaredExponential(9.0), gpflow.likelihoods.Softmax(3), X[::3].copy()
    )
    p = model.predict_y(X)[0].numpy()
    np.testing.assert_allclose(model.predict_y(X)[0], p, rtol=0, atol=1e-12)
    parts = [model.predict_y(part)[0] for part in np.split(X, [1, 4])]
    np.testing.assert_allclose(np.concatenate(parts), p, rtol=0, atol=1e-12)
    x, w = np.polynomial.hermite_e.hermegauss(60)
    nodes = np.stack(np.meshgrid(x, x, x), axis=-1).reshape(-1, 3)
    weights = np.prod(np.stack(np.meshgrid(w, w, w), axis=-1).reshape(-1, 3), axis=1) / w.sum() ** 3
    for row, mean, variance in zip(p, *(each.numpy() for each in model.predict_f(X)), strict=True):
        f = mean + np.sqrt(variance) * nodes
        expected = weights @ np.exp(f - logsumexp(f, axis=1, keepdims=True))
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-6)


def test_several_columns_and_batch_dimensions():
    """Labels of a row are independent given f; leading dimensions are preserved."""
    rng = np.random.default_rng(0)
    mean, variance, labels = (
        rng.normal(size=(2, 5, 3)),
        rng.uniform(size=(2, 5, 3)),
        rng.integers(0, 4, (2, 5, 3)),
    )
    likelihood = gpflow.likelihoods.Ordinal(EDGES)
    density = predicted_log_density(likelihood, np.zeros((2, 5, 1)), mean, variance, labels)
    apart = [
        predicted_log_density(
            likelihood,
            X[:1],
            *(np.reshape(each[b, n, c], (1, 1)) for each in (mean, variance, labels)),
        )
        for b, n, c in np.ndindex(2, 5, 3)
    ]
    np.testing.assert_allclose(density, np.reshape(apart, (2, 5, 3)).sum(axis=-1), rtol=1e-12)


def test_many_rows_are_predicted_in_chunks():
    rng = np.random.default_rng(0)
    mean, variance, inputs = (
        rng.normal(size=(5000, 1)),
        rng.uniform(size=(5000, 1)),
        np.zeros((5000, 1)),
    )
    likelihood, Y = likelihoods.Logit(), rng.integers(0, 2, (5000, 1)).astype(float)
    density = predicted_log_density(likelihood, inputs, mean, variance, Y)
    moments = predicted_moments(likelihood, inputs, mean, variance)
    last = slice(4990, None)
    rows = inputs[last], mean[last], variance[last]
    np.testing.assert_allclose(
        density[last], predicted_log_density(likelihood, *rows, Y[last]), rtol=1e-12
    )
    for all_rows, some in zip(moments, predicted_moments(likelihood, *rows), strict=True):
        np.testing.assert_allclose(all_rows[last], some, rtol=1e-12)


def test_a_certain_f_has_the_density_of_the_likelihood():
    likelihood = gpflow.likelihoods.StudentT()
    found = predicted_log_density(likelihood, NO_INPUTS, *one_row(0.3, 0.0, 1.0))
    np.testing.assert_allclose(
        found, likelihood.log_prob(NO_INPUTS, np.array([[0.3]]), np.array([[1.0]])), rtol=1e-9
    )
    mean, variance = predicted_moments(likelihood, NO_INPUTS, *one_row(0.3, 0.0))
    np.testing.assert_allclose(
        [mean[0, 0], variance[0, 0]],
        [0.3, likelihood.conditional_variance(NO_INPUTS, NO_INPUTS)[0, 0]],
        rtol=1e-9,
    )
