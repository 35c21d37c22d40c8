"""
Compare the estimators with scikit-learn's and GPflow's Gaussian processes: CPU seconds and held-out
scores.

The estimators have their default parameters, except M and alpha. `GaussianProcessRegressor` and
`GaussianProcessClassifier` optimize a squared exponential with a variance and a lengthscale for
each column, and the regressor noise too (a `WhiteKernel`), from the initial lengthscales of the
estimators, by L-BFGS without restarts. They take O(N^3) time and are left out for more than 3,000
rows. GPflow's `SGPR` and `SVGP` (`Bernoulli`, `MultiClass`) start at the same k-means points and
lengthscales of 1, and train by `gpflow.optimizers.Scipy`, all with GPflow's defaults.

The columns of the sets in `RAW` are as published, all others are standardized; so are the targets.
NLPD is in nats a row; the error is the RMSE, or the fraction of wrong labels. "First" is the first
fit in a process that has imported everything, "again" a second fit by a new estimator, for which
the estimators here do not compile again; it is left out if the first takes longer than 20 s. A peer
is cut off at the limit; GPflow's is then scored as it is. One core, a process for each row.

    python -m experiments.benchmarks.estimators [--sets diabetes iris] [--rows 1500] [--inducing
    100] [--alphas 0 0.5] [--limit 600]
"""

from typing import Any

from experiments import datasets
from experiments.benchmarks.machine import machine
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.tables import Rows, fit_alone, num_classes

RAW = ("airfoil", "kin8nm", "power", "naval", "elevators", "bike", "protein")
SETS = ("iris", "wine", "breast-cancer", "digits", "diabetes", *RAW)
_SKLEARN_ROWS = 3000
_NO_LIMIT = 10**6  # CPU seconds


def main() -> None:
    """Print a row for each set and estimator."""
    parser = parser_of(__doc__)
    parser.option("--sets", SETS, metavar="SET", choices=SETS)
    parser.option("--rows", 50_000, "training rows, at most (%(default)s)")
    parser.option(
        "--inducing", int, "number of inducing points; by default the estimators' own, and 100"
    )
    parser.option("--alphas", [0.5])
    parser.option("--limit", 600, "CPU seconds of a peer's fit (%(default)s)")
    asked = parser.parse_args()
    print(machine())
    table = Table(
        f"fits of at most {asked.rows} rows, M = {asked.inducing or 'default'}",
        {
            "set": "<13",
            "N": "d",
            "D": "d",
            "classes": "d",
            "estimator": "<12",
            "status": "<9",
            "iterations": "d",
            "first, s": ".2f",
            "again, s": ".2f",
            "NLPD": ".3f",
            "error": ".3f",
        },
    )
    own = "random_state=0"
    if asked.inducing:
        own += f",n_inducing={asked.inducing}"
    for name in asked.sets:
        (X, y), held_out = loaded(name, asked.rows)
        classes = num_classes(y)
        methods = {f"alpha {alpha:g}": f"default:alpha={alpha},{own}" for alpha in asked.alphas}
        if len(X) <= _SKLEARN_ROWS:
            methods["scikit-learn"] = "sklearn-gp"
        model = "svgp" if classes else "sgpr"
        methods["GPflow"] = f"{model}:lengthscale=1.0,M={asked.inducing or 100}"
        for label, method in methods.items():
            limit = _NO_LIMIT if method.startswith("default") else asked.limit
            record = fit_alone(limit, "measured", method, (X, y), held_out, True)
            found = map(record.get, ("status", "iterations", "seconds", "again", "nlpd", "error"))
            table.add(name, *X.shape, classes or None, label, *found)
    write([table], asked.json)


def loaded(name: str, most: int) -> tuple[Rows, Rows]:
    """Return at most so many training rows, drawn at random, and the held-out rows."""
    scaled = datasets.load(name).trained_on_some(most)
    shown = scaled
    if name in RAW:
        shown = datasets.load(name, standardize=False).trained_on_some(most)
    y: list[Any] = [scaled.Y_train[:, 0], scaled.Y_test[:, 0]]
    if datasets.describe(name).classes:
        y = [labels.astype(int) for labels in y]
    return (shown.X_train, y[0]), (shown.X_test, y[1])


if __name__ == "__main__":
    main()
