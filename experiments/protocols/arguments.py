"""Parsers of command lines, and types of arguments, whose errors name the accepted values."""

import argparse
from pathlib import Path
from typing import Any


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


_TYPES = {int: count, float: power}


class Parser(argparse.ArgumentParser):
    """A parser whose options say their types by their defaults."""

    def option(self, name: str, default: Any, help: str | None = None, **others: Any) -> None:
        """
        Add an option: a flag if the default is False; several values if the default is several.

        :param default: a whole number from 1, a number from 0 to 1, a text or a path; or its type,
            if there is none.
        :param others: arguments of `add_argument` that count before the default's.
        """
        if default is False:
            self.add_argument(name, action="store_true", help=help)
            return
        several = isinstance(default, list | tuple)
        kind = type(default[0] if several else default)
        if kind is type:
            kind, default = default, None
        typed = {"type": _TYPES.get(kind, kind), "nargs": "+" if several else None}
        self.add_argument(name, default=default, help=help, **typed | others)


def parser_of(description: str | None, name: str = "", **options: Any) -> Parser:
    """
    Return a parser whose help is a module's docstring, for the module `name` of `experiments`.
    """
    prog = f"python -m experiments.{name}" if name else None
    text = (description or "").strip()
    layout = argparse.RawDescriptionHelpFormatter
    return Parser(prog=prog, description=text, formatter_class=layout, **options)


def add_running(parser: Parser) -> None:
    """Add the options of commands that run many experiments."""
    parser.option("--jobs", int, "runs at once on this machine (1)")
    parser.option("--threads", int, "threads of a run (cores divided by jobs; on a cluster 1)")
    parser.option("--runs", Path("runs"), "folder of recorded runs (%(default)s)")
