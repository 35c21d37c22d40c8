"""Run the cells that have not completed, in parallel on one machine or on a cluster."""

import multiprocessing
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from joblib import cpu_count
from tqdm import tqdm

import experiments
from experiments.cells.cell import Cell, Outcome
from experiments.cells.outcomes import Outcomes
from experiments.cells.processes import run_in_processes


def run_cells(
    cells: Sequence[Cell],
    runs: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    scheduler: str | None = None,
) -> list[Outcome]:
    """
    Run cells that have not completed, one at a time per process, and record how they end.

    :param runs: folder of the recorded runs; outcomes are in its folder ``cells``.
    :param jobs: number of parallel runs on this machine.
    :param threads: threads of each process; None: the cores of this machine divided by `jobs`, and 1 on a cluster,
        since Dask counts one core for each run.
    :param scheduler: address of a Dask scheduler, whose workers run the cells in place of this machine.
    :return: the outcome of every cell, also from earlier calls.
    :raises ValueError: if there are fewer cores than jobs times threads, an outcome on disk cannot be read, or the
        scheduler or a worker does not find the experiments.
    :raises OSError: if the scheduler cannot be reached.
    """
    written = Outcomes(runs)
    found = {
        cell.key: outcome
        for cell in cells
        if (outcome := written.read(cell)) and outcome.result is not None
    }
    missing = [
        cell for cell in {cell.key: cell for cell in cells}.values() if cell.key not in found
    ]
    if scheduler is None:
        outcomes = run_in_processes(missing, runs, jobs, _thread_budget(jobs, threads))
    else:
        outcomes = _on_a_cluster(missing, runs, threads or 1, scheduler)
    with (
        tqdm(
            total=len(found) + len(missing), initial=len(found), unit="run", mininterval=1.0
        ) as bar,
        closing(outcomes) as ended,
    ):
        for outcome in ended:
            written.write(outcome)
            found[outcome.cell.key] = outcome
            others = sum(each.result is None for each in found.values())
            bar.set_postfix_str(f"{others} failed or killed" if others else "", refresh=False)
            bar.update()
    return [found[cell.key] for cell in cells]


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
    Check that the scheduler and the workers can unpickle a cell: a scheduler that cannot does not answer.

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
