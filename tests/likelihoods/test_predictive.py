"""Predictions of ordinal labels agree with numerical integration; other likelihoods use GPflow's predictions."""

import gpflow
import numpy as np
import pytest
from quick import some_slow
from scipy.integrate import quad
from scipy.stats import norm

from gpflow_pep import PEP
from gpflow_pep.likelihoods.predictive import predicted_log_density, predicted_moments
from gpflow_pep.training import fit

EDGES = np.array([-1.0, 0.2, 1.5])
X = np.linspace(-2.0, 2.0, 12)[:, None]
Y = np.digitize(1.5 * X, EDGES).astype(float)


def ordinal(sigma=0.7):
    likelihood = gpflow.likelihoods.Ordinal(EDGES)
    likelihood.sigma.assign(sigma)
    return likelihood


def probability(label, f, sigma):
    """GPflow's probabilities: differences of (1 - 2e-3) Phi + 1e-3."""
    cumulative = np.concatenate([[0.0], norm.cdf((EDGES - f) / sigma), [1.0]])
    return 0.998 * (cumulative[label + 1] - cumulative[label])


def expected(function, mean, variance):
    """Expectation over f ~ N(mean, variance), with an error of 1e-11."""
    sd = np.sqrt(variance)
    kinks = [place for place in (EDGES - mean) / sd if abs(place) < 10.0]
    value, _ = quad(lambda t: function(mean + sd * t) * norm.pdf(t), -10.0, 10.0, points=kinks, epsabs=1e-13, limit=500)
    return value


@pytest.mark.parametrize("sigma", some_slow([0.05, 0.7, 3.0], 1))
def test_ordinal_matches_quadrature(sigma):
    for mean, variance in [(0.0, 1.0), (0.3, 1e-3), (-2.0, 25.0), (6.0, 0.5), (40.0, 1.0)]:
        likelihood, f = ordinal(sigma), (np.array([[mean]]), np.array([[variance]]))
        probabilities = [expected(lambda f, k=k: probability(k, f, sigma), mean, variance) for k in range(4)]
        first = sum(k * p for k, p in enumerate(probabilities))
        second = sum(k**2 * p for k, p in enumerate(probabilities))
        found = predicted_moments(likelihood, X[:1], *f)
        np.testing.assert_allclose([float(each[0, 0]) for each in found], [first, second - first**2], rtol=0, atol=1e-9)
        for label, p in enumerate(probabilities):
            density = predicted_log_density(likelihood, X[:1], *f, np.array([[float(label)]]))
            assert float(np.exp(density[0])) == pytest.approx(p + 1e-6, abs=1e-10)


def test_several_columns_and_batch_dimensions():
    """Labels of a row are independent given f; leading dimensions are preserved."""
    rng = np.random.default_rng(0)
    mean, variance, labels = rng.normal(size=(2, 5, 3)), rng.uniform(size=(2, 5, 3)), rng.integers(0, 4, (2, 5, 3))
    density = predicted_log_density(ordinal(), np.zeros((2, 5, 1)), mean, variance, labels)
    apart = [
        predicted_log_density(
            ordinal(), X[:1], *(np.reshape(each[b, n, c], (1, 1)) for each in (mean, variance, labels))
        )
        for b, n, c in np.ndindex(2, 5, 3)
    ]
    np.testing.assert_allclose(density, np.reshape(apart, (2, 5, 3)).sum(axis=-1), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("columns", some_slow([1, 2], 1))
def test_model_predicts_ordinal_labels(columns):
    """Predictions follow from the marginals and are close to the data; held-out scores are finite."""
    labels = np.tile(Y, columns)
    model = PEP((X, labels), gpflow.kernels.SquaredExponential(2.0), ordinal(0.3), X[::3].copy(), alpha=0.5)
    mean, variance = (np.asarray(each) for each in model.predict_y(X))
    assert mean.shape == variance.shape == (12, columns)
    np.testing.assert_array_less(np.abs(mean - labels), 0.8)
    f = [np.asarray(each) for each in model.predict_f(X)]
    for n, c in np.ndindex(12, columns):
        p = [expected(lambda x, k=k: probability(k, x, 0.3), f[0][n, c], f[1][n, c]) for k in range(4)]
        assert mean[n, c] == pytest.approx(np.dot(p, range(4)), abs=1e-9)
    density = np.asarray(model.predict_log_density((X, labels)))
    assert density.shape == (12,)
    result = fit(model, held_out=(X, labels), max_iterations=1)
    assert np.isfinite(result.held_out["nlpd"]).all()


@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.Bernoulli(), gpflow.likelihoods.Poisson(), gpflow.likelihoods.StudentT()]
)
def test_other_likelihoods_use_gpflow(likelihood):
    f = np.array([[0.3], [-1.0]]), np.array([[0.5], [2.0]])
    labels = np.array([[1.0], [0.0]])
    for found, gpflow_s in zip(
        predicted_moments(likelihood, X[:2], *f), likelihood.predict_mean_and_var(X[:2], *f), strict=True
    ):
        np.testing.assert_array_equal(found, gpflow_s)
    np.testing.assert_array_equal(
        predicted_log_density(likelihood, X[:2], *f, labels), likelihood.predict_log_density(X[:2], *f, labels)
    )
