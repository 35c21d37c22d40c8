"""Many runs in a row, in processes of their own under one progress bar."""

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from tqdm import tqdm

Result = dict[str, Any]
"""What a run of an experiment returned."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Repeated:
    """
    Calls functions one after the other, outside of this process; a context manager.

    TensorFlow keeps some 60 MB of every model it has compiled: a process that is left after some calls gives it back.
    """

    def __init__(self, total: int, *, calls_per_process: int):
        """
        :param total: how many calls there will be, for the progress bar.
        :param calls_per_process: how many of them a process does before the next one is started.
        """
        self._bar = tqdm(total=total, unit="run", mininterval=5.0)
        self._calls_per_process, self._calls = calls_per_process, 0
        self._process: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Repeated":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_process()
        self._bar.close()

    def __call__(self, label: str, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """
        What the function returns; its errors are raised here.

        :param label: what the bar, and an error, call this.
        :raises SystemExit: where the process has died.
        """
        self._bar.set_postfix_str(label, refresh=False)
        if self._process is None or self._calls == self._calls_per_process:
            self._leave_process()  # Python 3.10 has no max_tasks_per_child
            self._process = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            self._calls = 0
        self._calls += 1
        try:
            result = self._process.submit(function, *arguments, **named).result()
        except BrokenProcessPool:
            sys.exit(f"{label}: the process has died, perhaps for want of memory. The runs so far are kept.")
        self._bar.update()
        return result

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line)

    def _leave_process(self) -> None:
        if self._process is not None:
            self._process.shutdown()


def classify(updates: dict[str, Any], runs: Path, *named_configs: str) -> Result:
    """The result of a run of `experiments.classification`, and under "directory" where it is recorded."""
    from experiments.classification import ex

    return _recorded(ex, updates, runs, named_configs)


def regress(updates: dict[str, Any], runs: Path, *named_configs: str) -> Result:
    """The result of a run of `experiments.regression`, and under "directory" where it is recorded."""
    from experiments.regression import ex

    return _recorded(ex, updates, runs, named_configs)


def _recorded(experiment: Any, updates: dict[str, Any], runs: Path, named_configs: Sequence[str]) -> Result:
    from experiments.recording.experiment import run_directory

    options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
    run = experiment.run(config_updates={"progress": False, **updates}, named_configs=named_configs, options=options)
    return {**(run.result or {}), "directory": str(run_directory(run))}


def endings(results: Sequence[Result], maxiter: int) -> tuple[str, str]:
    """Of the runs, how many had not converged at the last iteration, and how many ended earlier without converging."""
    at_limit = [not result["converged"] and result["iterations"] >= maxiter for result in results]
    others = sum(not result["converged"] for result in results) - sum(at_limit)
    return f"{sum(at_limit)}/{len(results)}", f"{others}/{len(results)}"
