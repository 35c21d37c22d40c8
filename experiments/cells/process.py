"""Processes that run cells, and their control."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO

import experiments
from experiments.cells.cell import Cell, Outcome

_CELLS = 10  # cells per process: TensorFlow keeps some 60 MB of every model it has compiled
_GRACE = 10.0  # seconds until a process that should end is killed
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_CHILD = ("-m", "experiments.cells.child")
_ROOT = str(Path(experiments.__file__).parents[1])


class CellProcess:
    """
    A process that runs cells, one after the other; a context manager.

    It starts with the first cell, and again after some cells or if it has died. If it dies, only the current cell is
    lost.
    """

    def __init__(self, threads: int):
        """
        :param threads: number of threads of TensorFlow and of the linear algebra libraries, each.
        """
        self._threads = threads
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._left, self._is_closing = 0, False

    def __enter__(self) -> "CellProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, cell: Cell, runs: Path) -> Outcome:
        """Run a cell, recorded in `runs`."""
        if self._left == 0:
            self.close()
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        self._left -= 1
        with suppress(BrokenPipeError):  # it has died: there is no answer
            process.stdin.write(json.dumps({"cell": asdict(cell), "runs": str(runs.absolute())}) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if answer:
            return Outcome(cell, **json.loads(answer))
        if self._is_closing:
            raise RuntimeError(f"The sweep is over: {cell} was interrupted.")
        self._left = 0
        return self._death(cell, process.wait())

    def hang_up(self) -> None:
        """Tell the process to end; this interrupts its run."""
        self._is_closing = True
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self) -> None:
        """End the process."""
        self.hang_up()
        process, self._process = self._process, None
        if process is None or self._errors is None:
            return
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
        self._errors.close()

    def _start(self) -> None:
        """Start the process in a session of its own: a keyboard interrupt reaches only the parent, which ends it."""
        count = str(self._threads)
        path = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, *_CHILD, count],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env=os.environ | dict.fromkeys(_POOLS, count) | {"PYTHONPATH": path},
            start_new_session=True,
        )
        self._left, self._is_closing = _CELLS, False

    def _death(self, cell: Cell, code: int) -> Outcome:
        assert self._errors is not None
        if code < 0:
            name = signal.Signals(-code).name
            advice = ", perhaps for lack of memory" if name == "SIGKILL" else ""
            return Outcome(cell, "killed", f"the process was ended by {name}{advice}")
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return Outcome(cell, "failed", f"the process ended with exit code {code}: {last}")


class Processes:
    """Processes for cells that run in parallel; a context manager, which ends all of them."""

    def __init__(self, threads: int):
        """
        :param threads: number of threads of each process.
        """
        self._threads = threads
        self._all: list[CellProcess] = []
        self._idle: list[CellProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
        for process in self._all:  # all at once
            process.hang_up()
        for process in self._all:
            process.close()

    def run(self, cell: Cell, runs: Path) -> Outcome:
        """Run a cell in a process that does nothing else."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("No cell can start: the sweep is over.")
            if not self._idle:
                self._all.append(CellProcess(self._threads))
                self._idle.append(self._all[-1])
            process = self._idle.pop()
        outcome = process.run(cell, runs)
        with self._lock:
            self._idle.append(process)
        return outcome
