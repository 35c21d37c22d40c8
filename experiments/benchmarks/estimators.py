"""Compare the estimators with scikit-learn's Gaussian processes: seconds of a fit, and scores of held-out rows.

The estimators have their default parameters, except M and alpha. `GaussianProcessRegressor` and
`GaussianProcessClassifier` optimize the same kernel, a squared exponential with a variance and a lengthscale for each
column, and the regressor noise too (a `WhiteKernel`), from the same initial values, by L-BFGS without restarts.
Regression standardizes the targets. NLPD is in nats a row, of standardized targets; the error is the RMSE, or the
fraction of wrong labels.

"First" is the first fit in a process that has imported everything, "again" a second fit by a new estimator, for which
the estimators here do not compile again. One core, a process for each row.

    python -m experiments.benchmarks.estimators [--sets diabetes iris] [--rows 1500] [--inducing 100] [--alphas 0 0.5]
"""

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from experiments import datasets
from experiments.benchmarks.machine import machine, use_one_core
from experiments.benchmarks.memory import printed_by
from experiments.benchmarks.tables import Table, parser_of, write
from experiments.datasets import Dataset
from experiments.ingredients.initialization import Floats
from experiments.protocols.arguments import count, power
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor

SETS = ("diabetes", "concrete", "kin8nm", "breast-cancer", "banana", "iris")
_PEER = "scikit-learn"
_BOUNDS = (1e-3, 1e5)  # bounds of scikit-learn's variances and lengthscales


def main() -> None:
    """Print a row for each set and estimator."""
    parser = parser_of(__doc__)
    known = [name for task in ("regression", "classification", "multiclass") for name in datasets.names(task=task)]
    parser.add_argument("--sets", nargs="+", choices=known, metavar="SET", default=SETS)
    parser.add_argument("--rows", type=count, default=1500, help="training rows, at most (%(default)s)")
    parser.add_argument("--inducing", type=count, default=100, help="number of inducing points (%(default)s)")
    parser.add_argument("--alphas", nargs="+", type=power, default=[0.0, 0.5])
    parser.add_argument("--measure", metavar="METHOD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        use_one_core()
        print(json.dumps(measured(arguments.sets[0], arguments.measure, arguments.rows, arguments.inducing)))
        return
    print(machine())
    table = Table(
        f"fits of at most {arguments.rows} rows, M = {arguments.inducing}",
        {"set": "<13", "N": "d", "D": "d", "classes": "d", "estimator": "<12"}
        | {"first, s": ".2f", "again, s": ".2f", "NLPD": ".3f", "error": ".3f"},
    )
    for name in arguments.sets:
        for method in (*(f"alpha {alpha:g}" for alpha in arguments.alphas), _PEER):
            options = {"--measure": method, "--rows": arguments.rows, "--inducing": arguments.inducing}
            listed = [str(part) for option in options.items() for part in option]
            table.add(*printed_by("benchmarks.estimators", "--sets", name, *listed).values())
    write([table], arguments.json)


def measured(name: str, method: str, rows: int, num_inducing: int) -> dict[str, Any]:
    """Fit twice, and score."""
    dataset = datasets.load(name)
    chosen = np.random.default_rng(0).permutation(len(dataset.X_train))[:rows]
    X, y = dataset.X_train[chosen], dataset.Y_train[chosen, 0]
    classes = datasets.describe(name).classes
    seconds = []
    for _ in range(2):
        estimator = made(method, X, num_inducing, bool(classes))
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(X, y)
        seconds.append(time.perf_counter() - start)
    nlpd, error = scores(estimator, dataset, bool(classes))
    return {
        "set": name,
        "N": len(X),
        "D": X.shape[1],
        "classes": len(classes) or None,
        "estimator": method,
        "first": seconds[0],
        "again": seconds[1],
        "NLPD": nlpd,
        "error": error,
    }


def made(method: str, X: Floats, num_inducing: int, is_classifier: bool) -> Any:
    """Return an unfitted estimator."""
    if method != _PEER:
        kind = SparseGPClassifier if is_classifier else SparseGPRegressor
        return kind(alpha=float(method.split()[1]), n_inducing=num_inducing, random_state=0)
    lengthscales = X.std(axis=0) * np.sqrt(X.shape[1])
    lengthscales[lengthscales == 0.0] = 1.0
    kernel = ConstantKernel(1.0, _BOUNDS) * RBF(lengthscales, _BOUNDS)
    if is_classifier:
        return GaussianProcessClassifier(kernel, random_state=0)
    return GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True, random_state=0)


def scores(estimator: Any, dataset: Dataset, is_classifier: bool) -> tuple[float, float]:
    """Return NLPD and error of the held-out rows."""
    X, y = dataset.X_test, dataset.Y_test[:, 0]
    if is_classifier:
        probabilities = estimator.predict_proba(X)
        own = probabilities[np.arange(len(y)), np.searchsorted(estimator.classes_, y)]
        return -float(np.mean(np.log(own))), float(np.mean(estimator.predict(X) != y))
    mean, std = estimator.predict(X, return_std=True)
    return -float(np.mean(norm.logpdf(y, mean, std))), float(np.sqrt(np.mean((y - mean) ** 2)))


if __name__ == "__main__":
    main()
