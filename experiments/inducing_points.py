"""
How inducing points move with alpha, on the banana data: from the decision boundary (alpha = 0) to all over the data.

    python -m experiments.inducing_points [--alphas 0 0.01 0.5 1] [--M 30]

Each alpha is a run of `experiments.classification`, recorded in ``runs/``; the figure has a panel for each (Bui, Yan
and Turner 2017).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DATASET = "banana"
_ALPHAS = [0.0, 0.01, 0.5, 1.0]
_FIXED = {"max_jitter": 1e-3, "seed": 0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and draw the figure; see ``--help``."""
    asked = _parser().parse_args(arguments)

    # Imported after the arguments are understood, since it takes seconds.
    from experiments.classification import ex
    from experiments.recording import run_directory
    from experiments.report.decision import draw_panels
    from experiments.report.recorded import read_run
    from experiments.report.table import heading, table, units
    from gpflow_pep import datasets

    try:
        dataset = datasets.load(_DATASET)
    except (ValueError, OSError) as error:  # no network, or not the published file
        sys.exit(str(error))
    options = {"--file_storage": str(asked.runs), "--loglevel": "WARNING"}
    common: dict[str, Any] = {
        "dataset": _DATASET,
        "M": asked.M,
        "maxiter": asked.maxiter,
        "max_jitter": 1e-3,
        "seed": 0,
    }
    runs = []
    for alpha in asked.alphas:
        directory = run_directory(ex.run(config_updates=common | {"alpha": alpha}, options=options))
        assert directory is not None  # file_storage is among the options
        runs.append(read_run(directory))
    print(f"\n{heading(runs)}\n{units(runs)}\n\n{table(runs)}\n")
    figure = asked.runs / "inducing-points.png"
    draw_panels(runs, dataset, figure)
    print(f"Figure: {os.path.relpath(figure)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.inducing_points", description=description)
    parser.add_argument(
        "--alphas", nargs="+", type=float, default=[0.0, 0.01, 0.5, 1.0], metavar="ALPHA", help="powers"
    )
    parser.add_argument("--M", type=int, default=30, help="number of inducing points (%(default)s)")
    parser.add_argument("--maxiter", type=int, default=300, help="iterations of L-BFGS, at most (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are recorded (%(default)s)")
    return parser


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # Sacred has recorded the run as interrupted
        sys.exit("\nInterrupted. The runs so far are kept.")
