"""Compare choices of initial inducing points: PEPR's objective per row.

Points are chosen uniformly, by k-means and by greedy conditional variance at the initial
hyperparameters. The objective is given at these hyperparameters, then after training (L-BFGS) with
the points fixed and with the points trained too. At alpha = 0 it is a bound, the larger the better;
with alpha > 0 it approximates the evidence.

    python -m experiments.benchmarks.inducing_points [--sets kin40k elevators power] [--rows 10000]
        [--inducing 200]
"""

import time

import gpflow
from gpflow.base import AnyNDArray

from experiments import datasets
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.datasets import Floats
from experiments.ingredients.kernel import initial_kernel
from gpflow_pep import PEPR
from gpflow_pep.inducing import greedy_variance, k_means, uniform
from gpflow_pep.training import fit


def main() -> None:
    """Print a row for each set, choice and alpha."""
    parser = parser_of(__doc__)
    parser.option("--sets", ["kin40k", "elevators", "power"], metavar="SET")
    parser.option("--rows", 10_000, "training rows, at most (%(default)s)")
    parser.option("--inducing", 200, "number of inducing points (%(default)s)")
    parser.option("--alphas", [0.0, 0.5])
    parser.option("--maxiter", 50, "iterations of L-BFGS, at most (%(default)s)")
    asked = parser.parse_args()
    table = Table(
        f"objective in nats per row, M = {asked.inducing}, {asked.maxiter} iterations",
        {
            "set": "<11",
            "N": "d",
            "D": "d",
            "points": "<",
            "seconds": ".2f",
            "alpha": "g",
            "start": ".4f",
            "Z fixed": ".4f",
            "Z trained": ".4f",
        },
    )
    for name in asked.sets:
        dataset = datasets.load(name).trained_on_some(asked.rows)
        X, Y = dataset.X_train, dataset.Y_train
        for method in ("uniform", "k-means", "greedy"):
            start = time.perf_counter()
            Z = chosen(method, X, asked.inducing)
            seconds = time.perf_counter() - start
            for alpha in asked.alphas:
                begun = objective(X, Y, Z, alpha, 0, False)
                fixed = objective(X, Y, Z, alpha, asked.maxiter, False)
                trained = objective(X, Y, Z, alpha, asked.maxiter, True)
                table.add(name, *X.shape, method, seconds, alpha, begun, fixed, trained)
    write([table], asked.json)


def chosen(method: str, X: Floats, M: int) -> AnyNDArray:
    """Return inducing points [M, D]."""
    if method == "greedy":
        return greedy_variance(initial_kernel(X), X, M)
    if method == "uniform":
        return uniform(X, M, seed=0)
    return k_means(X, M, seed=0)


def objective(
    X: Floats, Y: Floats, Z: AnyNDArray, alpha: float, maxiter: int, train_points: bool
) -> float:
    """Return PEPR's objective per row after `maxiter` iterations of L-BFGS."""
    model = PEPR((X, Y), initial_kernel(X), Z, alpha=alpha, noise_variance=0.1, max_jitter=1e-3)
    gpflow.set_trainable(model.inducing_variable, train_points)
    if maxiter:
        fit(model, max_iterations=maxiter)
    return -float(model.training_loss()) / len(X)


if __name__ == "__main__":
    main()
