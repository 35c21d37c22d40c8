"""
Check that streams are exact: at fixed hyperparameters, batches give the posterior of all rows at once.

    python -m experiments.stream_exactness [--rows 600] [--batches 6]

Protocol T8 of Bui, Nguyen and Turner (2017). Online objectives are added up and compared with the objective of all
rows, and so are predictions; with inducing points at all inputs both equal the exact GP's.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np

from experiments.ingredients.initialization import Floats
from experiments.report.columns import aligned
from gpflow_pep import PEPR, StreamingSGPR

_NOISE = 0.05  # variance


class Difference(NamedTuple):
    """Differences between a stream and a model of all rows."""

    objective: float
    """Sum of online objectives, relative."""

    mean: float
    """Predictive means, largest."""

    variance: float
    """Predictive variances, largest."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--batches", type=int, default=6)
    asked = parser.parse_args(arguments)
    X, Y = rows(asked.rows)
    lines: list[tuple[str, ...]] = [("stream against", "objective, relative", "mean", "variance")]
    for alpha in (0.0, 0.5, 1.0):
        Z = X[np.linspace(0, len(X) - 1, 20).astype(int)]
        at_once = PEPR((X, Y), kernel(), Z, alpha=alpha, noise_variance=_NOISE)
        lines.append(_line(f"PEPR α={alpha:g}, M = 20", difference(at_once, X, Y, Z, alpha, asked.batches)))
    few = np.sort(np.random.RandomState(1).permutation(len(X))[:60])
    exact = gpflow.models.GPR((X[few], Y[few]), kernel(), noise_variance=_NOISE)
    for alpha in (0.0, 0.5, 1.0):
        found = difference(exact, X[few], Y[few], X[few], alpha, asked.batches)
        lines.append(_line(f"exact GP of 60 rows, α={alpha:g}", found))
    print(aligned(lines))
    print("\nThe stream's inducing points have a jitter of 1e-6 on their covariance; the exact GP has none.")


def difference(at_once: Any, X: Floats, Y: Floats, Z: Floats, alpha: float, num_batches: int) -> Difference:
    """Compare a stream, with inducing points at Z throughout, with a model of all rows."""
    parts = np.array_split(np.arange(len(X)), num_batches)
    model = StreamingSGPR((X[parts[0]], Y[parts[0]]), kernel(), Z, alpha=alpha, noise_variance=_NOISE)
    total = float(model.maximum_log_likelihood_objective())
    for part in parts[1:]:
        model.update((X[part], Y[part]))
        total += float(model.maximum_log_likelihood_objective())
    objective = float(at_once.maximum_log_likelihood_objective())
    Xnew = np.linspace(-0.5, 10.5, 200)[:, None]
    ours, theirs = model.predict_f(Xnew), at_once.predict_f(Xnew)
    mean, variance = (float(np.max(np.abs(a - b))) for a, b in zip(ours, theirs, strict=True))
    return Difference(abs(total - objective) / abs(objective), mean, variance)


def kernel() -> gpflow.kernels.Kernel:
    """Return the kernel of all models."""
    return gpflow.kernels.SquaredExponential(1.0, lengthscales=0.7)


def rows(number: int) -> tuple[Floats, Floats]:
    """Draw rows of a noisy function of one input, in order."""
    rng = np.random.RandomState(0)
    X = np.sort(rng.uniform(0.0, 10.0, number))[:, None]
    return X, np.sin(2.0 * X) + 0.5 * np.cos(5.0 * X) + np.sqrt(_NOISE) * rng.normal(size=X.shape)


def _line(name: str, found: Difference) -> tuple[str, ...]:
    return name, *(f"{value:.0e}" for value in found)


if __name__ == "__main__":
    main()
