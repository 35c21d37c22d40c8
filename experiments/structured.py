"""
Structured approximations and power EP revisited (Bui and Titsias 2025): tables and figures of regression.

    python -m experiments.structured S2 [--full] [--methods SGPR T-SGPR] [--repeats 3] [--M 256] [--maxiter 1000]

S1 Snelson's toy function, with a figure of the bounds in the course of training; S2 kin40k beside the published table;
S3 minibatches: SVGP, T-SVGP and BT-SVGP on medium sets; S4 power EP with a fixed or a learned scale, on small sets.
Each repeat is a run of `experiments.regression` with its own split and seed, recorded in ``runs/``. All are short
unless ``--full`` asks for the published size.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from experiments.cells.cell import Cell
from experiments.cells.running import completed
from experiments.protocols.arguments import count, power
from experiments.report.structured_tables import Results, beside_published, read_course, scales, scores, variances

Update = dict[str, Any]


@dataclass(frozen=True)
class _Size:
    """Size of a comparison."""

    sets: tuple[str, ...]
    M: tuple[int, ...]
    repeats: int
    maxiter: int
    """Iterations of L-BFGS at most, or epochs of Adam."""

    max_train: int | None = None
    alphas: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Protocol:
    """Methods and sizes of a comparison."""

    methods: dict[str, Update]
    """Settings of each method; "num_blocks" becomes the size of a block."""

    usual: _Size
    full: _Size


def _collapsed(*blocks: int) -> dict[str, Update]:
    """Return the methods of S1 and S2, BT-SGPR with these numbers of blocks."""
    return {
        "exact GP": {"model": "GPR"},
        "SGPR": {"model": "SGPR"},
        "T-SGPR": {"model": "TSGPR"},
        **{f"BT-SGPR, {number} blocks": {"model": "BTSGPR", "num_blocks": number} for number in blocks},
        "PEP 0.5": {"model": "PEPR", "alpha": 0.5},
        "T-PEP 0.5": {"model": "TPEP", "alpha": 0.5},
    }


_SMALL = ("yacht", "boston", "energy", "concrete", "wine-red")
_PROTOCOLS = {
    "S1": _Protocol(
        _collapsed(20, 10),
        usual=_Size(("snelson",), M=(5,), repeats=1, maxiter=100),
        full=_Size(("snelson",), M=(5,), repeats=1, maxiter=1000),
    ),
    "S2": _Protocol(
        _collapsed(50, 10),
        usual=_Size(("kin40k",), M=(64,), repeats=1, maxiter=50, max_train=1000),
        full=_Size(("kin40k",), M=(256,), repeats=3, maxiter=1000, max_train=5000),
    ),
    "S3": _Protocol(
        {"SVGP": {"model": "SVGP"}, "T-SVGP": {"model": "TSVGP"}, "BT-SVGP": {"model": "BTSVGP"}},
        usual=_Size(("kin8nm",), M=(64,), repeats=1, maxiter=40),
        full=_Size(("kin8nm", "power", "elevators", "kin40k"), M=(256, 512), repeats=10, maxiter=300),
    ),
    "S4": _Protocol(
        {"PEP": {"model": "PEPR"}, "T-PEP": {"model": "TPEP"}},
        usual=_Size(_SMALL[:2], M=(20,), repeats=2, maxiter=50, alphas=(0.0, 0.5, 1.0)),
        full=_Size(_SMALL, M=(10, 20, 50, 100), repeats=10, maxiter=500, alphas=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    ),
}
_BATCH = 500  # rows, S3
_PUBLISHED = ("S2", "kin40k", 256, 5000)  # protocol, set, M and training rows
_LOGS = 10  # entries in the logs of a run of S3, about
_UNITS = (
    "On test rows: RMSE; LL, the mean log predictive probability (nats). Sigma: standard deviation of the noise.\n"
    "Means of the repeats ± standard error, with standardized targets. Seconds: training, per repeat. Numbers of\n"
    "repeats: limit, not converged at the last iteration (Adam never reports convergence); stopped, ended earlier\n"
    "without converging."
)
_HOW_TO_READ = {
    "S1": f"Evidence: the objective, nats per point. Noise and kernel: their variances.\n{_UNITS}",
    "S2": (
        "In pairs: found, published (Bui and Titsias 2025, other splits). Obj: the negative objective per point, in\n"
        "nats; the published one is on about twice that scale: compare order, and the ratio of published to found.\n"
        + _UNITS
    ),
    "S3": f"Obj: the negative bound, nats per point.\n{_UNITS}",
    "S4": (
        "RMSE and LL (mean log predictive probability, nats) of test rows, standardized targets, with m = 1 (PEP) and\n"
        "m learned (T-PEP): means of the repeats ± standard error; learned − 1: repeat by repeat. Seconds: training."
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a comparison; see ``--help``."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    protocol = _PROTOCOLS[asked.protocol]
    size = _asked_size(asked, protocol)
    unknown = set(asked.methods or ()) - set(protocol.methods)
    if unknown:
        parser.error(f"--methods: no {', '.join(sorted(unknown))} among {', '.join(protocol.methods)}.")
    if asked.alphas and asked.protocol != "S4":
        parser.error("--alphas is for S4 only.")
    methods = _methods(asked, protocol, size)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments import datasets
    from experiments.ingredients.data import check_task

    rows = {}
    try:
        for name in size.sets:
            check_task(name, "regression")
            N = len(datasets.load(name, size.repeats - 1).X_train)
            rows[name] = min(N, size.max_train or N)
    except (ValueError, OSError) as error:  # no such set or split; no network, or not the published file
        sys.exit(str(error))
    if max(size.M) > min(rows.values()):
        parser.error(f"--M is {max(size.M)}, but there are only {min(rows.values())} training rows.")
    began = time.perf_counter()
    wanted = list(product(size.sets, size.M, methods, range(size.repeats)))
    cells = []
    for name, M, method, repeat in wanted:
        updates = _common(asked.protocol, name, M, rows[name], size) | _in_rows(methods[method], rows[name])
        cells.append(Cell("regression", updates | {"split": repeat, "seed": repeat}, asked.protocol))
    found = dict(zip(wanted, completed(cells, asked.runs, jobs=asked.jobs), strict=True))
    for name, M in product(size.sets, size.M):
        results = {method: [found[name, M, method, repeat] for repeat in range(size.repeats)] for method in methods}
        _show(asked, size, name, M, rows[name], results)
    print(f"In {(time.perf_counter() - began) / 60:.1f} minutes.\n\n{_HOW_TO_READ[asked.protocol]}")


def _show(asked: argparse.Namespace, size: _Size, name: str, M: int, N: int, results: Results) -> None:
    """Print the results of the methods on a set with N training rows."""
    maxiter = _common(asked.protocol, name, M, N, size)["maxiter"]
    heading = f"{asked.protocol}: {name}, {N} training rows, M = {M}, repeats: {size.repeats}"
    if asked.protocol == "S4":
        table = scales(results)
    elif asked.protocol == "S1":
        table = variances(results, maxiter)
    elif (asked.protocol, name, M, N) == _PUBLISHED:
        table = beside_published(results, maxiter)
    else:
        table = scores(results, maxiter)
    print(f"\n{heading}\n\n{table}\n")
    if asked.protocol == "S1":
        figure = asked.runs / f"structured-S1-{name}-{M}.png"
        _draw(figure, results, heading)
        print(f"Figure: {os.path.relpath(figure)}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.structured",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("protocol", choices=list(_PROTOCOLS))
    parser.add_argument("--full", action="store_true", help="the published size, which takes hours (S1: minutes)")
    parser.add_argument("--sets", nargs="+", metavar="SET", help="data sets in place of the protocol's")
    parser.add_argument(
        "--methods", nargs="+", metavar="METHOD", help="methods, named as in the protocol's table (all)"
    )
    parser.add_argument("--alphas", nargs="+", type=power, metavar="ALPHA", help="powers; S4 only")
    parser.add_argument("--repeats", type=count, help="number of splits")
    parser.add_argument("--M", nargs="+", type=count, help="numbers of inducing points")
    parser.add_argument("--maxiter", type=count, help="iterations of L-BFGS, at most; for S3 epochs of Adam")
    parser.add_argument("--max-train", type=count, metavar="ROWS", help="training rows, at most")
    parser.add_argument("--jobs", type=count, default=1, help="runs at once (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _asked_size(asked: argparse.Namespace, protocol: _Protocol) -> _Size:
    size = protocol.full if asked.full else protocol.usual
    return _Size(
        sets=tuple(asked.sets or size.sets),
        M=tuple(asked.M or size.M),
        repeats=asked.repeats or size.repeats,
        maxiter=asked.maxiter or size.maxiter,
        max_train=asked.max_train or size.max_train,
        alphas=tuple(asked.alphas or size.alphas),
    )


def _methods(asked: argparse.Namespace, protocol: _Protocol, size: _Size) -> dict[str, Update]:
    """Return the selected methods by name, each with every power."""
    chosen = {name: update for name, update in protocol.methods.items() if name in (asked.methods or protocol.methods)}
    if not size.alphas:
        return chosen
    return {f"{name} {alpha:g}": update | {"alpha": alpha} for alpha in size.alphas for name, update in chosen.items()}


def _common(protocol: str, name: str, M: int, N: int, size: _Size) -> Update:
    """Return the settings that the runs of all methods share."""
    common: Update = {"dataset": name, "M": M, "max_train": size.max_train, "maxiter": size.maxiter}
    if protocol == "S3":
        steps = size.maxiter * -(-N // _BATCH)
        return common | {"batch_size": _BATCH, "maxiter": steps, "log_interval": max(1, steps // _LOGS)}
    return common


def _in_rows(update: Update, N: int) -> Update:
    """Replace the number of blocks by their size."""
    if "num_blocks" not in update:
        return update
    return {"model": update["model"], "block_size": -(-N // update["num_blocks"])}


def _draw(path: Path, results: Results, title: str) -> None:
    """Draw the course of the first repeats."""
    from experiments.report.training_course import draw_course

    draw_course({method: read_course(of[0]) for method, of in results.items()}, title, path)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
