"""
Plot test error and NLPD against the seconds of training, as Villacampa-Calvo and Hernández-Lobato (2020).

    python -m experiments.training_time [--protocol M3] [--methods PEP APEP] [--M 4 20] [--alpha 0.5] [--maxiter 20]
    python -m experiments.training_time --protocol M4 --full

M3 is the satellite set with L-BFGS on all rows; M4 are the digits of MNIST, and M5 flights, with Adam on minibatches.
Each method with each number of inducing points is a run of `experiments.classification`, recorded in ``runs/``; a table
gives the final scores, a figure their course.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cells.cell import Cell, Result
from experiments.cells.running import completed
from experiments.protocols.arguments import count, power
from experiments.report.columns import aligned
from experiments.report.endings import endings

_TIED = ("APEP", "ARPEP", "RPAPEP", "SVGP")


@dataclass(frozen=True)
class _Protocol:
    """Data set and sizes of a comparison."""

    dataset: str
    named_config: str
    methods: tuple[str, ...]
    usual: dict[str, Any]
    full: dict[str, Any]


_PROTOCOLS = {
    "M3": _Protocol(
        "satellite",
        "M1",
        ("PEP", *_TIED),
        usual={"M": [4, 20], "maxiter": 20},
        full={"M": [4, 20, 100], "maxiter": 500},
    ),
    **{
        protocol: _Protocol(dataset, protocol, _TIED, {"M": [50], "maxiter": 300}, full={"M": [200], "maxiter": 20_000})
        for protocol, dataset in {"M4": "mnist", "M5": "flights"}.items()
    },
}
_LOGS = 10  # entries in the logs of a run, about
_HOW_TO_READ = (
    "On test rows, after the last iteration: error, the fraction of labels that are wrong; NLPD, the mean negative\n"
    "log predictive probability (nats). Seconds: training, with tracing of the graph, without scoring. Limit: 1/1 if\n"
    "it had not converged at the last iteration (Adam never reports convergence); stopped: 1/1 if training ended\n"
    "earlier without converging."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison; see ``--help``."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    protocol = _PROTOCOLS[asked.protocol]
    size = protocol.full if asked.full else protocol.usual
    methods, counts, maxiter = asked.methods or protocol.methods, asked.M or size["M"], asked.maxiter or size["maxiter"]

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import datasets
    from experiments.report.curves import Curve, draw_curves

    try:
        dataset = datasets.load(protocol.dataset, asked.split)
    except (ValueError, OSError) as error:  # no such split; no network, or not the published file
        sys.exit(str(error))
    N = min(len(dataset.X_train), asked.max_train or len(dataset.X_train))
    if max(counts) > N:
        parser.error(f"--M is {max(counts)}, but there are only {N} training rows.")
    began = time.perf_counter()
    common = {
        "dataset": protocol.dataset,
        "split": asked.split,
        "max_train": asked.max_train,
        "alpha": asked.alpha,
        "maxiter": maxiter,
        "log_interval": max(1, maxiter // _LOGS),
        "seed": 0,
    }
    wanted = list(product(counts, methods))
    cells = [Cell("classification", {**common, "model": method, "M": M}, protocol.named_config) for M, method in wanted]
    lines: list[tuple[str, ...]] = [("method", "M", "error", "NLPD", "seconds", "iterations", "limit", "stopped")]
    curves = []
    for (M, method), result in zip(wanted, completed(cells, asked.runs), strict=True):
        seconds, scores = _logged(Path(result["directory"]))
        curves.append(Curve(f"{method}, M = {M}", seconds, scores, methods.index(method), counts.index(M)))
        lines.append(_line(method, M, result, maxiter))
    minutes = (time.perf_counter() - began) / 60
    rows = f"{N} training and {len(dataset.X_test)} test points"
    title = f"{protocol.dataset}, split {asked.split}: {rows}, alpha {asked.alpha:g} (SVGP: 0)"
    print(f"\n{title}, in {minutes:.1f} minutes\n\n{aligned(lines)}\n\n{_HOW_TO_READ}")
    figure = asked.runs / f"training-time-{protocol.dataset}.png"
    draw_curves(curves, title, "seconds of training", figure, log_axis=True)
    print(f"\nFigure: {os.path.relpath(figure)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.training_time", description=description)
    parser.add_argument(
        "--protocol", choices=list(_PROTOCOLS), default="M3", help="M3: satellite; M4: MNIST; M5: flights (%(default)s)"
    )
    parser.add_argument("--methods", nargs="+", choices=("PEP", *_TIED), help="models (all; M4 and M5: all but PEP)")
    parser.add_argument("--alpha", type=power, default=0.5, help="power of all but SVGP (%(default)s)")
    parser.add_argument("--full", action="store_true", help="M and iterations of the paper: hours")
    parser.add_argument("--M", nargs="+", type=count, help="numbers of inducing points (4 20; M4 and M5: 50)")
    parser.add_argument("--maxiter", type=count, help="iterations of L-BFGS, at most (20), or steps of Adam (300)")
    parser.add_argument("--max-train", type=count, metavar="ROWS", help="training rows, at most (all)")
    parser.add_argument("--split", type=int, default=0, help="number of the split (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _logged(directory: Path) -> tuple[Any, dict[str, Any]]:
    """Return the seconds [n] of a run's log entries and their scores [1, n], without the entry before training."""
    metrics = json.loads((directory / "metrics.json").read_text())
    values = {name: np.array(metrics[name]["values"][1:]) for name in ("seconds", "test/error", "test/nlpd")}
    return values["seconds"], {"error": values["test/error"][None], "nlpd": values["test/nlpd"][None]}


def _line(method: str, M: int, result: Result, maxiter: int) -> tuple[str, ...]:
    scores = (f"{result['error']:.3f}", f"{result['nlpd']:.3f}", f"{result['seconds']:.0f}", str(result["iterations"]))
    return method, str(M), *scores, *endings([result], maxiter)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
