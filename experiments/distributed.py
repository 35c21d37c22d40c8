"""
Train PEPR by several workers (processes on this machine, each with a part of a file) and compare
with one process.

    python -m experiments.distributed [--workers 3] [--rows 60000] [--inducing 50] [--iterations 10]

For 1, 2, ... workers it prints seconds and bytes sent per step (loss and gradient), and the
differences of objectives and parameters from one process. Bytes are counted on the loopback
interface (Linux), with all its other traffic.
"""

import argparse
import json
import os
import socket
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from experiments.protocols.arguments import parser_of

_STEPS = 5  # timed steps
_LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


def main() -> None:
    """Train with 1, 2, ... workers and print a row for each; see ``--help``."""
    parser = parser_of(__doc__)
    parser.option("--workers", 3)
    parser.option("--rows", 60_000)
    parser.option("--inducing", 50)
    parser.option("--iterations", 10)
    asked = parser.parse_args()
    from experiments.benchmarks.large import write_file
    from experiments.benchmarks.printing import Table

    with tempfile.TemporaryDirectory() as temporary:
        asked.folder = Path(temporary)
        write_file(asked.folder, asked.rows)
        table = Table(
            f"PEPR, alpha 0.5, {asked.rows:,} rows, M = {asked.inducing}, {asked.iterations} "
            "iterations",
            {
                "workers": "d",
                "seconds a step": ".3f",
                "bytes a step": ",.0f",
                "objective differs": ".0e",
                "parameters": ".0e",
            },
        )
        single: list[Any] = []
        for workers in range(1, asked.workers + 1):
            addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
            with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
                results = list(pool.map(partial(train, asked, addresses), range(workers)))
            single = single or results[0]
            _, sent, objective, parameters = results[0]
            if any(result[-1] != parameters for result in results):
                raise RuntimeError("workers must end with the same parameters, but they differ")
            differences = map(_difference, (objective, parameters), single[-2:])
            table.add(workers, max(result[0] for result in results), sent, *differences)


def _difference(values: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest difference, relative to the largest expected value."""
    return np.max(np.abs(np.subtract(values, expected))) / np.max(np.abs(expected))


def free_ports(number: int) -> list[int]:
    """Return unused ports of the loopback address."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def train(asked: argparse.Namespace, addresses: list[str], index: int) -> list[Any]:
    """
    Train one worker, in this process, on its part of the file; return seconds and bytes per step,
    objectives and parameters.
    """
    import tensorflow as tf

    from experiments.benchmarks.collapsed_step import seconds_of
    from experiments.benchmarks.large import regression
    from gpflow_pep import fit
    from gpflow_pep.training.objectives import TrainingStep

    workers = len(addresses)
    threads = max(1, (os.cpu_count() or 1) // workers)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    scope = nullcontext()
    if workers > 1:
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        os.environ["TF_CONFIG"] = json.dumps(config)
        scope = tf.distribute.MultiWorkerMirroredStrategy().scope()
    first, last = (asked.rows * part // workers for part in (index, index + 1))
    with scope:
        model = regression(asked, slice(first, last))
        step = TrainingStep(model)
        step()  # traces
        before = _bytes_sent()
        seconds = seconds_of(lambda: [step() for _ in range(_STEPS)])
        sent = _bytes_sent() - before
        result = fit(model, max_iterations=asked.iterations)
        values = [np.ravel(variable.numpy()) for variable in model.trainable_variables]
    parameters = np.concatenate(values).tolist()
    return [seconds / _STEPS, sent / _STEPS, result.objective, parameters]


def _bytes_sent() -> float:
    """Return bytes on the loopback interface so far; NaN if the system does not report them."""
    return float(_LOOPBACK.read_text()) if _LOOPBACK.exists() else float("nan")


if __name__ == "__main__":
    main()
