"""Compare the number of inducing points that `select_num_inducing` chooses with fixed numbers.

The estimators with ``n_inducing="auto"`` and with fixed numbers: seconds of the fit, the objective,
and the NLPD of held-out rows, in nats a row. For regression, at alpha = 0, the gap between the
bounds of the evidence decides; for classification, at alpha = 0.5, leave-one-out densities do. One
core, a process for each row.

    python -m experiments.benchmarks.num_inducing [--sets airfoil banana] [--rows 2000] [--numbers
    16 64 256]
"""

import time
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from experiments import datasets
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.methods import scores
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor

SETS = ("snelson", "airfoil", "kin8nm", "banana")
_ALPHAS = {"regression": 0.0, "classification": 0.5}


def main() -> None:
    """Print a row for each set and number."""
    parser = parser_of(__doc__)
    known = [name for task in _ALPHAS for name in datasets.names(task=task)]  # type: ignore[arg-type]
    parser.option("--sets", SETS, choices=known, metavar="SET")
    parser.option("--rows", 2000, "training rows, at most (%(default)s)")
    parser.option("--numbers", [16, 64, 256], "fixed numbers (%(default)s)")
    arguments = parser.parse_args()
    print(machine())
    table = Table(
        f"at most {arguments.rows} rows",
        {
            "set": "<11",
            "N": "d",
            "D": "d",
            "alpha": "g",
            "points": "<8",
            "M": "d",
            "seconds": ".1f",
            "objective": ".4f",
            "NLPD": ".4f",
            "error": ".3f",
        },
    )
    for name in arguments.sets:
        for number in (*arguments.numbers, "auto"):
            table.add(*in_process(measured, name, number, arguments.rows, one_core=True))
    write([table], arguments.json)


def measured(name: str, number: Any, rows: int) -> list[Any]:
    """Return a row of the table."""
    dataset, task = datasets.load(name).trained_on_some(rows), datasets.describe(name).task
    X, y = dataset.X_train, dataset.Y_train[:, 0]
    kind = SparseGPRegressor if task == "regression" else SparseGPClassifier
    estimator: Any = kind(alpha=_ALPHAS[task], n_inducing=number, random_state=0)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(X, y)
    seconds = time.perf_counter() - start
    points = "auto" if number == "auto" else "fixed"
    row = [name, *X.shape, _ALPHAS[task], points, estimator.n_inducing_, seconds]
    held_out = dataset.X_test, dataset.Y_test[:, 0]
    found = scores(estimator, held_out, task != "regression")
    return [*row, estimator.log_marginal_likelihood_value_ / len(X), *found]


if __name__ == "__main__":
    main()
