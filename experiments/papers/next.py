"""
Run the protocols' missing runs at their published size, one after the other, and store their
results.

    python -m experiments.papers next [--hours 2] [--jobs 1]

Results are added to ``experiments/results/U2/runs.csv`` as they come. Runs that are stored there,
by any machine, count as done. When all runs of a part are stored, its tables and figures are
written. The command has the lowest priority and may be stopped at any time: it loses the runs in
progress. After the given hours no run starts.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cells.cell import Outcome
from experiments.papers.grid import Record
from experiments.papers.running import Values, completed, protocol_of, selected, show_and_write
from experiments.papers.stored import RESULTS, store, stored_results
from experiments.protocols.arguments import add_running, parser_of

PARTS: Sequence[tuple[str, Values]] = (
    *((name, {}) for name in ("T7", "T2", "T5", "U6", "S2", "Q1", "U1", "U4", "T3", "T4")),
    ("M1", {"M": ["5 %"], "method": ["PEP"], "alpha": [0.0, 0.5, 1.0]}),
    ("U3", {}),
    ("U2", {}),
    ("M1", {"M": ["5 %"], "method": ["PEP", "APEP", "ARPEP", "RPAPEP"]}),
)
"""Protocols in the order in which they run, with values of some axes."""


def main(arguments: Sequence[str]) -> None:
    """Run what is missing; see ``--help``."""
    parser = parser_of(__doc__, "papers next")
    parser.option("--hours", math.inf, "hours (no limit)", type=float)
    add_running(parser)
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.nice(19)
    until = time.monotonic() + 3600.0 * asked.hours

    missing = []
    for name, only in PARTS:
        if time.monotonic() < until:
            try:
                options = {"jobs": asked.jobs or 1, "threads": asked.threads}
                missing.append(run_part(name, only, asked.runs, until, **options))
            except (ValueError, OSError) as error:  # a damaged record; no network
                missing.append(f"{name}: {error}")
    if any(missing):
        sys.exit("\n".join(filter(None, missing)))


def run_part(
    name: str,
    only: Values,
    runs: Path,
    until: float,
    **options: Any,
) -> str:
    """
    Run what is missing of a part, and store it.

    :param until: `time.monotonic()` after which no run starts.
    :param options: further options of :func:`experiments.cells.running.run_cells`.
    :return: why runs have no result; empty if all that started have one.
    """
    every = protocol_of(name).jobs(True)
    plan = selected(every, only, {})
    labels = {job.cell.key: job.labels for job in plan}
    folder = RESULTS / name
    known = stored_results(folder)

    def keep(outcome: Outcome) -> None:
        if outcome.result is not None:
            key = outcome.cell.key
            store(folder, [Record(labels[key], outcome.result, key)])

    print(f"{name}: {sum(key not in known for key in labels)} of {len(plan)} runs are missing.")
    found, missing = completed(plan, runs, stored=known, until=until, ended=keep, **options)
    unknown = [record for record in found if record.key not in known]
    if unknown:
        store(folder, unknown)
        if len(found) == len(plan):
            records, _ = completed(every, runs, stored=stored_results(folder), until=-math.inf)
            show_and_write(name, "python -m experiments.papers next", records, folder)
    return missing
