"""
Compare power EP for several classes on the sets of Villacampa-Calvo and Hernández-Lobato (2020): error and NLPD.

    python -m experiments.multiclass [--sets glass wine] [--splits 3] [--alphas 0 0.5 1] [--method PEP APEP]

Each split is a run of `experiments.classification` with the settings M1 and an inducing point for every twentieth
training row, recorded in ``runs/``; a table gives means over the splits with their standard errors, beside the
published figures of PEP. Two more tables give average ranks: of the alphas for each method, and of the methods at each
alpha.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from experiments.cells.cell import Cell, Result
from experiments.cells.running import completed
from experiments.ingredients.initialization import Floats
from experiments.protocols.arguments import count, power
from experiments.report.columns import aligned, mean_and_error
from experiments.report.endings import endings
from experiments.report.published import MULTICLASS

_METHODS = ("PEP", "APEP", "ARPEP", "RPAPEP")
_INDUCING = 0.05  # of the training rows
_SITES_TOL = 1e-6  # default of gpflow_pep.PEP
_SCORES = {"error": "error", "nlpd": "NLPD"}  # entry of the result -> heading
_HEADINGS = (
    *("set", "method", "alpha", "M", "error", "published", "NLPD", "published"),
    *("s/run", "limit", "stopped", "sites"),
)
_HOW_TO_READ = (
    "Mean over the splits ± its standard error, on test rows: error, the fraction of labels that are wrong; NLPD, the\n"
    "mean negative log predictive probability (nats); smaller is better. Published: PEP of Villacampa-Calvo and\n"
    "Hernández-Lobato (2020), M = 5 % too, mean of 20 splits. s/run: training. Numbers of runs: limit, not converged\n"
    "at the last iteration; stopped, ended earlier without converging; sites, ended with sites that had not converged."
)
_OF_ALPHAS = "Average rank over sets and splits, 1 for the best alpha of a split with the same method:"
_OF_METHODS = "Average rank over sets and splits, 1 for the best method of a split at the same alpha:"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison; see ``--help``."""
    asked = _parser().parse_args(arguments)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import datasets
    from experiments.ingredients.data import check_task

    sizes = {}
    try:
        for name in asked.sets:
            check_task(name, "multiclass")
            sizes[name] = len(datasets.load(name, asked.splits - 1).X_train)
    except (ValueError, OSError) as error:  # no such set or split; no network, or not the published file
        sys.exit(str(error))
    began = time.perf_counter()
    counts = {name: max(1, round(_INDUCING * size)) for name, size in sizes.items()}
    wanted = list(product(asked.sets, asked.method, asked.alphas, range(asked.splits)))
    cells = [_cell(name, split, method, alpha, counts[name], asked.maxiter) for name, method, alpha, split in wanted]
    results = dict(zip(wanted, completed(cells, asked.runs, jobs=asked.jobs), strict=True))
    lines: list[tuple[str, ...]] = [_HEADINGS]
    for name, method, alpha in product(asked.sets, asked.method, asked.alphas):
        of_splits = [results[name, method, alpha, split] for split in range(asked.splits)]
        lines.append(_line(name, method, alpha, counts[name], of_splits, asked.maxiter))
    rows = [  # for every set and split, the results [method][alpha]
        [[results[name, method, alpha, split] for alpha in asked.alphas] for method in asked.method]
        for name in asked.sets
        for split in range(asked.splits)
    ]
    minutes = (time.perf_counter() - began) / 60
    print(f"\n{asked.splits} splits, in {minutes:.1f} minutes\n\n{aligned(lines)}\n\n{_HOW_TO_READ}")
    for heading, among, axis in ((_OF_ALPHAS, asked.alphas, 2), (_OF_METHODS, asked.method, 1)):
        if len(among) > 1:
            print(f"\n{heading}\n\n{_average_ranks(rows, asked.method, asked.alphas, axis)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.multiclass", description=description)
    parser.add_argument(
        "--sets", nargs="+", default=list(MULTICLASS), metavar="SET", help="data sets of more than two classes"
    )
    parser.add_argument(
        "--splits", type=count, default=3, help="number of splits of each set, 20 at most (%(default)s)"
    )
    parser.add_argument(
        "--alphas", nargs="+", type=power, default=[0.0, 0.5, 1.0], metavar="ALPHA", help="powers (0 0.5 1)"
    )
    parser.add_argument("--method", nargs="+", choices=_METHODS, default=["PEP"], help="models, one or more (PEP)")
    parser.add_argument("--maxiter", type=count, default=50, help="iterations of L-BFGS, at most (%(default)s)")
    parser.add_argument("--jobs", type=count, default=1, help="runs at once (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _cell(name: str, split: int, method: str, alpha: float, M: int, maxiter: int) -> Cell:
    """Return the run of one split."""
    model = {"model": method, "alpha": alpha, "M": M, "maxiter": maxiter}
    return Cell("classification", {"dataset": name, "split": split, "seed": 0, **model}, "M1")


def _line(name: str, method: str, alpha: float, M: int, results: Sequence[Result], maxiter: int) -> tuple[str, ...]:
    published = MULTICLASS.get(name, {}).get(alpha) if method == "PEP" else None
    unsettled = [bool((result["sites_change"] or 0.0) > _SITES_TOL) for result in results]
    return (
        name,
        method,
        f"{alpha:g}",
        f"{M}",
        mean_and_error([result["error"] for result in results]),
        "–" if published is None else f"{published.error:.2f}",
        mean_and_error([result["nlpd"] for result in results]),
        "–" if published is None else f"{published.nlpd:.2f}",
        f"{np.mean([result['seconds'] for result in results]):.0f}",
        *endings(results, maxiter),
        f"{sum(unsettled)}/{len(results)}",
    )


def _average_ranks(
    rows: Sequence[Sequence[Sequence[Result]]], methods: Sequence[str], alphas: Sequence[float], axis: int
) -> str:
    """
    Return a table of mean ranks by each score; ties share ranks.

    :param rows: results, by row, method and alpha.
    :param axis: 1 to rank the methods at each alpha, 2 to rank the alphas for each method.
    """
    ranks: dict[str, Floats] = {
        score: rankdata([[[result[score] for result in of_method] for of_method in row] for row in rows], axis=axis)
        for score in _SCORES
    }
    lines = [
        (method, f"{alpha:g}", *(mean_and_error(ranks[score][:, i, j].tolist()) for score in _SCORES))
        for i, method in enumerate(methods)
        for j, alpha in enumerate(alphas)
    ]
    if axis == 1:  # group the compared lines
        lines.sort(key=lambda line: float(line[1]))
    return aligned([("method", "alpha", *_SCORES.values()), *lines])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
