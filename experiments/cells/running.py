"""Run the cells that have not completed, in parallel on one machine or on a cluster."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config
from tqdm import tqdm

import experiments
from experiments.cells.cell import Cell, Outcome
from experiments.cells.outcomes import Outcomes
from experiments.cells.process import CellProcess, Processes


def run_cells(
    cells: Sequence[Cell], runs: Path, *, jobs: int = 1, threads: int | None = None, scheduler: str | None = None
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
    if scheduler is None:
        threads = _thread_budget(jobs, threads)
    written = Outcomes(runs)
    found = {cell.key: outcome for cell in cells if (outcome := written.read(cell)) and outcome.result is not None}
    missing = [cell for cell in {cell.key: cell for cell in cells}.values() if cell.key not in found]
    with (
        tqdm(total=len(found) + len(missing), initial=len(found), unit="run", mininterval=1.0) as bar,
        closing(_ended(missing, runs, jobs, threads or 1, scheduler)) as ended,
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
        raise ValueError(f"jobs must take no more than the {cores} cores of this machine, got {jobs} jobs{each}.")
    return threads or cores // jobs


def _ended(
    cells: Sequence[Cell], runs: Path, jobs: int, threads: int, scheduler: str | None
) -> Generator[Outcome, None, None]:
    """Yield outcomes as they come."""
    if not cells:
        return
    with ExitStack() as stack:
        if scheduler is None:
            run = stack.enter_context(Processes(threads)).run
            stack.enter_context(parallel_config(backend="threading", n_jobs=jobs))
        else:
            from distributed import Client  # an extra

            client = stack.enter_context(Client(scheduler, set_as_default=False))
            _check_experiments_are_found(client)
            run = partial(_run_alone, threads)
            stack.enter_context(parallel_config(backend="dask", client=client))
        yield from Parallel(return_as="generator_unordered", batch_size=1)(delayed(run)(cell, runs) for cell in cells)


def _check_experiments_are_found(client: Any) -> None:
    """
    Check that the scheduler and the workers can unpickle a cell: a scheduler that cannot does not answer.

    :raises ValueError: if one of them cannot.
    """
    package = experiments.__name__
    found = {"the scheduler": client.run_on_scheduler(find_spec, package), **client.run(find_spec, package)}
    for place, spec in found.items():
        if spec is None:
            raise ValueError(
                f"scheduler and workers must find the package {package}, but {place} does not: "
                "start it with PYTHONPATH=CLONE."
            )


def _run_alone(threads: int, cell: Cell, runs: Path) -> Outcome:
    """Run a cell in a process of its own, which ends with the cell: Dask's workers must keep none."""
    with CellProcess(threads) as process:
        return process.run(cell, runs)
