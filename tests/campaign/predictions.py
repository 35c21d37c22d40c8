"""
Random predictive densities of every scalar likelihood against SciPy's densities, integrated over f.

A case is a likelihood with parameters over several orders of magnitude and twenty marginals of f,
with variances from 1e-4 to 100 and observations near the marginal, far from it, or at the edge of
the possible. All follows from its seed.

    python -m campaign.predictions [--cases 1000] [--minutes 60] [--seed 0] [--output FILE.json]
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Bernoulli, Beta, Exponential, Gamma, Ordinal, Poisson, StudentT
from scipy import stats
from scipy.special import logsumexp, softplus

from campaign.running import Campaign, Outcome, Rng, guarded, judged
from gpflow_pep.likelihoods import Logit, Probit
from gpflow_pep.tilted.predictive import predicted_log_density

_TOLERANCE = 1e-5  # nats
_ROWS = 20
# Points f in standard deviations of the marginal, whose density ends at e^-540.
_Z = np.linspace(-33.0, 33.0, 400_001)
# To find the center of these points, if y contradicts the marginal.
_FAR = np.linspace(-300.0, 300.0, 6001)

Density = Callable[[AnyNDArray, float], AnyNDArray]
"""log p(y|f) of many f."""
Drawn = tuple[gpflow.likelihoods.Likelihood, Density, Callable[[AnyNDArray], AnyNDArray]]
"""A likelihood, its density, and how to draw y given f."""


class Case(NamedTuple):
    """A likelihood and rows."""

    seed: int
    name: str
    likelihood: gpflow.likelihoods.Likelihood
    density: Density
    mean: AnyNDArray
    variance: AnyNDArray
    Y: AnyNDArray


def _within_1e_3(p: AnyNDArray) -> AnyNDArray:
    """Probabilities by GPflow's probit, which stays 1e-3 away from 0 and 1."""
    return 1e-3 + (1.0 - 2e-3) * p


def _labels(likelihood: Any, log_p: Callable[[AnyNDArray], AnyNDArray]) -> Callable[..., Drawn]:
    """log p(y = 1|f) = log_p(f) and log p(y = 0|f) = log_p(-f)."""

    def drawn(rng: Rng, size: float) -> Drawn:
        return likelihood, lambda f, y: log_p(f if y else -f), lambda f: rng.integers(0, 2, f.shape)

    return drawn


def _counts(invlink: Any, mean: Callable[[AnyNDArray], AnyNDArray]) -> Callable[..., Drawn]:
    def drawn(rng: Rng, size: float) -> Drawn:
        def density(f: AnyNDArray, y: float) -> AnyNDArray:
            return stats.poisson.logpmf(y, size * mean(f))

        return (
            Poisson(invlink, binsize=size),
            density,
            lambda f: rng.poisson(np.minimum(size * mean(f), 1e4)),
        )

    return drawn


def _student_t(rng: Rng, size: float) -> Drawn:
    df = 10.0 ** rng.uniform(0.2, 2.0)
    likelihood = StudentT(scale=size, df=df)
    return (
        likelihood,
        lambda f, y: stats.t.logpdf(y, df, f, size),
        lambda f: f + size * rng.standard_t(df, f.shape),
    )


def _gamma(rng: Rng, size: float) -> Drawn:
    likelihood = Gamma()
    likelihood.shape.assign(size)
    return (
        likelihood,
        lambda f, y: stats.gamma.logpdf(y, size, scale=np.exp(f)),
        _gamma_draws(rng, size),
    )


def _exponential(rng: Rng, size: float) -> Drawn:
    return (
        Exponential(),
        lambda f, y: stats.expon.logpdf(y, scale=np.exp(f)),
        _gamma_draws(rng, 1.0),
    )


def _gamma_draws(rng: Rng, shape: float) -> Callable[[AnyNDArray], AnyNDArray]:
    return lambda f: np.maximum(rng.gamma(shape, np.exp(np.clip(f, -9.0, 9.0))), 1e-12)


def _beta(rng: Rng, size: float) -> Drawn:
    def density(f: AnyNDArray, y: float) -> AnyNDArray:
        mean = _within_1e_3(stats.norm.cdf(f))
        return stats.beta.logpdf(y, size * mean, size * (1.0 - mean))

    return Beta(scale=size), density, lambda f: rng.uniform(1e-3, 0.999, f.shape)


def _ordinal(rng: Rng, size: float) -> Drawn:
    edges = np.sort(rng.normal(size=3))
    likelihood = Ordinal(edges)
    likelihood.sigma.assign(size)

    def density(f: AnyNDArray, y: float) -> AnyNDArray:
        below = _within_1e_3(stats.norm.cdf((edges[:, None] - f) / size))
        # As in GPflow, but divided by their sum.
        p = np.diff(below, axis=0, prepend=1e-3, append=1.0 - 1e-3) + 1e-6
        return np.log(p[int(y)] / p.sum(axis=0))

    return likelihood, density, lambda f: rng.integers(0, 4, f.shape)


LIKELIHOODS: dict[str, Callable[..., Drawn]] = {
    "probit": _labels(Probit(), stats.norm.logcdf),
    "logit": _labels(Logit(), lambda f: -softplus(-f)),
    "Bernoulli": _labels(Bernoulli(), lambda f: np.log(_within_1e_3(stats.norm.cdf(f)))),
    "Bernoulli, sigmoid": _labels(Bernoulli(tf.sigmoid), lambda f: -softplus(-f)),
    "Poisson": _counts(tf.exp, np.exp),
    "Poisson, softplus": _counts(tf.nn.softplus, softplus),
    "Student-t": _student_t,
    "gamma": _gamma,
    "exponential": _exponential,
    "beta": _beta,
    "ordinal": _ordinal,
}


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(LIKELIHOODS)))
    likelihood, density, draw = LIKELIHOODS[name](rng, 10.0 ** rng.uniform(-1.5, 2.0))
    mean = rng.normal(scale=3.0, size=_ROWS)
    variance = 10.0 ** rng.uniform(-4.0, 2.0, size=_ROWS)
    f = mean + rng.choice([0.0, 1.0, 6.0], size=_ROWS) * rng.normal(size=_ROWS) * np.sqrt(variance)
    return Case(seed, name, likelihood, density, mean, variance, np.asarray(draw(f), dtype=float))


def expected(density: Density, mean: float, variance: float, y: float) -> float:
    """Return log ∫ p(y|f) N(f; m, v) df, by the trapezoid rule."""

    def integrand(z: AnyNDArray) -> AnyNDArray:
        with np.errstate(all="ignore"):
            log_p = density(mean + np.sqrt(variance) * z, y)
        return np.where(np.isnan(log_p), -np.inf, log_p) - 0.5 * np.square(z)

    largest = _FAR[np.argmax(integrand(_FAR))]
    total = logsumexp(integrand(_Z + (largest if abs(largest) > 20.0 else 0.0)))
    return float(total + np.log(_Z[1] - _Z[0]) - 0.5 * np.log(2.0 * np.pi))


def run(case: Case) -> Outcome:
    """Compare the densities of all rows; the largest error decides."""
    return guarded(lambda: _judged(case))


def _judged(case: Case) -> Outcome:
    rows = (each[:, None] for each in (case.mean, case.variance, case.Y))
    found = predicted_log_density(case.likelihood, np.zeros((_ROWS, 1)), *rows).numpy()
    wanted = [
        expected(case.density, *row) for row in zip(case.mean, case.variance, case.Y, strict=True)
    ]
    errors = np.abs(found - wanted) / _TOLERANCE
    worst = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
    where = (
        f"mean {case.mean[worst]:.4g}, variance {case.variance[worst]:.4g}, y {case.Y[worst]:.4g}"
    )
    return judged({"density": float(errors[worst])})._replace(message=where)


CAMPAIGN = Campaign(run, words=lambda case: (case.name,), verdicts=("right",))

if __name__ == "__main__":
    CAMPAIGN.main(__doc__, case_of, 1000)
