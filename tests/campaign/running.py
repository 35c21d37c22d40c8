"""Shared by the campaigns: outcomes of cases, options, time limits and counts."""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.protocols.arguments import count

Rng = np.random.Generator


class Outcome(NamedTuple):
    """The outcome of a case."""

    verdict: str
    """"right", "refused" or another true answer, or what is wrong."""
    error: float
    """The largest error in units of what is tolerated; NaN where there is nothing to compare."""
    message: str


def options(description: str | None, number: int, what: str = "cases") -> argparse.ArgumentParser:
    """Return a parser of the options that every campaign has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        f"--{what}", type=count, default=number, help="how many, at most (%(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="stop after so many (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first one, from which all follow (%(default)s)"
    )
    parser.add_argument("--output", type=Path, help="file for what is found (JSON)")
    return parser


class Campaign(NamedTuple):
    """How random cases are run, told and counted."""

    run: Callable[[Any], Any]
    """Returns the outcome of a case; its verdict comes first."""
    words: Callable[[Any], Sequence[Any]]
    """What is printed of a case that is found, after its number and before its outcome."""
    verdicts: Sequence[str]
    """Verdicts that are as they should be; all others are found, and printed."""

    def run_all(self, cases: Iterable[Any], arguments: argparse.Namespace) -> list[Any]:
        """
        Return the cases with their outcomes, until the time is over; print what is found, and write
        it to the file ``--output``, if given.
        """
        began = time.monotonic()
        ended = []
        found = []
        for number, case in enumerate(cases, start=arguments.seed):
            if time.monotonic() - began > 60.0 * arguments.minutes:
                break
            outcome = self.run(case)
            ended.append((case, outcome))
            if outcome.verdict not in self.verdicts:
                print(number, *self.words(case), *outcome, flush=True)
                found.append([number, *map(str, self.words(case)), *outcome])
        if arguments.output:
            arguments.output.write_text(json.dumps(found, indent=1))
        return ended

    def print_table(self, ended: Sequence[tuple[Any, Outcome]]) -> None:
        """
        Print how many cases of each word, and of all, ended how, and the worst errors of those that
        are right.
        """
        columns = "".join(f"{name:>15}" for name in (*self.verdicts, "other"))
        groups = dict.fromkeys(str(word) for case, _ in ended for word in self.words(case))
        print(f"\n{'':42}{'cases':>7}{columns}{'worst error / tolerated':>25}")
        for group in (*groups, "all"):
            outcomes = [each for case, each in ended if group in (*self.words(case), "all")]
            found = [outcome.verdict for outcome in outcomes]
            counts = [found.count(verdict) for verdict in self.verdicts]
            numbers = "".join(f"{number:15}" for number in (*counts, len(found) - sum(counts)))
            errors = [outcome.error for outcome in outcomes if outcome.verdict == "right"]
            print(f"{group:42}{len(found):7}{numbers}{max(errors, default=np.nan):25.2g}")
