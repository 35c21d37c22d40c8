"""
How often the sites of PEP converge from default settings: random problems of every likelihood, and
what they took.

A problem is a likelihood, a projection, alpha in {0, .01, .2, .5, .8, 1}, a kernel of variance 1e-3
to 1e4 and lengthscale 1e-3 to 1e3, N and M, and observations that the model itself would generate,
that have nothing to do with the inputs, that are separable, or that are extreme (counts of 1,000
and more, outliers). All follow from the seed. Problems that do not converge are printed, then a
table.

    python -m campaign.convergence [--problems 700] [--minutes 60] [--seed 0] [--only robust-max]
"""

import time
import warnings
from collections.abc import Callable
from itertools import cycle, islice
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
)

from campaign.running import Campaign, Rng, options
from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Logit, Probit

ALPHAS = (0.0, 0.01, 0.2, 0.5, 0.8, 1.0)
_SIZES = (1, 2, 5, 20, 50, 100, 200)
_POINTS = (1, 3, 10, 30)
_CLASSES = 3
_LARGEST = 1e6  # of counts


class Kind(NamedTuple):
    """A likelihood, and how observations follow from latent values [N, C]."""

    make: Callable[[], gpflow.likelihoods.Likelihood]
    observe: Callable[[AnyNDArray, Rng], AnyNDArray]
    latent: int = 1
    projection: str = "kl"


class Problem(NamedTuple):
    """One problem of the campaign."""

    kind: str
    alpha: float
    variance: float
    lengthscale: float
    num_data: int
    num_inducing: int
    observations: str
    seed: int


class Outcome(NamedTuple):
    """The outcome."""

    verdict: str
    """"converged", "not converged", or the name of an exception."""
    sweeps: int
    change: float
    log_evidence: float
    seconds: float
    message: str


def _labels(F: AnyNDArray, rng: Rng) -> AnyNDArray:
    return (F[:, :1] + rng.standard_normal((len(F), 1)) > 0.0).astype(float)


def _counts(rate: AnyNDArray, rng: Rng) -> AnyNDArray:
    return rng.poisson(np.minimum(rate, _LARGEST)).astype(float)


def _classes(F: AnyNDArray, rng: Rng) -> AnyNDArray:
    return np.argmax(F + 0.1 * rng.standard_normal(F.shape), axis=1)[:, None].astype(float)


def _exp(F: AnyNDArray) -> AnyNDArray:
    return np.exp(np.clip(F[:, :1], -30.0, 30.0))


KINDS = {
    "probit": Kind(Probit, _labels),
    "logit": Kind(Logit, _labels),
    "Bernoulli": Kind(Bernoulli, _labels),
    "Student-t": Kind(StudentT, lambda F, rng: F[:, :1] + rng.standard_t(3.0, (len(F), 1))),
    "Poisson": Kind(Poisson, lambda F, rng: _counts(_exp(F), rng)),
    "Poisson, square": Kind(
        lambda: Poisson(invlink=tf.square),
        lambda F, rng: _counts(np.square(F[:, :1]), rng),
    ),
    "exponential": Kind(Exponential, lambda F, rng: rng.exponential(_exp(F)) + 1e-12),
    "gamma": Kind(Gamma, lambda F, rng: rng.gamma(1.0, _exp(F)) + 1e-12),
    "beta": Kind(
        Beta,
        lambda F, rng: np.clip(rng.beta(1.0 + _exp(-np.abs(F)), 1.5), 1e-3, 1.0 - 1e-3),
    ),
    "ordinal": Kind(
        lambda: Ordinal(np.array([-1.0, 0.0, 1.0])),
        lambda F, rng: np.digitize(
            F[:, :1] + rng.standard_normal((len(F), 1)), [-1.0, 0.0, 1.0]
        ).astype(float),
    ),
    "robust-max": Kind(lambda: MultiClassRobustMax(_CLASSES), _classes, _CLASSES),
    "softmax": Kind(lambda: Softmax(_CLASSES), _classes, _CLASSES),
}
KINDS |= {
    f"{name}, Wasserstein": KINDS[name]._replace(projection="wasserstein")
    for name in ("probit", "Poisson", "gamma", "Student-t")
}
OBSERVATIONS = ("of the model", "at random", "separable", "extreme")


def problems(number: int, seed: int, only: str | None = None) -> list[Problem]:
    """Return the problems of a seed, the kinds in turn."""
    rng = np.random.default_rng(seed)
    found = [
        Problem(
            kind,
            float(rng.choice(ALPHAS)),
            float(10.0 ** rng.uniform(-3.0, 4.0)),
            float(10.0 ** rng.uniform(-3.0, 3.0)),
            int(rng.choice(_SIZES)),
            int(rng.choice(_POINTS)),
            str(rng.choice(OBSERVATIONS)),
            int(rng.integers(2**31)),
        )
        for kind in islice(cycle(KINDS), number)
    ]
    return [problem for problem in found if only in (None, problem.kind)]


def data(problem: Problem) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """X [N, 2], Y [N, 1] and Z [M, 2] of a problem."""
    kind = KINDS[problem.kind]
    rng = np.random.default_rng(problem.seed)
    X = rng.uniform(-1.0, 1.0, (problem.num_data, 2))
    Z = X[: problem.num_inducing] if problem.num_inducing <= len(X) else X
    variance = problem.variance
    slope = np.array([[1.0, -0.5, 0.2], [0.3, 1.0, -0.7]])[:, : kind.latent]
    if problem.observations == "of the model":
        covariance = variance * np.exp(
            -0.5 * np.square((X[:, None] - X[None]) / problem.lengthscale).sum(axis=-1)
        ) + 1e-9 * variance * np.eye(len(X))
        F = np.linalg.cholesky(covariance) @ rng.standard_normal((len(X), kind.latent))
    elif problem.observations == "at random":
        F = rng.standard_normal((len(X), kind.latent))
    else:
        F = X @ slope * (100.0 if problem.observations == "separable" else 8.0)
    Y = kind.observe(F, rng)
    if problem.observations == "extreme" and kind.latent == 1 and "Student" in problem.kind:
        Y[0] += 1e3
    return X, Y, Z


class Models:
    """
    One model of each kind, which gets the data, alpha and kernel of one problem after another.
    """

    def __init__(self) -> None:
        self._models: dict[str, PEP] = {}

    def __call__(self, problem: Problem) -> PEP:
        """Return the model of a problem, its sites empty."""
        kind, (X, Y, Z) = KINDS[problem.kind], data(problem)
        if problem.kind not in self._models:
            kernel = gpflow.kernels.SquaredExponential()
            points = gpflow.inducing_variables.InducingPoints(
                gpflow.Parameter(Z, unconstrained_shape=[None, 2], constrained_shape=[None, 2])
            )
            self._models[problem.kind] = PEP(
                (X, Y), kernel, kind.make(), points, projection=kind.projection
            )
        model = self._models[problem.kind]
        model.kernel.variance.assign(problem.variance)
        model.kernel.lengthscales.assign(problem.lengthscale)
        model.alpha = problem.alpha
        model.inducing_variable.Z.assign(Z)
        model.data = (X, Y)
        model.reset_sites()
        return model


def solve(model: PEP) -> Outcome:
    """Update the sites of a model."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = model.update_sites()
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        seconds = time.process_time() - began
        return Outcome(type(error).__name__, 0, np.nan, np.nan, seconds, str(error).strip()[-300:])
    seconds = time.process_time() - began
    name = "converged" if status.converged else "not converged"
    return Outcome(name, status.sweeps, status.change, status.log_evidence, seconds, "")


def main() -> None:
    """Run the campaign and print a table."""
    parser = options(__doc__, 700, "problems")
    parser.add_argument("--only", choices=KINDS, help="problems of this kind only")
    arguments = parser.parse_args()
    models = Models()
    campaign = Campaign(lambda problem: solve(models(problem)), tuple, ("converged",))
    drawn = problems(arguments.problems, arguments.seed, arguments.only)
    print_table(campaign.run_all(drawn, arguments))


def print_table(ended: list[tuple[Problem, Outcome]]) -> None:
    """Print how many problems of each kind converged, and the most that one took."""
    columns = ("problems", "converged", "sweeps: median", "largest", "seconds: largest")
    print(f"\n{'':26}" + "".join(f"{name:>18}" for name in columns))
    for kind in [*KINDS, "all"]:
        of_kind = [outcome for problem, outcome in ended if kind in (problem.kind, "all")]
        if of_kind:
            share = np.mean([outcome.verdict == "converged" for outcome in of_kind])
            sweeps = [outcome.sweeps for outcome in of_kind]
            seconds = max(outcome.seconds for outcome in of_kind)
            print(
                f"{kind:26}{len(of_kind):18}{share:18.1%}{np.median(sweeps):18.0f}"
                f"{max(sweeps):18}{seconds:18.2f}"
            )


if __name__ == "__main__":
    main()
