"""Time PEPR and PEPClassifier on a file larger than memory, read in every pass.

The file is written once, in pieces. Each size runs in a process of its own. Peak memory includes
mapped pages of the file, which the system may drop at any time (Linux: the kernel's high-water mark
is reset before the model is made).

    python -m experiments.benchmarks.large [--rows 1000000 3000000 10000000] [--inducing 256] [--fit 20]
        [--classify 2000000] [--folder FOLDER]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.benchmarks.collapsed_step import INPUTS, KERNELS, compiled_step, seconds_of
from experiments.benchmarks.machine import in_process
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.recording.memory import MEGABYTE, peak_of
from gpflow_pep import PEPR, PEPClassifier, fit
from gpflow_pep.data.readers import array_batches

_KERNEL = KERNELS["SquaredExponential"]
_PIECE = 250_000  # rows written at a time


def main() -> None:
    """Write the file, and print a row for each size."""
    parser = parser_of(__doc__)
    parser.option("--rows", [1_000_000, 3_000_000, 10_000_000])
    parser.option("--inducing", 256)
    parser.option("--fit", 20, "iterations of fit on the last size; 0: none", type=int)
    parser.option("--classify", 2_000_000, "rows of the classifier; 0: none", type=int)
    parser.option("--folder", Path, "folder of the file, written if missing (a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = arguments.folder or Path(temporary)
        write_file(arguments.folder, max(*arguments.rows, arguments.classify))
        write(report(arguments), arguments.json)


def report(arguments: argparse.Namespace) -> list[Table]:
    """Measure each size and task in a process of its own."""
    tables = []
    for measure, sizes, title, columns in (
        (
            measure_step,
            arguments.rows,
            f"PEPR, alpha 0.5, M = {arguments.inducing}, D = {INPUTS}, float64, from a file: "
            "seconds",
            {"file MB": ".0f", "construct": ".1f", "loss+gradient": ".1f", "reading, of it": ".1%"},
        ),
        (
            measure_fit,
            arguments.rows[-1:] if arguments.fit else [],
            "fit; objectives in nats a row",
            {
                "iterations": "d",
                "seconds": ".0f",
                "first objective": ".4f",
                "last objective": ".4f",
            },
        ),
        (
            measure_classifier,
            [arguments.classify] if arguments.classify else [],
            "PEPClassifier, probit, alpha 0.5, fixed hyperparameters",
            {"converged": "<", "sweeps": "d", "seconds": ".0f"},
        ),
    ):
        if sizes:
            table = Table(title, {"N": ",d"} | columns | {"peak MB beyond": ".0f"})
            for num_data in sizes:
                table.add(num_data, *in_process(measured, measure, arguments, num_data))
            tables.append(table)
    return tables


def write_file(folder: Path, num_data: int) -> None:
    """Write X.npy [N, 8], Y.npy and labels.npy [N, 1], unless they exist with at least N rows."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "X.npy").exists() and len(np.load(folder / "X.npy", mmap_mode="r")) >= num_data:
        return
    open_memmap: Any = np.lib.format.open_memmap  # NumPy gives it no types
    X, Y, labels = (
        open_memmap(folder / f"{name}.npy", "w+", np.float64, (num_data, columns))
        for name, columns in {"X": INPUTS, "Y": 1, "labels": 1}.items()
    )
    rng = np.random.default_rng(0)
    for start in range(0, num_data, _PIECE):
        rows = slice(start, start + _PIECE)
        x = rng.uniform(0.0, 4.0, X[rows].shape)
        # As in records of flights: a smooth part of some inputs, a weak part of other inputs, and
        # much noise.
        f = (
            np.sin(x[:, :1] + x[:, 1:2])
            + 0.5 * np.cos(2.0 * x[:, 2:3])
            + 0.1 * x[:, 3:].sum(axis=1, keepdims=True)
        )
        X[rows] = x
        Y[rows] = f + 0.3 * rng.normal(size=f.shape)
        labels[rows] = f - f.mean() + rng.normal(size=f.shape) > 0.0
    for array in (X, Y, labels):
        array.flush()


def measured(
    measure: Callable[..., list[Any]], arguments: argparse.Namespace, num_data: int
) -> list[Any]:
    """Return what a function measures, and its peak memory in MB."""
    tf.linalg.cholesky(tf.eye(2, dtype=tf.float64))  # TensorFlow's own memory
    found, peak = peak_of(lambda: measure(arguments, num_data))
    return [*found, peak]


def measure_step(arguments: argparse.Namespace, num_data: int) -> list[Any]:
    """Return MB, seconds to construct PEPR and of a compiled step, and the share of reading."""
    start = time.perf_counter()
    model = regression(arguments, slice(num_data))
    construction = time.perf_counter() - start
    reading = seconds_of(model.check_data)
    step = compiled_step(model)
    step()  # traces
    seconds = seconds_of(step)
    megabytes = 8 * (INPUTS + 1) * num_data / MEGABYTE
    return [megabytes, construction, seconds, 2 * reading / seconds]


def measure_fit(arguments: argparse.Namespace, num_data: int) -> list[Any]:
    """Return iterations and seconds of `fit`, and objectives a row at its first and last one."""
    result = fit(regression(arguments, slice(num_data)), max_iterations=arguments.fit)
    first, last = (result.objective[place] / num_data for place in (0, -1))
    return [result.iterations, result.seconds, first, last]


def measure_classifier(arguments: argparse.Namespace, num_data: int) -> list[Any]:
    """Return whether sites converge, sweeps and seconds from the constructor on."""
    start = time.perf_counter()
    dataset, Z = _rows(arguments, slice(num_data), "labels")
    model = PEPClassifier(dataset, _KERNEL(INPUTS), inducing_variable=Z, alpha=0.5)
    status = model.update_sites()
    seconds = time.perf_counter() - start
    return ["yes" if status.converged else "no", status.sweeps, seconds]


def regression(arguments: argparse.Namespace, rows: slice) -> PEPR:
    """Return PEPR of these rows of the file."""
    dataset, Z = _rows(arguments, rows, "Y")
    return PEPR(dataset, _KERNEL(INPUTS), Z, alpha=0.5, noise_variance=0.1)


def _rows(arguments: argparse.Namespace, rows: slice, outputs: str) -> tuple[Any, Any]:
    """Return the dataset of some rows of the file, and its first M rows as inducing points."""
    X, Y = (np.load(arguments.folder / f"{name}.npy", mmap_mode="r") for name in ("X", outputs))
    return array_batches(X[rows], Y[rows]), np.array(X[: arguments.inducing])


if __name__ == "__main__":
    main()
