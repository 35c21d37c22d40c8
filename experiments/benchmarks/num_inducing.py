"""Compare the number of inducing points that `select_num_inducing` chooses with fixed numbers.

The estimators with ``n_inducing="auto"`` and with fixed numbers: seconds of the fit, the objective,
and the NLPD of held-out rows, in nats a row. For regression, at alpha = 0, the gap between the
bounds of the evidence decides; for classification, at alpha = 0.5, leave-one-out densities do. A
second table has the paths of the choices. One core, a process for each row.

    python -m experiments.benchmarks.num_inducing [--sets airfoil banana] [--rows 2000] [--numbers
    16 64 256]
"""

import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from experiments import datasets
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.methods import scores
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.protocols.arguments import count
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor

SETS = ("snelson", "airfoil", "kin8nm", "banana")
_AUTO = "auto"
_ALPHAS = {"regression": 0.0, "classification": 0.5}


def main() -> None:
    """Print a row for each set and number, and the paths."""
    parser = parser_of(__doc__)
    known = [name for task in _ALPHAS for name in datasets.names(task=task)]  # type: ignore[arg-type]
    parser.add_argument("--sets", nargs="+", choices=known, metavar="SET", default=SETS)
    parser.add_argument(
        "--rows", type=count, default=2000, help="training rows, at most (%(default)s)"
    )
    parser.add_argument(
        "--numbers",
        nargs="+",
        type=count,
        default=[16, 64, 256],
        help="fixed numbers (%(default)s)",
    )
    arguments = parser.parse_args()
    print(machine())
    table = Table(
        f"at most {arguments.rows} rows",
        {"set": "<11", "N": "d", "D": "d", "alpha": "g", "points": "<8", "M": "d", "seconds": ".1f"}
        | {"objective": ".4f", "NLPD": ".4f", "error": ".3f"},
    )
    paths = {}
    for name in arguments.sets:
        for number in (*arguments.numbers, _AUTO):
            row, path = in_process(measured, name, number, arguments.rows, one_core=True)
            table.add(*row)
            if path:
                paths[name] = path
    steps = Table(
        "paths of auto, in nats a row",
        {
            "set": "<11",
            "M": "d",
            "objective": ".4f",
            "upper bound": ".4f",
            "loo density": ".4f",
            "seconds": ".1f",
        },
    )
    for name, path in paths.items():
        for step in path:
            steps.add(name, *step)
    write([table, steps], arguments.json)


def measured(name: str, number: Any, rows: int) -> tuple[list[Any], list[list[Any]]]:
    """Return a row of the table, and the path of a choice, empty for a fixed number."""
    dataset, task = datasets.load(name), datasets.describe(name).task
    chosen = np.random.default_rng(0).permutation(len(dataset.X_train))[:rows]
    X, y = dataset.X_train[chosen], dataset.Y_train[chosen, 0]
    kind = SparseGPRegressor if task == "regression" else SparseGPClassifier
    estimator: Any = kind(alpha=_ALPHAS[task], n_inducing=number, random_state=0)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(X, y)
    seconds = time.perf_counter() - start
    objective = estimator.log_marginal_likelihood_value_ / len(X)
    points = _AUTO if number == _AUTO else "fixed"
    row = [name, *X.shape, _ALPHAS[task], points, estimator.n_inducing_, seconds, objective]
    found = getattr(estimator, "num_inducing_selection_", None)
    return [
        *row,
        *scores(estimator, (dataset.X_test, dataset.Y_test[:, 0]), task != "regression"),
    ], [] if found is None else _path(found)


def _path(found: Any) -> list[list[Any]]:
    columns = (found.numbers, found.objectives, found.upper_bounds, found.densities, found.seconds)
    return [
        [None if np.isnan(value) else value.item() for value in step]
        for step in zip(*columns, strict=True)
    ]


if __name__ == "__main__":
    main()
