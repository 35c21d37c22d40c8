"""Shared by the campaigns: outcomes of cases, options, time limits and counts."""

import argparse
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from experiments.protocols.arguments import count

_Item = TypeVar("_Item")
_NUMERICAL = (
    r"not successful: (Kuu|B)\b|variance of f given u|lengthscales of their mean|"
    "sites cannot be updated"
)


class Outcome(NamedTuple):
    """The outcome of a case."""

    verdict: str
    """"right", "refused" or another true answer, or what is wrong."""
    error: float
    """The largest error in units of what is tolerated; NaN where there is nothing to compare."""
    message: str


def judged(errors: Mapping[str, float]) -> Outcome:
    """Judge errors in units of what is tolerated, by name: the largest decides."""
    worst = max(errors, key=lambda name: errors[name] if np.isfinite(errors[name]) else np.inf)
    if not np.isfinite(errors[worst]):
        return Outcome("not finite", np.inf, worst)
    return Outcome("right" if errors[worst] <= 1.0 else f"wrong {worst}", float(errors[worst]), "")


def guarded(judge: Callable[[], Outcome]) -> Outcome:
    """Return a judgment without warnings; an error for numerical reasons is a refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return judge()
        except Exception as error:
            named = isinstance(error, tf.errors.InvalidArgumentError) and re.search(
                _NUMERICAL, str(error)
            )
            message = f"{type(error).__name__}: {error}"[:300]
            return Outcome("refused" if named else "raw error", np.nan, message)


def options(
    description: str | None, what: str = "cases", number: int = 1000
) -> argparse.ArgumentParser:
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
    parser.add_argument("--output", type=Path, help="file for outcomes (JSON)")
    return parser


def within(minutes: float, items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield items until the time is over."""
    began = time.monotonic()
    for item in items:
        if time.monotonic() - began > 60.0 * minutes:
            return
        yield item


def tally(outcomes: Sequence[Outcome], verdicts: Sequence[str]) -> tuple[list[int], str]:
    """
    Count outcomes with each of these verdicts, and all others; and print the worst error of those
    that are right.
    """
    counted = Counter(outcome.verdict for outcome in outcomes)
    counts = [counted[verdict] for verdict in verdicts]
    errors = [outcome.error for outcome in outcomes if outcome.verdict == "right"]
    return [*counts, len(outcomes) - sum(counts)], f"{max(errors):25.2g}" if errors else ""


class Campaign(NamedTuple):
    """Random cases, and how they are run, told and counted."""

    case_of: Callable[[int], Any]
    """Makes the case of a seed."""
    run: Callable[[Any], Outcome]
    words: Callable[[Any], Sequence[Any]]
    """What is printed of a case that is found, after its seed and before its outcome."""
    groups: Sequence[str]
    groups_of: Callable[[Any], Sequence[str]]
    verdicts: Sequence[str]
    """Verdicts that are as they should be; all others are found, and printed."""

    def main(self, description: str | None, number: int = 1000) -> None:
        """
        Run the case of each seed, and print how they ended; write the seeds and outcomes that are
        not right to the file ``--output``, if given.
        """
        arguments = options(description, number=number).parse_args()
        found, wrong = [], []
        seeds = range(arguments.seed, arguments.seed + arguments.cases)
        for seed in within(arguments.minutes, seeds):
            case = self.case_of(seed)
            outcome = self.run(case)
            found.append((case, outcome))
            if outcome.verdict != "right":
                wrong.append({"seed": seed, **outcome._asdict()})
            if outcome.verdict not in self.verdicts:
                print(seed, *self.words(case), *outcome, flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(wrong, indent=1))
        self.print_table(found)

    def print_table(self, found: Sequence[tuple[Any, Outcome]]) -> None:
        """
        Print how many cases of each group, and of all, ended how, and the worst errors of those
        that are right.
        """
        columns = "".join(f"{name:>15}" for name in (*self.verdicts, "other"))
        print(f"\n{'':20}{'cases':>7}{columns}{'worst error / tolerated':>25}")
        for group in (*self.groups, "all"):
            outcomes = [
                outcome for case, outcome in found if group in (*self.groups_of(case), "all")
            ]
            counts, worst = tally(outcomes, self.verdicts)
            numbers = "".join(f"{number:15}" for number in counts)
            print(f"{group:20}{len(outcomes):7}" + numbers + worst)
