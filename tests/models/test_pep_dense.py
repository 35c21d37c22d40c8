"""PEP against power EP as it is defined, over u, with tilted distributions summed up on a grid.

`Definition` has none of the package's algebra: natural parameters of q(u), cavities with the
fraction of a site taken out of them, the moments of N(f; m, v) p(y|f)^α from 4001 points, and the
energy from log-normalizers G (JMLR 18(104), app. G). The trapezoidal rule over ±14 standard
deviations in steps of 0.007 of them is right to rounding, for these smooth integrands; divisions by
α = 0.5 and inverses of matrices of condition 1e2 leave 1e-12, sites that have converged to TOL as
much again. The model's own quadrature is good to 1e-8 by its word, in practice to 1e-11: CLOSE.
"""

from dataclasses import replace
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
from gpflow.functions import Constant
from gpflow.kernels import Matern52
from model_values import energy_at_sites
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln, log_ndtr
from scipy.stats import t as student

from gpflow_pep import PEP
from gpflow_pep.likelihoods import Probit

CLOSE = 1e-9
TOL = 1e-12
GRID = np.linspace(-14.0, 14.0, 4001)
X = np.array([[0.0], [0.8], [1.7], [2.3]])
FEWER = np.array([[0.2], [1.1], [2.2]])
MEAN = 0.3


class Observed(NamedTuple):
    """A likelihood of GPflow, log p(y|f) without it, and observations of X."""

    likelihood: type
    log_prob: object
    Y: np.ndarray
    alphas: tuple


OBSERVED = {
    "Poisson": Observed(
        gpflow.likelihoods.Poisson,
        lambda f, y: y * f - np.exp(f) - gammaln(y + 1.0),
        np.array([0.0, 2.0, 5.0, 1.0]),
        (0.0, 0.5, 1.0),
    ),
    "StudentT": Observed(
        lambda: gpflow.likelihoods.StudentT(scale=0.6),
        lambda f, y: student.logpdf(y, 3.0, f, 0.6),
        np.array([-0.4, 1.5, 4.5, 0.6]),
        (0.5, 1.0),
    ),
}


class Definition:
    """
    q(u) ∝ p(u) Π exp(h_n w_n'u - τ_n (w_n'u)²/2); f_n = w_n'u + m + N(0, scale d_n). One power, or
    one for each row.
    """

    def __init__(self, kernel, Z, log_prob, Y, alpha, scale=1.0):
        Kuu = kernel(Z).numpy()
        Kuf = kernel(Z, X).numpy()
        self.W = np.linalg.solve(Kuu, Kuf)  # [M, N], columns w_n
        self.d = np.diag(kernel(X).numpy() - Kuf.T @ self.W)
        self.d = np.where(np.abs(self.d) < 1e-14, 0.0, self.d)
        self.prior = np.linalg.inv(Kuu)
        self.d, self.scale = scale * self.d, scale
        self.log_prob, self.Y, self.alpha = log_prob, Y, np.broadcast_to(alpha, len(Y))
        self.t, self.h = np.zeros(len(Y)), np.zeros(len(Y))

    def natural(self):
        return self.W @ self.h, self.prior + (self.W * self.t) @ self.W.T

    @staticmethod
    def log_normalizer(linear, precision):
        """G of exp(linear'u - u'precision u/2), without M/2 log 2 pi."""
        return (
            0.5 * linear @ np.linalg.solve(precision, linear)
            - 0.5 * np.linalg.slogdet(precision)[1]
        )

    def cavity(self, n):
        linear, precision = self.natural()
        w = self.W[:, n]
        alpha = self.alpha[n]
        return linear - alpha * self.h[n] * w, precision - alpha * self.t[n] * np.outer(w, w)

    def tilted(self, n):
        """
        log Z, mean and variance of f under N(f; m, v) p^α; log Z is E[log p] at α = 0, where it is
        not tilted.
        """
        linear, precision = self.cavity(n)
        w = self.W[:, n]
        m = w @ np.linalg.solve(precision, linear)
        s = w @ np.linalg.solve(precision, w)
        v = s + self.d[n]
        f = MEAN + m + np.sqrt(v) * GRID
        weight = np.exp(-0.5 * GRID**2) * (GRID[1] - GRID[0]) / np.sqrt(2.0 * np.pi)
        log_prob = self.log_prob(f, self.Y[n])
        if self.alpha[n] == 0.0:
            return (
                np.sum(weight * log_prob),
                m,
                s,
                v,
                self._gaussian_derivatives(weight, log_prob, v),
            )
        weight = weight * np.exp(self.alpha[n] * log_prob)
        Z = np.sum(weight)
        mean = np.sum(weight * GRID) / Z
        square = np.sum(weight * GRID**2) / Z
        derivatives = mean / np.sqrt(v), (square - mean**2 - 1.0) / v  # of log Z in m
        return np.log(Z), m, s, v, derivatives

    @staticmethod
    def _gaussian_derivatives(weight, log_prob, v):
        """Of E[log p] in m, by Stein's lemma."""
        return np.sum(weight * log_prob * GRID) / np.sqrt(v), np.sum(
            weight * log_prob * (GRID**2 - 1.0)
        ) / v

    def matching(self, n):
        """
        The site whose fraction, times the cavity, gives w_n'u the moments of the tilted
        distribution.
        """
        _, m, s, _, (slope, curvature) = self.tilted(n)
        if self.alpha[n] == 0.0:
            return -curvature, slope - curvature * m
        mean = m + s * slope
        variance = s + s**2 * curvature
        precision = 1.0 / variance - 1.0 / s
        linear = mean / variance - m / s
        return precision / self.alpha[n], linear / self.alpha[n]

    def converge(self):
        for _ in range(400):
            t, h = np.transpose([self.matching(n) for n in range(len(self.Y))])
            change = max(np.max(np.abs(t - self.t)), np.max(np.abs(h - self.h)))
            self.t, self.h = 0.5 * (self.t + t), 0.5 * (self.h + h)
            if change < 1e-13:
                break
        assert change < 1e-11
        return self

    def energy(self):
        """
        With the integral for each row of p(f|u)^α q(f|u)^(1-α), to the power 1/α, where q(f|u) has
        the variance scale d: {log m - log(1 + α (m - 1))/α}/2.
        """
        q = self.natural()
        total = self.log_normalizer(*q)
        total -= self.log_normalizer(np.zeros(len(self.prior)), self.prior)
        for n in range(len(self.Y)):
            log_Z, mean, s, *_ = self.tilted(n)
            if self.alpha[n] == 0.0:  # the bound: E[log p] - E[log t]
                total += log_Z - self.h[n] * mean + 0.5 * self.t[n] * (mean**2 + s)
            else:
                excess = np.log1p(self.alpha[n] * (self.scale - 1.0))
                log_Z += self.log_normalizer(*self.cavity(n)) - self.log_normalizer(*q)
                total += (log_Z - 0.5 * excess) / self.alpha[n] + 0.5 * np.log(self.scale)
        return total


@pytest.fixture(scope="module", autouse=True)
def _no_jitter():
    with gpflow.config.as_context(replace(gpflow.config.config(), jitter=0.0)):
        yield


CASES = [
    pytest.param((name, full), marks=[] if (name, full) == ("Poisson", False) else pytest.mark.slow)
    for name in OBSERVED
    for full in (True, False)
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    name, full = request.param
    observed = OBSERVED[name]
    Z = X if full else FEWER
    kernel = Matern52(1.4, lengthscales=0.9)
    mean = Constant(MEAN)
    model = PEP(
        (X, observed.Y[:, None]),
        kernel,
        observed.likelihood(),
        Z,
        mean_function=mean,
        tol=TOL,
    )
    return observed, model


def test_matches_dense_power_ep(case):
    """Sites, energy, q(u) and, from Z = X, q(f)."""
    observed, model = case
    Z = model.inducing_variable.Z.numpy()
    for alpha in observed.alphas:
        model.alpha = alpha
        status = model.update_sites()
        expected = Definition(model.kernel, Z, observed.log_prob, observed.Y, alpha).converge()
        assert status.converged
        assert_allclose(model.sites.precision[:, 0], expected.t, rtol=0.0, atol=CLOSE)
        assert_allclose(
            model.sites.linear[:, 0], expected.h, rtol=0.0, atol=CLOSE * abs(expected.h).max()
        )
        assert float(model.maximum_log_likelihood_objective()) == pytest.approx(
            expected.energy(), abs=CLOSE
        )
        assert status.log_evidence == pytest.approx(expected.energy(), abs=CLOSE)
        linear, precision = expected.natural()
        q_mu, q_cov = model.compute_qu()
        assert_allclose(q_cov, np.linalg.inv(precision), rtol=0.0, atol=CLOSE)
        assert_allclose(q_mu[:, 0], np.linalg.solve(precision, linear), rtol=0.0, atol=CLOSE)


def assert_energy_at_any_sites(model, definition, rng):
    """At random sites, which the evaluation leaves as they are."""
    definition.t, definition.h = rng.uniform(-0.1, 0.5, 4), rng.normal(size=4)
    model.sites.precision.assign(definition.t[:, None])
    model.sites.linear.assign(definition.h[:, None])
    assert energy_at_sites(model) == pytest.approx(definition.energy(), abs=CLOSE)
    assert_array_equal(model.sites.precision[:, 0], definition.t)


def test_energy_at_any_sites(case):
    """Not only where they have converged: the definition is the same."""
    observed, model = case
    rng = np.random.default_rng(2)
    for alpha in observed.alphas:
        model.alpha = alpha
        definition = Definition(
            model.kernel, model.inducing_variable.Z.numpy(), observed.log_prob, observed.Y, alpha
        )
        assert_energy_at_any_sites(model, definition, rng)
    model.reset_sites()


@pytest.mark.parametrize(
    ("alpha", "scale"),
    [(1.0, 1.0), (0.3, 1.0), (0.3, 1.7), (np.array([0.3, 1.0, 0.5, 0.8]), 0.6)],
)
def test_energy_of_powers_and_scales_at_any_sites(alpha, scale):
    labels = np.array([0.0, 1.0, 1.0, 0.0])
    kernel = Matern52(3.0)
    mean = Constant(MEAN)
    model = PEP(
        (X, labels[:, None]),
        kernel,
        Probit(),
        FEWER,
        alpha=alpha,
        scale=scale,
        mean_function=mean,
    )
    definition = Definition(
        kernel, FEWER, lambda f, y: log_ndtr((2.0 * y - 1.0) * f), labels, alpha, scale
    )
    assert_energy_at_any_sites(model, definition, np.random.default_rng(81))
