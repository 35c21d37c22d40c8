"""Compare choices of initial inducing points: PEPR's objective per row, and the cost of the choice.

Points are chosen uniformly, by k-means and by greedy conditional variance at the initial
hyperparameters. The objective is given at these hyperparameters, then after training (L-BFGS) with
the points fixed and with the points trained too. At alpha = 0 it is a bound, the larger the better;
with alpha > 0 it approximates the evidence. Seconds and memory of the choice alone are measured on
generated data (Linux; a process for each method).

    python -m experiments.benchmarks.inducing_points [--sets kin40k elevators power] [--rows 10000]
        [--inducing 200]
"""

import argparse
import time
from collections.abc import Callable

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from experiments import datasets
from experiments.benchmarks.collapsed_step import INPUTS
from experiments.benchmarks.machine import in_process
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.ingredients.initialization import Floats, median_distance
from experiments.protocols.arguments import count, power
from experiments.recording.memory import MEGABYTE, peak_beyond_resident
from gpflow_pep import PEPR
from gpflow_pep.inducing import greedy_variance, k_means, uniform
from gpflow_pep.training import fit

METHODS: dict[str, Callable[[Floats, int], AnyNDArray]] = {
    "uniform": lambda X, M: uniform(X, M, seed=0),
    "k-means": lambda X, M: k_means(X, M, seed=0),
    "greedy": lambda X, M: greedy_variance(initial_kernel(X), X, M),
}


def main() -> None:
    """Print a table of objectives, and a table of time and memory."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--sets", nargs="+", metavar="SET", default=["kin40k", "elevators", "power"]
    )
    parser.add_argument(
        "--rows", type=count, default=10_000, help="training rows, at most (%(default)s)"
    )
    parser.add_argument(
        "--inducing", type=count, default=200, help="number of inducing points (%(default)s)"
    )
    parser.add_argument("--alphas", nargs="+", type=power, default=[0.0, 0.5])
    parser.add_argument(
        "--maxiter", type=count, default=50, help="iterations of L-BFGS, at most (%(default)s)"
    )
    parser.add_argument(
        "--generated", type=count, default=50_000, help="rows of the generated data (%(default)s)"
    )
    arguments = parser.parse_args()
    columns = {"set": "<11", "N": "d", "D": "d", "points": "<", "seconds": ".2f", "alpha": "g"}
    objectives = Table(
        f"objective in nats per row, M = {arguments.inducing}, {arguments.maxiter} iterations",
        columns | {"start": ".4f", "Z fixed": ".4f", "Z trained": ".4f"},
    )
    for name in arguments.sets:
        compare(objectives, name, arguments)
    choices = Table(
        f"the choice alone, N = {arguments.generated}, M = {arguments.inducing}, D = {INPUTS}",
        {"points": "<", "seconds": ".2f", "peak MB": ".0f", "MB of one M x N matrix": ".0f"},
    )
    matrix = 8 * arguments.generated * arguments.inducing / MEGABYTE
    for method in METHODS:
        seconds, peak = in_process(cost, method, arguments.generated, arguments.inducing)
        choices.add(method, seconds, peak / MEGABYTE, matrix)
    write([objectives, choices], arguments.json)


def compare(table: Table, name: str, arguments: argparse.Namespace) -> None:
    """Add a row for each method and alpha."""
    dataset = datasets.load(name)
    rows = np.random.default_rng(0).permutation(len(dataset.X_train))[: arguments.rows]
    X, Y = dataset.X_train[rows], dataset.Y_train[rows]
    for method, choose in METHODS.items():
        start = time.perf_counter()
        Z = choose(X, arguments.inducing)
        seconds = time.perf_counter() - start
        for alpha in arguments.alphas:
            found = [
                objective(X, Y, Z, alpha, maxiter, train_points)
                for maxiter, train_points in (
                    (0, False),
                    (arguments.maxiter, False),
                    (arguments.maxiter, True),
                )
            ]
            table.add(name, len(X), X.shape[1], method, seconds, alpha, *found)


def objective(
    X: Floats, Y: Floats, Z: AnyNDArray, alpha: float, maxiter: int, train_points: bool
) -> float:
    """Return PEPR's objective per row after `maxiter` iterations of L-BFGS."""
    model = PEPR((X, Y), initial_kernel(X), Z, alpha=alpha, noise_variance=0.1, max_jitter=1e-3)
    gpflow.set_trainable(model.inducing_variable, train_points)
    if maxiter:
        fit(model, max_iterations=maxiter)
    return -float(model.training_loss()) / len(X)


def initial_kernel(X: Floats) -> gpflow.kernels.Kernel:
    """Return a squared exponential, every lengthscale the median distance between inputs."""
    return gpflow.kernels.SquaredExponential(
        lengthscales=np.full(X.shape[1], median_distance(X, 0))
    )


def cost(method: str, num_data: int, num_inducing: int) -> tuple[float, int]:
    """Return seconds and additional peak memory, in bytes, of a choice among generated rows."""
    X = np.random.default_rng(0).uniform(0.0, 4.0, (num_data, INPUTS))
    METHODS[method](X[: 2 * num_inducing], num_inducing)  # libraries initialize
    start = time.perf_counter()
    _, peak = peak_beyond_resident(lambda: METHODS[method](X, num_inducing))
    return time.perf_counter() - start, peak


if __name__ == "__main__":
    main()
