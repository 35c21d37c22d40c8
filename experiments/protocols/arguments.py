"""Parsers of command lines, and types of arguments, whose errors name the accepted values."""

import argparse
from pathlib import Path
from typing import Any


def parser_of(description: str | None, name: str = "", **options: Any) -> argparse.ArgumentParser:
    """
    Return a parser whose help is a module's docstring, for the module `name` of `experiments`.
    """
    prog = f"python -m experiments.{name}" if name else None
    text = (description or "").strip()
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=prog, description=text, formatter_class=layout, **options)


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run many experiments."""
    parser.add_argument("--jobs", type=count, help="runs at once on this machine (1)")
    parser.add_argument(
        "--threads", type=count, help="threads of a run (cores divided by jobs; on a cluster 1)"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder of recorded runs (%(default)s)"
    )


def power(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def count(text: str) -> int:
    """Parse a whole number from 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return value
