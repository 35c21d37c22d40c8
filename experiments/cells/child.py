"""
Run cells: a process that reads them from its standard input, one per line, and answers on its standard output.

    python -m experiments.cells.child THREADS

It ends with its input, also during a run: then its parent has ended.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from experiments.cells.cell import Cell, Result

_GRACE = 5.0  # seconds for Sacred to record that a run was interrupted


def perform(cell: Cell, runs: Path) -> Result:
    """Run the experiment of a cell, recorded in `runs`."""
    from experiments.recording.experiment import run_directory

    experiment = import_module(f"experiments.{cell.experiment}").ex
    run = experiment.run(
        config_updates={"progress": False, **cell.updates} if experiment.accepts("progress") else cell.updates,
        options={"--file_storage": str(runs), "--loglevel": "ERROR"},
    )
    return {**(run.result or {}), "directory": str(run_directory(run))}


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # other output must not be read as an answer
    _limit_threads(int(sys.argv[1]))
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    while True:
        asked = json.loads(lines.get())
        answer = _answer(Cell(**asked["cell"]), Path(asked["runs"]))
        lines.task_done()
        print(json.dumps(answer), file=answers, flush=True)


def _answer(cell: Cell, runs: Path) -> dict[str, Any]:
    try:
        return {"status": "completed", "result": perform(cell, runs)}
    except Exception as error:  # Sacred has recorded it with its traceback
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def _read(source: TextIO, lines: "queue.Queue[str]") -> None:
    """Pass lines on, and end the process with the last one."""
    for line in source:
        lines.put(line)
    if lines.unfinished_tasks:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(_GRACE)
    os._exit(1)


def _limit_threads(threads: int) -> None:
    """Limit TensorFlow's threads; the environment limits other libraries."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


if __name__ == "__main__":
    main()
