"""
Run protocols of the papers, and write their tables and figures.

    python -m experiments.papers U2 [--full] [--only dataset=boston,yacht alpha=0.5] [--with
    maxiter=50] [--jobs 2]

Every run is recorded in ``runs/``. Started again, the command runs only what has not completed:
new, failed, interrupted or killed runs. Runs that are stored in ``experiments/results/U2/runs.csv``
count as completed; ``python -m experiments.papers next`` adds to them, protocol by protocol. Tables
(CSV and Markdown) and figures are in ``runs/papers/U2/``. A protocol takes minutes; with ``--full``
it has the published size, which takes hours; if that is smaller, its text says so. ``--only
axes=list`` lists a protocol's axes and values.
"""

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.papers import PROTOCOLS
from experiments.protocols.arguments import add_running, parser_of


def main(arguments: Sequence[str] | None = None) -> None:
    """Run protocols; see ``--help``."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["next"]:
        from experiments.papers.next import main as run_next

        run_next(given[1:])
        return
    asked = _parser().parse_args(given)

    # Imported after parsing the arguments, since it takes seconds.
    from experiments.papers.running import run

    missing = [run(name, asked) for name in asked.protocols]
    if any(missing):
        sys.exit("\n".join(filter(None, missing)))


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"{name:5} {title}" for name, title in PROTOCOLS.items())
    parser = parser_of(__doc__, "papers", epilog=listed)
    parser.add_argument(
        "protocols",
        nargs="+",
        choices=PROTOCOLS,
        metavar="PROTOCOL",
        help="one or more, below",
    )
    parser.option("--full", False, "the published size")
    for name, metavar, text in (
        (
            "--only",
            "AXIS=VALUE,...",
            "values of some axes (all); may be repeated; runs without an axis stay; axes=list: list "
            "them",
        ),
        ("--with", "ENTRY=VALUE", "other settings of all runs"),
    ):
        parser.add_argument(
            name, nargs="+", action="extend", type=_values, default=[], metavar=metavar, help=text
        )
    parser.option("--stored", False, "show the runs that have completed, and run nothing")
    add_running(parser)
    parser.option("--to", Path, "folder of tables and figures (papers/ in the folder of runs)")
    return parser


def _values(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, list(map(_value, values.split(",")))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a string
        return text


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Completed runs are kept; the same command goes on with the rest.")
