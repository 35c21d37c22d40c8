"""
Compare the estimators with scikit-learn's and GPflow's Gaussian processes: CPU seconds and held-out
scores.

The estimators have their default parameters, except alpha and, if given, the number of inducing
points, which may be "auto" (`select_num_inducing`). `GaussianProcessRegressor` and
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
    python -m experiments.benchmarks.estimators --sets snelson airfoil kin8nm --rows 2000 --alphas 0
    --inducing 16 64 256 auto --methods own
"""

from itertools import product

from experiments import datasets
from experiments.benchmarks.machine import machine
from experiments.benchmarks.methods import fit_alone, measured
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.rankings import Rows, num_classes
from experiments.protocols.arguments import count

RAW = ("airfoil", "kin8nm", "power", "naval", "elevators", "bike", "protein")
SETS = ("iris", "wine", "breast-cancer", "digits", "diabetes", *RAW)
METHODS = ("own", "scikit-learn", "GPflow")
_SKLEARN_ROWS = 3000
_GPFLOW_POINTS = 100
_NO_LIMIT = 10**6  # CPU seconds


def main() -> None:
    """Print a row for each set and estimator."""
    parser = parser_of(__doc__)
    parser.option("--sets", SETS, metavar="SET", choices=datasets.names())
    parser.option("--methods", METHODS, choices=METHODS)
    parser.option("--rows", 50_000, "training rows, at most (%(default)s)")
    text = "numbers of inducing points, or auto (the estimators' own; GPflow: the largest, or 100)"
    parser.option("--inducing", [None], text, type=number)
    parser.option("--alphas", [0.5])
    parser.option("--limit", 600, "CPU seconds of a peer's fit (%(default)s)")
    asked = parser.parse_args()
    print(machine())
    table = Table(
        f"fits of at most {asked.rows} rows",
        {
            "set": "<13",
            "N": "d",
            "D": "d",
            "classes": "d",
            "estimator": "<12",
            "M": "d",
            "status": "<9",
            "iterations": "d",
            "first, s": ".2f",
            "again, s": ".2f",
            "NLPD": ".3f",
            "error": ".3f",
        },
    )
    for name in asked.sets:
        (X, y), held_out = loaded(name, asked.rows)
        classes = num_classes(y)
        methods = []
        if "own" in asked.methods:
            methods += [
                (f"alpha {alpha:g}", f"default:alpha={alpha},random_state=0,n_inducing={M!r}")
                for alpha, M in product(asked.alphas, asked.inducing)
            ]
        if "scikit-learn" in asked.methods and len(X) <= _SKLEARN_ROWS:
            methods.append(("scikit-learn", "sklearn-gp"))
        if "GPflow" in asked.methods:
            model = "svgp" if classes else "sgpr"
            points = max((M for M in asked.inducing if isinstance(M, int)), default=_GPFLOW_POINTS)
            methods.append(("GPflow", f"{model}:lengthscale=1.0,M={points}"))
        for label, method in methods:
            limit = _NO_LIMIT if method.startswith("default") else asked.limit
            record = fit_alone(limit, measured, method, (X, y), held_out, True)
            entries = ("M", "status", "iterations", "seconds", "again", "nlpd", "error")
            table.add(name, *X.shape, classes or None, label, *map(record.get, entries))
    write([table], asked.json)


def number(text: str) -> int | str:
    """Parse a number of inducing points, or auto."""
    return text if text == "auto" else count(text)


def loaded(name: str, most: int) -> tuple[Rows, Rows]:
    """Return at most so many training rows, drawn at random, and the held-out rows."""
    scaled = datasets.load(name).trained_on_some(most)
    shown = datasets.load(name, standardize=name not in RAW).trained_on_some(most)
    y = [scaled.Y_train[:, 0], scaled.Y_test[:, 0]]
    if datasets.describe(name).classes:
        y = [labels.astype(int) for labels in y]
    return (shown.X_train, y[0]), (shown.X_test, y[1])


if __name__ == "__main__":
    main()
