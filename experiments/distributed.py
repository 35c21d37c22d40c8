"""
Train PEPR by several workers (processes on this machine, each with a part of a file) and compare
with one process.

    python -m experiments.distributed [--workers 3] [--rows 60000] [--inducing 50] [--iterations 10]
        [--checkpoint FILE]

For 1, 2, ... workers it prints seconds and bytes sent per step (loss and gradient), and the
differences of objectives and parameters from one process. Bytes are counted on the loopback
interface (Linux), with all its other traffic.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from experiments.protocols.arguments import parser_of

_STEPS = 5  # timed steps
_LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with 1, 2, ... workers and print a row for each; see ``--help``."""
    asked = _parser().parse_args(arguments)
    if asked.index is not None:
        print(json.dumps(train(asked)))
        return
    from experiments.benchmarks.large import write

    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        write(folder, asked.rows)
        print(
            f"PEPR, alpha 0.5, {asked.rows:,} rows, M = {asked.inducing}, {asked.iterations} "
            "iterations"
        )
        print(
            f"{'workers':>7}{'seconds a step':>16}{'bytes a step':>14}{'objective differs':>19}{'parameters':>12}"
        )
        single = None
        for count in range(1, asked.workers + 1):
            results = _run_workers(asked, folder, count)
            single = single or results[0]
            print(_row(count, results, single), flush=True)


def _row(count: int, results: Sequence[Any], single: Any) -> str:
    for result in results[1:]:
        if result["parameters"] != results[0]["parameters"]:
            raise RuntimeError("workers must end with the same parameters, but they differ")
    objective, parameters = (
        _difference(results[0][name], single[name]) for name in ("objective", "parameters")
    )
    seconds = max(result["seconds"] for result in results)
    return (
        f"{count:7}{seconds:16.3f}{results[0]['bytes']:14,.0f}{objective:19.0e}{parameters:12.0e}"
    )


def _difference(values: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest difference, relative to the largest expected value."""
    one, other = np.asarray(values), np.asarray(expected)
    return float(np.abs(one - other).max() / np.abs(other).max())


def _run_workers(asked: argparse.Namespace, folder: Path, count: int) -> list[Any]:
    """Return the output of each worker."""
    options = {"--rows": asked.rows, "--inducing": asked.inducing, "--iterations": asked.iterations}
    options |= {"--folder": folder, "--workers": count}
    options |= {} if asked.checkpoint is None else {"--checkpoint": f"{asked.checkpoint}.{count}"}
    words = [str(word) for option in options.items() for word in option]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    with ExitStack() as stack:
        processes = []
        for index in range(count):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            environment = (
                os.environ | {"TF_CONFIG": json.dumps(config)} if count > 1 else dict(os.environ)
            )
            command = [
                sys.executable,
                "-m",
                "experiments.distributed",
                *words,
                "--index",
                str(index),
            ]
            pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            processes.append(
                stack.enter_context(subprocess.Popen(command, env=environment, **pipes))
            )
        outputs = [process.communicate() for process in processes]
    for index, (process, (_, errors)) in enumerate(zip(processes, outputs, strict=True)):
        if process.returncode != 0:
            raise RuntimeError(
                f"worker {index} ended with status {process.returncode}:\n{errors[-3000:]}"
            )
    return [json.loads(printed.splitlines()[-1]) for printed, _ in outputs]


def free_ports(count: int) -> list[int]:
    """Return unused ports of the loopback address."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def train(asked: argparse.Namespace) -> dict[str, Any]:
    """
    Train one worker on its part of the file; return objectives, parameters, and seconds and bytes
    per step.
    """
    import gpflow
    import tensorflow as tf

    from gpflow_pep import PEPR, fit
    from gpflow_pep.data.readers import array_batches
    from gpflow_pep.training.objectives import TrainingStep

    threads = max(1, (os.cpu_count() or 1) // asked.workers)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    scope = (
        tf.distribute.MultiWorkerMirroredStrategy().scope() if asked.workers > 1 else nullcontext()
    )
    X, Y = (np.load(asked.folder / f"{name}.npy", mmap_mode="r") for name in ("X", "Y"))
    first, last = (asked.rows * part // asked.workers for part in (asked.index, asked.index + 1))
    with scope:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], 1.5))
        model = PEPR(
            array_batches(X[first:last], Y[first:last]),
            kernel,
            np.array(X[: asked.inducing]),
            noise_variance=0.1,
        )
        step = TrainingStep(model)
        step()  # traces
        with _bytes_sent() as sent:
            start = time.perf_counter()
            for _ in range(_STEPS):
                step()
            seconds = (time.perf_counter() - start) / _STEPS
        result = fit(
            model,
            max_iterations=asked.iterations,
            checkpoint=asked.checkpoint,
            checkpoint_seconds=0.0,
        )
        parameters = np.concatenate(
            [np.ravel(variable.numpy()) for variable in model.trainable_variables]
        )
    return {
        "objective": result.objective,
        "parameters": parameters.tolist(),
        "seconds": seconds,
        "bytes": sent[0] / _STEPS,
    }


@contextmanager
def _bytes_sent() -> Iterator[list[float]]:
    """Count bytes on the loopback interface meanwhile; NaN if the system does not report them."""
    sent: list[float] = []
    known = _LOOPBACK.exists()
    before = int(_LOOPBACK.read_text()) if known else 0
    yield sent
    sent.append(int(_LOOPBACK.read_text()) - before if known else float("nan"))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument(
        "--folder", type=Path, help="folder of the file, written if missing (a temporary folder)"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        help="resume from here; the number of workers is added to the name",
    )
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
