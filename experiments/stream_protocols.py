"""
Run the comparisons of Bui, Nguyen and Turner (2017): tables and figures of runs of `experiments.streaming`.

    python -m experiments.stream_protocols T3 [--full] [--sets audio-subband] [--runs runs]

T1 a toy function, in order and shuffled, with frames of the posterior; T2 alpha on a periodic series; T3 time series
against GPR, SGPR and SVGP; T4 terrain against the same; T5 memory against accuracy on terrain; T6 banana in order and
shuffled; T7 its final errors by the order of arrival, beside the published errors. T8, exactness, is
`python -m experiments.stream_exactness`. Each is short unless ``--full`` asks for the published size.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from experiments.cells.cell import Cell
from experiments.cells.running import completed

Update = dict[str, Any]

_PEERS: tuple[Update, ...] = ({"model": "GPR"}, {"model": "SGPR"}, {"model": "SVGP"})
_OURS: tuple[Update, ...] = ({"alpha": 0.0}, {"alpha": 0.5})


@dataclass(frozen=True)
class _Protocol:
    """Runs of a protocol, and how to show them."""

    named: str
    """The named configuration of `experiments.streaming`."""

    methods: tuple[Update, ...]
    """Settings that differ between the runs of a comparison."""

    settings: tuple[Update, ...] = ({},)
    """Settings of each comparison, at the published size."""

    short: tuple[Update, ...] = ({},)
    """Settings of each short comparison."""

    frames: bool = False
    """True to draw the posterior after some batches."""

    memory: bool = False
    """True to draw scores against the memory kept from batch to batch."""

    sets: tuple[str, ...] = field(default=())
    """Data sets; by default from the named configuration."""


def _in_orders(*methods: Update, orders: Sequence[str] = ("forward", "shuffled")) -> tuple[Update, ...]:
    return tuple(method | {"order": order} for order in orders for method in methods)


_PROTOCOLS = {
    "T1": _Protocol("T1", _OURS, settings=_in_orders({}), short=_in_orders({"maxiter": 100}), frames=True),
    "T2": _Protocol(
        "T2",
        tuple({"alpha": alpha} for alpha in (0.0, 0.01, 0.2, 0.5, 0.8, 1.0)),
        short=({"maxiter": 20, "first": 100, "batch_size": 100},),
    ),
    "T3": _Protocol(
        "T3",
        (*_OURS, *_PEERS),
        settings=tuple({"M": M, "batch_size": size} for M in (100, 200) for size in (300, 500)),
        short=({"M": 60, "max_train": 4000, "batch_size": 500, "window": 1000, "maxiter": 10, "first_maxiter": 40},),
        sets=("pseudo-periodic", "audio-subband"),
    ),
    "T4": _Protocol(
        "T4",
        (*_OURS, *_PEERS),
        settings=({"M": 400, "batch_size": 750}, {"M": 600, "batch_size": 1000}),
        short=({"M": 100, "max_train": 4000, "batch_size": 750, "window": 1000, "maxiter": 10, "first_maxiter": 30},),
    ),
    "T5": _Protocol(
        "T4",
        (
            *({"model": "STREAM", "M": M} for M in (50, 100, 200, 400, 600)),
            *({"model": "SGPR", "M": 400, "window": window} for window in (1000, 2500, 7500)),
        ),
        short=({"max_train": 3000, "maxiter": 10, "first_maxiter": 20},),
        memory=True,
    ),
    "T6": _Protocol("T6", ({"alpha": 0.5}, {"alpha": 1.0}), settings=_in_orders({}), short=_in_orders({"maxiter": 15})),
    "T7": _Protocol(
        "T6",
        (*_in_orders({"alpha": 0.5}, orders=("forward", "backward", "shuffled")), {"alpha": 0.5, "model": "BATCH"}),
        short=({"maxiter": 15, "first_maxiter": 15},),
    ),
}
_SHORT_T5 = ({"model": "STREAM", "M": 50}, {"model": "STREAM", "M": 150}, {"model": "SGPR", "M": 100, "window": 1500})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparisons of a protocol; see ``--help``."""
    asked = _parser().parse_args(arguments)
    protocol = _PROTOCOLS[asked.protocol]
    methods = _SHORT_T5 if asked.protocol == "T5" and not asked.full else protocol.methods
    print("Loading TensorFlow ...", flush=True)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments.report.figure import draw
    from experiments.report.recorded import read_run

    sets = [{"dataset": name} for name in asked.sets or protocol.sets] or [{}]
    settings = list(enumerate(protocol.settings if asked.full else protocol.short))
    comparisons = [(number, setting | name | {"seed": 0}) for name, (number, setting) in product(sets, settings)]
    cells = [Cell("streaming", common | method, protocol.named) for _, common in comparisons for method in methods]
    found = [read_run(Path(result["directory"])) for result in completed(cells, asked.runs)]
    for place, (number, _) in enumerate(comparisons):
        runs = _told_apart(found[place * len(methods) : (place + 1) * len(methods)])
        _print_table(asked.protocol, runs)
        stem = f"stream-{asked.protocol}-{runs[0].config['data']['dataset']}-{number}"
        figure = asked.runs / f"{stem}.png"
        draw(runs, _stream(runs[0]), figure)
        print(f"Figure: {os.path.relpath(figure)}")
        if protocol.memory:
            _draw_memory(runs, asked.runs / f"{stem}-memory.png")
        if protocol.frames:
            _draw_frames(runs, asked.runs / f"{stem}-frames.png")


def _told_apart(runs: Sequence[Any]) -> list[Any]:
    """Return the runs, with M in their titles if it differs."""
    if len({run.config["gp"]["M"] for run in runs}) == 1:
        return list(runs)
    return [replace(run, title=f"{run.title}, M = {run.config['gp']['M']}") for run in runs]


def _stream(run: Any) -> Any:
    """Return the data of a run, training rows in the order of arrival."""
    from experiments.ingredients.stream import arriving

    return arriving(**run.config["data"], seed=run.config["seed"])


def _print_table(name: str, runs: Sequence[Any]) -> None:
    from experiments.report.table import heading, table, units

    shown = {"T7": _by_order}.get(name, table)
    print(f"\n{heading(runs)}, {_differs(runs)}\n{units(runs)}\n\n{shown(runs)}\n", flush=True)


def _differs(runs: Sequence[Any]) -> str:
    data = runs[0].config["data"]
    return f"first batch {data['first']}, then {data['batch_size']}, {data['order']}"


def _by_order(runs: Sequence[Any]) -> str:
    """Return final errors by the order of arrival, beside the published errors."""
    from experiments.report.columns import aligned
    from experiments.report.published import STREAMING_BANANA

    lines: list[tuple[str, ...]] = [("order", "published", "here", "log likelihood")]
    for run in runs:
        order = "batch" if run.config["gp"]["model"] == "BATCH" else run.config["data"]["order"]
        found = run.result
        lines.append(
            (order, f"{STREAMING_BANANA[order]:.4f}", f"{found['error']:.4f}", f"{found['log_likelihood']:.3f}")
        )
    return aligned(lines)


def _draw_frames(runs: Sequence[Any], path: Path) -> None:
    from experiments.report.frames import draw_frames

    draw_frames(runs, [_stream(run) for run in runs], path)
    print(f"Frames: {os.path.relpath(path)}")


def _draw_memory(runs: Sequence[Any], path: Path) -> None:
    from experiments.report.memory import draw_memory

    draw_memory(runs, path)
    print(f"Memory: {os.path.relpath(path)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.stream_protocols",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("protocol", choices=list(_PROTOCOLS))
    parser.add_argument("--full", action="store_true", help="the published size, which takes minutes to hours")
    parser.add_argument("--sets", nargs="+", help="data sets in place of the protocol's")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)")
    return parser


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The runs so far are kept; the same command goes on with the rest.")
