"""Run the cells that have not completed, in parallel on one machine or on a cluster."""

import math
import multiprocessing
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from joblib import cpu_count
from tqdm import tqdm

import experiments
from experiments.cells.cell import Cell, Outcome, Result
from experiments.cells.outcomes import read_outcome, write_outcome
from experiments.cells.processes import run_in_processes


def run_cells(
    cells: Sequence[Cell],
    runs: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    scheduler: str | None = None,
    stored: Mapping[str, Result] = {},
    until: float = math.inf,
    ended: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """
    Run cells that have not completed, one at a time per process, and record how they end.

    :param runs: folder of the recorded runs; outcomes are in its folder ``cells``.
    :param stored: results of cells that completed elsewhere, by key.
    :param until: `time.monotonic()` after which no cell starts on this machine.
    :param ended: called with each outcome after it is recorded.
    :param jobs: number of parallel runs on this machine.
    :param threads: threads of each process; None: the cores of this machine divided by `jobs`, and
        1 on a cluster, since Dask counts one core for each run.
    :param scheduler: address of a Dask scheduler, whose workers run the cells in place of this
        machine.
    :return: outcomes of the cells, also from earlier calls; cells that did not start have none.
    :raises ValueError: if there are fewer cores than jobs times threads, an outcome on disk cannot
        be read, or the scheduler or a worker does not find the experiments.
    :raises OSError: if the scheduler cannot be reached.
    """
    found = completed_outcomes(cells, runs, stored)
    missing = list({cell.key: cell for cell in cells if cell.key not in found}.values())
    if scheduler is None:
        outcomes = run_in_processes(missing, runs, jobs, _thread_budget(jobs, threads), until)
    else:
        outcomes = _on_a_cluster(missing, runs, threads or 1, scheduler)
    with (
        tqdm(
            total=len(found) + len(missing), initial=len(found), unit="run", mininterval=1.0
        ) as bar,
        closing(outcomes) as outcomes_of_missing,
    ):
        for outcome in outcomes_of_missing:
            write_outcome(runs, outcome)
            if ended is not None:
                ended(outcome)
            found[outcome.cell.key] = outcome
            others = sum(each.result is None for each in found.values())
            bar.set_postfix_str(f"{others} failed or killed" if others else "", refresh=False)
            bar.update()
    return [found[cell.key] for cell in cells if cell.key in found]


def completed_outcomes(
    cells: Sequence[Cell], runs: Path, stored: Mapping[str, Result]
) -> dict[str, Outcome]:
    """
    Return outcomes of the cells that completed, by key; runs recorded here count before stored
    ones.
    """
    found = {}
    for cell in cells:
        outcome = read_outcome(runs, cell)
        if outcome is not None and outcome.result is not None:
            found[cell.key] = outcome
        elif cell.key in stored:
            found[cell.key] = Outcome(cell, "completed", result=stored[cell.key])
    return found


def _thread_budget(jobs: int, threads: int | None) -> int:
    cores = cpu_count()
    if jobs * (threads or 1) > cores:
        each = "" if threads is None else f" of {threads} threads"
        raise ValueError(
            f"jobs must take no more than the {cores} cores of this machine, got {jobs} jobs{each}."
        )
    return threads or cores // jobs


def _on_a_cluster(
    cells: Sequence[Cell], runs: Path, threads: int, scheduler: str
) -> Generator[Outcome, None, None]:
    if not cells:
        return
    from distributed import Client, as_completed  # an extra

    with Client(scheduler) as client:
        _check_experiments_are_found(client)
        run = partial(_run_alone, runs=runs, threads=threads)
        for future in as_completed(client.map(run, cells, pure=False)):
            yield future.result()


def _check_experiments_are_found(client: Any) -> None:
    """
    Check that the scheduler and the workers can unpickle a cell: a scheduler that cannot does not
    answer.

    :raises ValueError: if one of them cannot.
    """
    package = experiments.__name__
    found = {
        "the scheduler": client.run_on_scheduler(find_spec, package),
        **client.run(find_spec, package),
    }
    for place, spec in found.items():
        if spec is None:
            raise ValueError(
                f"scheduler and workers must find the package {package}, but {place} does not: "
                "start it with PYTHONPATH=CLONE."
            )


def _run_alone(cell: Cell, runs: Path, threads: int) -> Outcome:
    # A worker of Dask is a daemon, and could have no processes.
    multiprocessing.current_process().daemon = False
    (outcome,) = run_in_processes([cell], runs, 1, threads)
    return outcome
