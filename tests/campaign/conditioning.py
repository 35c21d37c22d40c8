"""A table of accuracy: condition number of Kuu by noise variance, against 50 digits.

Inducing points are 50 to a lengthscale, so that Kuu is singular to working precision, and a jitter
makes its condition number what is asked for. The reference takes the doubles of the model as exact.
Errors are those of the objective (relative to its terms), means (to the largest output) and
variances (to the kernel's), the worst of all cases. "refused" says that an error was raised that
names the matrix.

    python -m campaign.conditioning [--cases 5] [--seed 0] [--by-products]
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from support.products import preferring_products

from campaign.reference import power_ep, squared_exponential
from experiments.protocols.arguments import count
from gpflow_pep import BTSGPR, PEPR, TSGPR, StreamingSGPR

CONDITIONS = tuple(10.0**power for power in range(0, 17, 2))
NOISES = tuple(10.0**power for power in (-8, -6, -4, -2, 0, 2))
MODELS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    **{
        f"PEPR {alpha:g}": (partial(PEPR, alpha=alpha), {"alpha": alpha})
        for alpha in (0.0, 0.5, 1.0)
    },
    "StreamingSGPR 0.5": (partial(StreamingSGPR, alpha=0.5), {"alpha": 0.5}),
    "TSGPR": (TSGPR, {"alpha": 0.0, "structured": True}),
    "BTSGPR, rows": (partial(BTSGPR, blocks=1), {"alpha": 0.0, "structured": True}),
}
_N = 15
_M = 6
_SPACING = 0.02


def error_of(model: str, condition: float, noise: float, seed: int) -> float | None:
    """Return the largest error of one case; None if it was refused by name."""
    rng = np.random.default_rng(seed)
    lengthscale = 10.0 ** rng.uniform(-1.0, 1.0)
    variance = 10.0 ** rng.uniform(-1.0, 1.0)
    # A condition number of M or less: points so far apart that they do not covary.
    spacing = _SPACING if condition > _M else 20.0
    Z = lengthscale * spacing * (np.arange(_M)[:, None] + 0.1 * rng.random((_M, 1)))
    X = rng.uniform(Z.min() - lengthscale, Z.max() + lengthscale, size=(_N, 1))
    Y = np.sqrt(variance) * np.sin(X / lengthscale) + np.sqrt(noise) * rng.normal(size=(_N, 1))
    jitter = variance * _M / condition if condition > _M else 0.0
    Xnew = X[:3] + 0.1 * lengthscale
    make, options = MODELS[model]
    with gpflow.config.as_context(
        gpflow.config.Config(jitter=jitter, likelihood_positive_minimum=1e-10)
    ):
        trained = make(
            (X, Y),
            gpflow.kernels.SquaredExponential(variance, lengthscale),
            Z,
            noise_variance=noise,
        )
        held = (
            float(value.numpy()) for value in (trained.kernel.variance, trained.kernel.lengthscales)
        )
        noise = float(trained.likelihood.variance.numpy())
        exact = power_ep(
            (X, Y), squared_exponential(*held), Z, Xnew, noise=noise, jitter=jitter, **options
        )
        try:
            objective = float(trained.maximum_log_likelihood_objective())
            mean, spread = (value.numpy()[:, 0] for value in trained.predict_f(Xnew))
        except tf.errors.InvalidArgumentError:
            return None
    return max(
        abs(objective - exact.objective) / exact.size,
        float(np.abs(mean - exact.mean).max() / np.abs(Y).max()),
        float(np.abs(spread - exact.variance).max() / variance),
    )


def worst(model: str, condition: float, noise: float, seeds: Sequence[int]) -> str:
    """Return the largest error of several cases; "refused" if one of them was."""
    errors = [error_of(model, condition, noise, seed) for seed in seeds]
    known = [error for error in errors if error is not None]
    return f"{max(known):.0e}" if len(known) == len(errors) else "refused"


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=count, default=5, help="for each entry (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (%(default)s)")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL"
    )
    parser.add_argument(
        "--by-products", action="store_true", help="multiply by inverses, as on GPUs"
    )
    arguments = parser.parse_args()
    with preferring_products(arguments.by_products):
        print_tables(arguments.models, range(arguments.seed, arguments.seed + arguments.cases))


def print_tables(models: Sequence[str], seeds: Sequence[int]) -> None:
    """Print a table for each model."""
    for model in models:
        print(f"\n{model:20}" + "".join(f"{f'noise {noise:.0e}':>13}" for noise in NOISES))
        for condition in CONDITIONS:
            cells = (f"{worst(model, condition, noise, seeds):>13}" for noise in NOISES)
            print(f"{f'cond {condition:.0e}':20}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
