"""
Compare active learning by predictive entropy with random rows, as Villacampa-Calvo and Hernández-Lobato (2020).

    python -m experiments.active_learning [--methods PEP APEP] [--alpha 0.5] [--repetitions 2] [--per-round 20]
    python -m experiments.active_learning --full

Each repetition of a method and a rule is a run of `experiments.labeling` on the waveform set (100 labels at first, a
pool of 400 rows, 500 test rows, 100 additions), recorded in ``runs/``; a table and a figure give test error and NLPD
by the number of labels.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from experiments.cells.cell import Cell, Result
from experiments.cells.running import completed
from experiments.protocols.arguments import count, power
from experiments.report.columns import aligned, mean_and_error

_METHODS = ("PEP", "APEP", "ARPEP", "RPAPEP", "SVGP")
_RULES = ("entropy", "random")
_SCORES = ("error", "nlpd")
_FULL = {"repetitions": 20, "per_round": 1}
_HOW_TO_READ = (
    "Mean over the repetitions ± its standard error, on test rows: error, the fraction of labels that are wrong;\n"
    "NLPD, the mean negative log predictive probability (nats); smaller is better. First: with the initial\n"
    "labels. Mean: over all numbers of labels. s/round: training, tracing of the graph included."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison; see ``--help``."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.full:
        vars(asked).update(_FULL)
    for name, most in {"per_round": asked.additions, "M": asked.initial}.items():
        if getattr(asked, name) > most:
            option = name.replace("_", "-")
            parser.error(f"--{option} is {getattr(asked, name)}; whole numbers from 1 to {most} are accepted.")

    # Imported after parsing the arguments, since it takes seconds.
    from experiments.ingredients.data import check_task
    from experiments.labeling import divided
    from experiments.report.curves import Curve, draw_curves

    try:
        check_task(asked.set, "classification", "multiclass")
        divided(asked.set, 0, asked.initial, asked.num_test, asked.additions)
    except (ValueError, OSError) as error:  # no such set or too few rows; no network, or not the published file
        sys.exit(str(error))
    began = time.perf_counter()
    lines: list[tuple[str, ...]] = [
        ("method", "rule", "error: first", "mean", "last", "NLPD: first", "mean", "last", "s/round")
    ]
    curves = []
    wanted = list(product(asked.methods, _RULES, range(asked.repetitions)))
    cells = [_cell(method, rule, repetition, asked) for method, rule, repetition in wanted]
    found = dict(zip(wanted, completed(cells, asked.runs, jobs=asked.jobs), strict=True))
    for (position, method), (line, rule) in product(enumerate(asked.methods), enumerate(_RULES)):
        results = [found[method, rule, repetition] for repetition in range(asked.repetitions)]
        scores = {name: np.array([result[name] for result in results]) for name in _SCORES}
        curves.append(Curve(f"{method}, {rule}", np.array(results[0]["labels"]), scores, position, line))
        lines.append(_line(method, rule, results))
    minutes = (time.perf_counter() - began) / 60
    power = "" if asked.methods == ["SVGP"] else f", alpha {asked.alpha:g}"
    title = f"{asked.set}{power}: {asked.repetitions} repetitions, {asked.per_round} labels at a time"
    print(f"\n{title}, in {minutes:.1f} minutes\n\n{aligned(lines)}\n\n{_HOW_TO_READ}")
    figure = asked.runs / f"active-learning-{asked.set}.png"
    draw_curves(curves, title, "labels", figure)
    print(f"\nFigure: {os.path.relpath(figure)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.active_learning", description=description)
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=["PEP"], help="models (PEP)")
    parser.add_argument("--alpha", type=power, default=0.5, help="power of all but SVGP (%(default)s)")
    parser.add_argument("--repetitions", type=count, default=2, help="divisions of the rows (%(default)s)")
    parser.add_argument(
        "--per-round", type=count, default=20, metavar="LABELS", help="new labels per training run (%(default)s)"
    )
    parser.add_argument("--full", action="store_true", help="20 repetitions, 1 label at a time: a day a method")
    parser.add_argument("--set", default="waveform", help="a classification data set (%(default)s)")
    parser.add_argument("--initial", type=count, default=100, help="initial labels (%(default)s)")
    parser.add_argument("--num-test", type=count, default=500, help="test rows (%(default)s)")
    parser.add_argument("--additions", type=count, default=100, help="new labels in total (%(default)s)")
    parser.add_argument("--M", type=count, default=20, help="inducing points (%(default)s)")
    parser.add_argument("--maxiter", type=count, default=20, help="iterations of L-BFGS a round, at most (%(default)s)")
    parser.add_argument("--jobs", type=count, default=1, help="runs at once (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


def _cell(method: str, rule: str, repetition: int, asked: argparse.Namespace) -> Cell:
    """Return the run of one repetition."""
    names = ("initial", "num_test", "additions", "per_round", "M", "maxiter", "alpha")
    updates = {"dataset": asked.set, "repetition": repetition, "rule": rule, "model": method, "seed": 0}
    return Cell("labeling", updates | {name: getattr(asked, name) for name in names})


def _line(method: str, rule: str, results: Sequence[Result]) -> tuple[str, ...]:
    cells = []
    for name in _SCORES:
        values = np.array([result[name] for result in results])  # [repetitions, rounds]
        cells += [mean_and_error(of.tolist()) for of in (values[:, 0], values.mean(axis=1), values[:, -1])]
    return method, rule, *cells, f"{np.mean([result['seconds'] for result in results]):.0f}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
