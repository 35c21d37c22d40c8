"""
Draw inducing points trained at several alphas, for data in the plane.

They lie at the decision boundary at alpha = 0, and spread over the data as alpha grows.

    python -m experiments.inducing_points [--set banana] [--alphas 0 0.01 0.5 1] [--M 30]
    python -m experiments.inducing_points --set three-classes [--M 128]

Each alpha is a run of `experiments.classification`, recorded in ``runs/``; the figure has a panel for each (Bui, Yan
and Turner 2017; for three classes Villacampa-Calvo and Hernández-Lobato 2020).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cells.cell import Cell
from experiments.cells.running import completed
from experiments.protocols.arguments import count, power


@dataclass(frozen=True)
class _Setting:
    """Default settings of a data set."""

    alphas: tuple[float, ...]
    M: int
    maxiter: int
    others: dict[str, Any]


_SETTINGS = {
    "banana": _Setting((0.0, 0.01, 0.5, 1.0), M=30, maxiter=300, others={"max_jitter": 1e-3}),
    "three-classes": _Setting(
        (0.0, 0.5, 1.0),
        M=128,
        maxiter=20,
        others={"max_jitter": 1e-3, "epsilon": 0.05, "lengthscales": 0.7},  # near the true values
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and draw the figure; see ``--help``."""
    asked = _parser().parse_args(arguments)
    setting = _SETTINGS[asked.set]

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import datasets
    from experiments.report.decision import draw_panels
    from experiments.report.recorded import read_run
    from experiments.report.table import heading, table, units

    try:
        dataset = datasets.load(asked.set)
    except (ValueError, OSError) as error:  # no network, or not the published file
        sys.exit(str(error))
    common: dict[str, Any] = {
        "dataset": asked.set,
        "M": asked.M or setting.M,
        "maxiter": asked.maxiter or setting.maxiter,
        "seed": 0,
        **setting.others,
    }
    cells = [Cell("classification", common | {"alpha": alpha}) for alpha in asked.alphas or setting.alphas]
    runs = [read_run(Path(result["directory"])) for result in completed(cells, asked.runs, jobs=asked.jobs)]
    print(f"\n{heading(runs)}\n{units(runs)}\n\n{table(runs)}\n")
    figure = asked.runs / f"inducing-points-{asked.set}.png"
    draw_panels(runs, dataset, figure)
    print(f"Figure: {os.path.relpath(figure)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.inducing_points", description=description)
    parser.add_argument("--set", choices=list(_SETTINGS), default="banana", help="data set (%(default)s)")
    parser.add_argument("--alphas", nargs="+", type=power, metavar="ALPHA", help=f"powers ({_usual('alphas')})")
    parser.add_argument("--M", type=count, help=f"number of inducing points ({_usual('M')})")
    parser.add_argument("--maxiter", type=count, help=f"iterations of L-BFGS, at most ({_usual('maxiter')})")
    parser.add_argument("--jobs", type=count, default=1, help="runs at once (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _usual(name: str) -> str:
    """Return the defaults of an option."""
    values = {of: getattr(setting, name) for of, setting in _SETTINGS.items()}
    return "; ".join(
        f"{of}: {' '.join(f'{part:g}' for part in (value if isinstance(value, tuple) else (value,)))}"
        for of, value in values.items()
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
