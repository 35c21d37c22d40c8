"""Run the jobs of a protocol that have not completed, and write its tables and figures."""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.cells.cell import not_completed
from experiments.cells.running import completed_outcomes, run_cells
from experiments.papers import PROTOCOLS
from experiments.papers.grid import Jobs, Record, Records
from experiments.papers.pictures import Picture
from experiments.papers.stored import RESULTS, store, stored_results
from experiments.papers.tables import Table

Values = Mapping[str, Sequence[Any]]
"""Values by the name of an axis or of a setting."""


def run(name: str, asked: argparse.Namespace) -> str:
    """
    Run a protocol, print its tables, and write them with figures and results.

    :return: why runs have no result; empty if all have one.
    """
    selection = _by_name(asked.only)
    given = _by_name(vars(asked)["with"])
    settings = _options("--only", selection) + _options("--with", given)
    command = shlex.join(
        ["python", "-m", "experiments.papers", name, *["--full"] * asked.full, *settings]
    )
    try:
        plan = protocol_of(name).jobs(asked.full)
        if selection.get("axes") == ["list"]:
            print(f"The axes of {name}: {axes(plan)}")
            return ""
        jobs = selected(plan, selection, given)
        stored = stored_results(RESULTS / name)
        if asked.stored:
            done = completed_outcomes([job.cell for job in jobs], asked.runs, stored)
            jobs = [job for job in jobs if job.cell.key in done]
            if not jobs:
                return (
                    f"{asked.runs} has no run of {name}. Start some: {command}\nThe axes of "
                    f"{name}: {axes(plan)}"
                )
        records, missing = completed(
            jobs, asked.runs, stored=stored, jobs=asked.jobs or 1, threads=asked.threads
        )
        if records:
            size = "-full" if asked.full and not settings else ""
            folder = (asked.to or asked.runs / "papers") / f"{name}{size}"
            show_and_write(name, command, records, folder)
            (folder / "runs.csv").unlink(missing_ok=True)
            store(folder, records)
    # A bad argument, a damaged record; no network, or not the published file.
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    return missing


def protocol_of(name: str) -> Any:
    """Return the module of a protocol."""
    return import_module(f"experiments.papers.{name.lower()}")


def show_and_write(name: str, command: str, records: Records, folder: Path) -> None:
    """Write the tables and figures of a protocol's records, with the command that made them."""
    protocol = protocol_of(name)
    text = f"{protocol.__doc__.strip()}\n\n{command}"
    write(f"{name}: {PROTOCOLS[name]}", text, list(protocol.show(records)), folder)


def _by_name(given: Sequence[tuple[str, list[Any]]]) -> dict[str, list[Any]]:
    """Return all values of each name; ``a=1 a=2`` are those of ``a=1,2``."""
    found: dict[str, list[Any]] = {}
    for name, values in given:
        found.setdefault(name, []).extend(values)
    return found


def _options(option: str, given: dict[str, list[Any]]) -> list[str]:
    """Return an option of the command."""
    if not given:
        return []
    return [option, *(f"{name}={','.join(map(str, values))}" for name, values in given.items())]


def completed(plan: Jobs, runs: Path, **options: Any) -> tuple[list[Record], str]:
    """
    Run the jobs of a plan that have not completed; `options` are those of :func:`run_cells`.

    :return: the records of its completed jobs; the runs without a result and their reasons, empty
        if there are none.
    """
    outcomes = run_cells([job.cell for job in plan], runs, **options)
    results = {outcome.cell.key: outcome.result for outcome in outcomes if outcome.result}
    found = [
        Record(job.labels, results[job.cell.key], job.cell.key)
        for job in plan
        if job.cell.key in results
    ]
    return found, not_completed(outcomes)


def selected(jobs: Jobs, only: Values, settings: Values) -> Jobs:
    """
    Return the jobs with the given values on the axes, with other settings. Jobs without an axis
    stay.

    :raises ValueError: if no job has a value, a setting has several, or an experiment does not have
        it.
    """
    several = [name for name, values in settings.items() if len(values) > 1]
    if several:
        raise ValueError(
            f"--with accepts one value for each entry, got several for {', '.join(several)}."
        )
    for axis, values in only.items():
        if not any(axis in job.labels for job in jobs):
            raise ValueError(f"--only: there is no axis {axis!r}; the axes are {axes(jobs)}")
        accepted = list(dict.fromkeys(job.labels[axis] for job in jobs if axis in job.labels))
        for value in values:
            if value not in accepted:
                raise ValueError(
                    f"--only: {axis} is {value!r}; accepted are {', '.join(map(str, accepted))}."
                )
        jobs = [job for job in jobs if axis not in job.labels or job.labels[axis] in values]
    for experiment in sorted({job.cell.experiment for job in jobs if settings}):
        ex = import_module(f"experiments.{experiment}").ex  # takes seconds
        unknown = [name for name in settings if not ex.accepts(name)]
        if unknown:
            raise ValueError(
                f"--with: the experiment {experiment} has no setting {unknown[0]!r}; its settings "
                f"are {', '.join(ex.settings())}."
            )
    changed = [job.changed({name: values[0] for name, values in settings.items()}) for job in jobs]
    return list({(job.cell.key, *job.labels.values()): job for job in changed}.values())


def axes(jobs: Jobs) -> str:
    """Return the axes of jobs and their values, as `--only` takes them."""
    values: dict[str, dict[Any, None]] = {}
    for job in jobs:
        for name, value in job.labels.items():
            values.setdefault(name, {})[value] = None
    return " ".join(f"{name}={','.join(map(str, found))}" for name, found in values.items())


def write(title: str, text: str, shown: Sequence[Table | Picture | None], folder: Path) -> None:
    """
    Print the tables; write tables and figures in place of those in the folder. None keeps an
    earlier figure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {f"{number:02d}" for number, part in enumerate(shown) if part is None}
    for path in folder.glob("[0-9][0-9]-*"):
        if path.name[:2] not in kept:
            path.unlink()
    (folder / "title.txt").write_text(f"{title}\n\n{text.strip()}\n", encoding="utf-8")
    print(f"\n{title}")
    for number, part in enumerate(shown):
        if part is None:
            continue
        stem = (
            folder / f"{number:02d}-{re.sub('[^a-z0-9]+', '-', part.title.lower()).strip('-')[:50]}"
        )
        part.save(stem)
        print(f"\n{part}" if isinstance(part, Table) else f"\nFigure: {stem.with_suffix('.png')}")
