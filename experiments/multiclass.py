"""
Power EP of several classes on the sets of Villacampa-Calvo and Hernández-Lobato (2020): error and log likelihood.

    python -m experiments.multiclass [--sets glass wine] [--splits 3] [--alphas 0 0.5 1] [--method PEP] [--maxiter 50]

Each split is a run of `experiments.classification` with the settings M1 and an inducing point for every twentieth
training row, recorded in ``runs/``; a table gives means over the splits with their standard errors, beside the
published figures of PEP, and a second one the average rank of each alpha.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from tqdm import tqdm

from experiments.initialisation import Floats
from experiments.published import MULTICLASS
from experiments.report.columns import aligned, mean_and_error

_METHODS = ("PEP", "APEP", "ARPEP", "RPAPEP")
_INDUCING = 0.05  # of the training rows
_RUNS_PER_PROCESS = 10
_SITES_TOL = 1e-5  # that of gpflow_pep.training.fit
_HEADINGS = ("set", "alpha", "M", "error", "published", "NLPD", "published", "s/run", "limit", "stopped", "sites")
_HOW_TO_READ = (
    "Mean over the splits ± its standard error, on test rows: error, the fraction of labels that are wrong; NLPD, the\n"
    "mean negative log predictive probability (nats); smaller is better. Published: PEP of Villacampa-Calvo and\n"
    "Hernández-Lobato (2020), M = 5 % too, mean of 20 splits. s/run: training. Of the runs: limit, how many had not\n"
    "converged at the last iteration; stopped, how many ended earlier without converging; sites, how many ended with\n"
    "sites that had not converged."
)
_RANKS = "Average rank over sets and splits, 1 for the best alpha of a split:"

_Results = list[dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison; see ``--help``."""
    asked = _parser().parse_args(arguments)

    # Imported after the arguments are understood, since it takes seconds.
    from experiments.ingredients.data import check_task
    from gpflow_pep import datasets

    sizes = {}
    try:
        for name in asked.sets:
            check_task(name, "multiclass")
            sizes[name] = len(datasets.load(name, asked.splits - 1).X_train)
    except (ValueError, OSError) as error:  # no such set or split; no network, or not the published file
        sys.exit(str(error))
    began = time.perf_counter()
    lines: list[tuple[str, ...]] = [_HEADINGS]
    scores: list[_Results] = []  # of every set and split, over alpha
    # TensorFlow keeps some 60 MB of every model it has compiled: a process that is left after some runs gives it back.
    processes = multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=_RUNS_PER_PROCESS)
    bar = tqdm(total=len(asked.sets) * len(asked.alphas) * asked.splits, unit="run", mininterval=5.0)
    with processes, bar:
        for name in asked.sets:
            M, results = max(1, round(_INDUCING * sizes[name])), []
            for alpha in asked.alphas:
                of_alpha = []
                for split in range(asked.splits):
                    bar.set_postfix_str(f"{name}, alpha {alpha:g}, split {split}", refresh=False)
                    of_alpha.append(processes.apply(_run, (name, split, alpha, M, asked)))
                    bar.update()
                results.append(of_alpha)
                lines.append(_line(name, alpha, M, of_alpha, asked.maxiter))
                bar.write("  ".join(lines[-1]))
            scores += [list(of_split) for of_split in zip(*results, strict=True)]
    minutes = (time.perf_counter() - began) / 60
    print(f"\n{asked.method}, {asked.splits} splits, in {minutes:.1f} minutes\n\n{aligned(lines)}\n\n{_HOW_TO_READ}")
    if len(asked.alphas) > 1:
        print(f"\n{_RANKS}\n\n{_average_ranks(scores, asked.alphas)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.multiclass", description=description)
    parser.add_argument("--sets", nargs="+", default=list(MULTICLASS), metavar="SET", help="of more than two classes")
    parser.add_argument("--splits", type=int, default=3, help="the first so many of each set, 20 at most (%(default)s)")
    parser.add_argument(
        "--alphas", nargs="+", type=float, default=[0.0, 0.5, 1.0], metavar="ALPHA", help="powers (0 0.5 1)"
    )
    parser.add_argument("--method", choices=_METHODS, default="PEP", help="what is trained (%(default)s)")
    parser.add_argument("--maxiter", type=int, default=50, help="iterations of L-BFGS, at most (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are recorded (%(default)s)")
    return parser


def _run(name: str, split: int, alpha: float, M: int, asked: argparse.Namespace) -> dict[str, Any]:
    """The result of one split."""
    from experiments.classification import ex

    updates = {"dataset": name, "split": split, "model": asked.method, "alpha": alpha, "M": M, "seed": 0}
    options = {"--file_storage": str(asked.runs), "--loglevel": "ERROR"}
    limits = {"maxiter": asked.maxiter, "progress": False}
    run = ex.run(config_updates=updates | limits, named_configs=["M1"], options=options)
    return dict(run.result or {})


def _line(name: str, alpha: float, M: int, results: _Results, maxiter: int) -> tuple[str, ...]:
    published = MULTICLASS.get(name, {}).get(alpha)
    at_limit = [not result["converged"] and result["iterations"] >= maxiter for result in results]
    unsettled = [bool((result["sites_change"] or 0.0) > _SITES_TOL) for result in results]
    return (
        name,
        f"{alpha:g}",
        f"{M}",
        mean_and_error([result["error"] for result in results]),
        "–" if published is None else f"{published.error:.2f}",
        mean_and_error([result["nlpd"] for result in results]),
        "–" if published is None else f"{published.nlpd:.2f}",
        f"{np.mean([result['seconds'] for result in results]):.0f}",
        f"{sum(at_limit)}/{len(results)}",
        f"{sum(not result['converged'] for result in results) - sum(at_limit)}/{len(results)}",
        f"{sum(unsettled)}/{len(results)}",
    )


def _average_ranks(scores: Sequence[_Results], alphas: Sequence[float]) -> str:
    """A table of the mean rank of each alpha, by error and by NLPD; alphas that tie share their ranks."""
    ranks = {name: _ranks(np.array([[result[name] for result in row] for row in scores])) for name in ("error", "nlpd")}
    rows = [
        (f"{alpha:g}", *(mean_and_error(ranks[name][:, k].tolist()) for name in ranks))
        for k, alpha in enumerate(alphas)
    ]
    return aligned([("alpha", "error", "NLPD"), *rows])


def _ranks(values: Floats) -> Floats:
    """Ranks along the rows [rows, alphas]."""
    ranks: Floats = rankdata(values, axis=1)
    return ranks


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # Sacred has recorded the run as interrupted
        sys.exit("\nInterrupted. The runs so far are kept.")
