"""
Compare dense EP with quantile propagation on the sets of Zhang et al. (2019): error and log likelihood.

    python -m experiments.quantile_propagation [--sets qp-crabs qp-sonar] [--folds 10] [--maxiter 40]

Each fold of each method is a run of `experiments.classification` with the settings Q1, recorded in ``runs/``; a table
gives means over the folds with their standard errors, beside the published figures.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from experiments.cells.cell import Cell, Result
from experiments.cells.running import completed
from experiments.protocols.arguments import count
from experiments.report.columns import aligned, mean_and_error
from experiments.report.endings import endings
from experiments.report.published import QP_ERROR, QP_LOG_LIKELIHOOD, Pair

SETS = (
    "qp-ionosphere",
    "qp-cancer",
    "qp-crabs",
    "qp-sonar",
    *(f"qp-{published}-{pair}" for published in ("iris", "wine") for pair in (12, 13, 23)),
)
_METHODS = {"EP": "PEP", "QP": "QP"}  # name in the paper -> model
_HEADINGS = (
    "set",
    "error % EP",
    "QP",
    "published",
    "log lik. EP",
    "QP",
    "published",
    "QP − EP",
    "s/run",
    "limit",
    "stopped",
)
_HOW_TO_READ = (
    "Mean over the folds ± its standard error. Error: of the test labels, smaller is better. Log lik.: log predictive\n"
    "probability of the test labels, summed over a fold (nats), larger is better. QP − EP: its difference, fold by\n"
    "fold. Published: EP / QP of Zhang et al. (2019), on other folds. Runs of both methods: s/run, training; limit,\n"
    "number not converged at the last iteration; stopped, number that ended earlier without converging: their last\n"
    "good state is scored, and run.json has the reason."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison; see ``--help``."""
    asked = _parser().parse_args(arguments)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import datasets
    from experiments.ingredients.data import check_task

    try:
        for name in asked.sets:
            check_task(name, "classification")
            datasets.load(name, asked.folds - 1)
    except (ValueError, OSError) as error:  # no such set or fold; no network, or not the published file
        sys.exit(str(error))
    began = time.perf_counter()
    wanted = list(product(asked.sets, range(asked.folds), _METHODS))
    cells = [_cell(name, fold, _METHODS[method], asked.maxiter) for name, fold, method in wanted]
    results = dict(zip(wanted, completed(cells, asked.runs, jobs=asked.jobs), strict=True))
    lines: list[tuple[str, ...]] = [_HEADINGS]
    for name in asked.sets:
        ep, qp = ([results[name, fold, method] for fold in range(asked.folds)] for method in ("EP", "QP"))
        lines.append(_line(name, ep, qp, asked.maxiter))
    minutes = (time.perf_counter() - began) / 60
    print(f"\n{asked.folds} folds, in {minutes:.1f} minutes\n\n{aligned(lines)}\n\n{_HOW_TO_READ}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.quantile_propagation", description=description)
    parser.add_argument(
        "--sets", nargs="+", default=SETS, metavar="SET", help="data sets; also qp-pima and qp-usps-3-5"
    )
    parser.add_argument("--folds", type=count, default=10, help="number of splits of each set (%(default)s)")
    parser.add_argument("--maxiter", type=count, default=40, help="iterations of L-BFGS, at most (%(default)s)")
    parser.add_argument("--jobs", type=count, default=1, help="runs at once (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _cell(name: str, fold: int, model: str, maxiter: int) -> Cell:
    """Return the run of one fold of one method."""
    updates = {"dataset": name, "split": fold, "model": model, "maxiter": maxiter, "seed": 0}
    return Cell("classification", updates, "Q1")


def _line(name: str, ep: Sequence[Result], qp: Sequence[Result], maxiter: int) -> tuple[str, ...]:
    errors = [[100.0 * result["error"] for result in results] for results in (ep, qp)]
    runs = [*ep, *qp]
    sums = [[result["log_likelihood"] for result in results] for results in (ep, qp)]
    return (
        name,
        *map(mean_and_error, errors),
        _published(QP_ERROR.get(name)),
        *map(mean_and_error, sums),
        _published(QP_LOG_LIKELIHOOD.get(name)),
        mean_and_error(np.subtract(sums[1], sums[0]).tolist()),
        f"{np.mean([result['seconds'] for result in runs]):.0f}",
        *endings(runs, maxiter),
    )


def _published(pair: Pair | None) -> str:
    return "–" if pair is None else f"{pair.ep:.2f} / {pair.qp:.2f}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
