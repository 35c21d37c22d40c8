"""
The demonstration: sparse GP regression with GPflow's SGPR and the models of `gpflow_pep`, on one real data set.

    python -m experiments.demo [--dataset diabetes] [--split 0] [--short]

Each method is a run of `experiments.regression`, recorded in ``runs/``; a table and a figure compare them.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HOW_TO_READ = (
    "One split: differences of the scores this small mean little. α = 1 (FITC) is known to overestimate the evidence\n"
    "and to underestimate the noise; bounds can be compared with each other."
)
_SEED = 0
_SHORT_MAXITER = 5


@dataclass(frozen=True)
class Size:
    """How large a demonstration is."""

    M: int = 50
    """Inducing points."""

    block_size: int = 50
    """Rows per block of BT-SGPR."""

    max_train: int | None = 2000
    """Training rows at most; None: all."""

    maxiter: int = 200
    """Iterations of L-BFGS at most."""


_SIZES = {
    "diabetes": Size(M=5, block_size=40, max_train=None),  # few enough for the methods to differ
    "snelson": Size(M=5, block_size=18, max_train=None),  # as Bui and Titsias (2025): 5 inducing points, 10 blocks
}


def _methods(dataset: str) -> list[dict[str, Any]]:
    """What the methods' configurations differ in."""
    return [
        {"model": "SGPR"},
        {"model": "TSGPR"},
        {"model": "BTSGPR", "block_size": _SIZES.get(dataset, Size()).block_size},
        {"model": "PEPR", "alpha": 0.5},
        {"model": "TPEP", "alpha": 0.5},
        {"model": "PEPR", "alpha": 1.0},
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration; see ``--help``."""
    asked = _parser().parse_args(arguments)
    print("Loading TensorFlow ...", flush=True)

    # Imported after the arguments are understood, since it takes seconds.
    from experiments.recording import run_directory
    from experiments.regression import ex
    from experiments.report.figure import draw
    from experiments.report.recorded import read_run
    from experiments.report.table import heading, table, units
    from gpflow_pep import datasets

    try:
        dataset = datasets.load(asked.dataset, asked.split)
    except (ValueError, OSError) as error:  # no such set or split; no network, or not the published file
        sys.exit(str(error))
    common = _configuration(asked)
    methods = _methods(asked.dataset)
    print(f"{len(methods)} methods, L-BFGS, at most {common['maxiter']} iterations each:", flush=True)
    options = {"--file_storage": str(asked.runs), "--loglevel": "WARNING"}
    directories = []
    for method in methods:
        directory = run_directory(ex.run(config_updates=common | method, options=options))
        assert directory is not None  # file_storage is among the options
        directories.append(directory)

    runs = [read_run(directory) for directory in directories]
    print(f"\n{heading(runs)}\n{units(runs)}\n\n{table(runs)}\n\n{_HOW_TO_READ}\n")
    figure = asked.runs / f"demo-{asked.dataset}.png"
    draw(runs, dataset, figure)
    print(f"Figure: {os.path.relpath(figure)}")
    print(f"Runs:   {', '.join(os.path.relpath(directory) for directory in directories)}\n")
    print(_what_next(asked.runs, common | {"model": "PEPR", "alpha": 0.5}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--task", choices=["regression"], default="regression", help="what is predicted")
    parser.add_argument("--dataset", default="diabetes", help="a name of gpflow_pep.datasets.names() (%(default)s)")
    parser.add_argument("--split", type=int, default=0, help="number of the train/test split (%(default)s)")
    parser.add_argument("--short", action="store_true", help="a few iterations only, to see that everything works")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are recorded (%(default)s)")
    return parser


def _configuration(asked: argparse.Namespace) -> dict[str, Any]:
    """What the methods' configurations have in common."""
    size = _SIZES.get(asked.dataset, Size())
    return {
        "dataset": asked.dataset,
        "split": asked.split,
        "max_train": size.max_train,
        "M": size.M,
        "maxiter": _SHORT_MAXITER if asked.short else size.maxiter,
        "seed": _SEED,
    }


def _what_next(runs: Path, example: dict[str, Any]) -> str:
    python = min(sys.executable, os.path.relpath(sys.executable), key=len)
    single = " ".join(f"{name}={value}" for name, value in example.items() if value is not None)
    return (
        f"Training curves:  {python} -m tensorboard.main --logdir {shlex.quote(os.path.relpath(runs))}\n"
        f"A single run:     {python} -m experiments.regression with {single}\n"
        f"What can be set:  {python} -m experiments.regression print_config"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # Sacred has recorded the run as interrupted
        sys.exit("\nInterrupted. The runs so far are kept.")
