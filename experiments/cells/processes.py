"""Run cells in processes of their own: pools of loky, of which joblib has a copy."""

import json
import math
import os
import re
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from pathlib import Path

from joblib.externals.loky import ProcessPoolExecutor

from experiments.cells.cell import Cell, Outcome, Result

# Its memory had grown by 300 MB.
warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")

_GRACE = 5.0  # seconds for Sacred to record that runs were interrupted
# Seconds after which a process without a cell ends, also if the command has been killed.
_IDLE = 60.0
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def perform(cell: Cell, runs: Path, loglevel: str = "ERROR") -> Result:
    """Run the experiment of a cell, recorded in `runs`."""
    from experiments.recording.experiment import run_directory

    experiment = import_module(f"experiments.{cell.experiment}").ex
    silent = {"progress": False} if experiment.accepts("progress") else {}
    options = {"--file_storage": str(runs), "--loglevel": loglevel}
    run = experiment.run(config_updates=silent | cell.updates, options=options)
    return {**(run.result or {}), "directory": str(run_directory(run))}


def run_in_processes(
    cells: Iterable[Cell], runs: Path, jobs: int, threads: int, until: float = math.inf
) -> Generator[Outcome, None, None]:
    """
    Run cells, recorded in `runs`, and yield outcomes as they come. No cell starts when
    `time.monotonic()` is past `until`.

    If a process dies, so does its pool. Another pool takes the other cells; if several were in
    progress, each of these runs again alone, to find the one that ends its process.
    """
    waiting = deque(cells)
    while broken := (yield from _in_a_pool(waiting, runs, jobs, threads, until)):
        reason, in_progress = broken
        if len(in_progress) == 1:
            yield Outcome(in_progress[0], "killed", reason)
        else:
            for cell in in_progress:
                yield from run_in_processes([cell], runs, 1, threads)


def _in_a_pool(
    waiting: deque[Cell], runs: Path, jobs: int, threads: int, until: float
) -> Generator[Outcome, None, tuple[str, list[Cell]] | None]:
    """
    Yield outcomes until cells have ended or a process dies; then return the reason and the cells in
    progress.
    """
    running: dict[Future[Outcome], Cell] = {}
    env = dict.fromkeys(THREADS, str(threads))
    with ProcessPoolExecutor(jobs, timeout=_IDLE, env=env, initializer=_begin) as pool:
        try:
            while True:
                while waiting and len(running) < jobs and time.monotonic() < until:
                    future = pool.submit(_outcome, perform, waiting[0], runs.absolute())
                    running[future] = waiting.popleft()
                if not running:
                    return None
                ended = wait(running, return_when=FIRST_COMPLETED).done
                for future in sorted(ended, key=lambda each: each.exception() is not None):
                    yield future.result()
                    del running[future]
        except BrokenProcessPool as error:
            codes = re.search(r"\{.*\}", str(error))
            advice = ", perhaps for lack of memory" if "SIGKILL" in str(error) else ""
            return f"its process ended with {codes[0] if codes else error}{advice}", list(
                running.values()
            )
        except BaseException:  # Ctrl-C reaches all processes
            pool.shutdown(kill_workers=bool(wait(running, _GRACE).not_done))
            raise


def _begin() -> None:
    """Prepare a process: only a run can be interrupted, and Sacred alone keeps what it prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)


def _outcome(perform: Callable[[Cell, Path], Result], cell: Cell, runs: Path) -> Outcome:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # As read from its file.
        return Outcome(cell, "completed", None, json.loads(json.dumps(perform(cell, runs))))
    except Exception as error:  # Sacred has recorded it with its traceback
        return Outcome(cell, "failed", f"{type(error).__name__}: {error}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
