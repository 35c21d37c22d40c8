"""
Compare the time of a sweep under the Wasserstein projection with a sweep under KL in the same run.

A sweep computes cavities, tilted distributions, matching sites and their sums for all rows. The
table has the time of `update_sites()` at converged sites, which computes the matrices of the prior
and one sweep. N = 20,000 rows, M = 100; medians of the ratios within rounds.

    python -m experiments.benchmarks.projections [--rounds 15]
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np

from experiments.benchmarks.collapsed_step import time_rounds
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep import PEP
from gpflow_pep.likelihoods import Logit, Probit

NUM_DATA, INDUCING = 20_000, 100
LIKELIHOODS: dict[str, Callable[[], Any]] = {
    "Probit": Probit,
    "Logit": Logit,
    "Poisson": gpflow.likelihoods.Poisson,
    "StudentT": lambda: gpflow.likelihoods.StudentT(scale=0.3),
}


def main() -> None:
    """Print a row per likelihood and power."""
    parser = parser_of(__doc__)
    parser.option("--rounds", 15)
    parser.option("--likelihoods", list(LIKELIHOODS), choices=LIKELIHOODS)
    asked = parser.parse_args()
    table = Table(
        f"N = {NUM_DATA}, M = {INDUCING}, {asked.rounds} rounds, medians",
        {
            "likelihood": "<10",
            "alpha": "g",
            "KL, ms": ".1f",
            "Wasserstein, ms": ".1f",
            "ratio": ".2f",
        },
    )
    for name in asked.likelihoods:
        for alpha in (0.0, 0.5, 1.0):
            sweeps = {
                projection: converged(name, alpha, projection).update_sites
                for projection in ("kl", "wasserstein")
            }
            kl, wasserstein = time_rounds(sweeps, asked.rounds).values()
            times = (1e3 * np.median(kl), 1e3 * np.median(wasserstein))
            table.add(name, alpha, *times, np.median(wasserstein / kl))
    write([table], asked.json)


def converged(name: str, alpha: float, projection: str) -> PEP:
    """Return a model with converged sites, which another sweep does not change."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, (NUM_DATA, 2))
    f = 1.5 * np.sin(2.0 * X.sum(axis=1, keepdims=True))
    noisy = f + 0.3 * rng.standard_t(4.0, f.shape)
    Y = {"Poisson": rng.poisson(np.exp(f)).astype(float), "StudentT": noisy}.get(
        name, np.where(noisy > 0.0, 1.0, 0.0)
    )
    kernel = gpflow.kernels.SquaredExponential(2.0, lengthscales=0.8)
    Z = X[rng.choice(NUM_DATA, INDUCING, replace=False)]
    model = PEP((X, Y), kernel, LIKELIHOODS[name](), Z, alpha=alpha, projection=projection)
    assert model.update_sites().converged
    assert model.update_sites().sweeps == 0
    return model


if __name__ == "__main__":
    main()
