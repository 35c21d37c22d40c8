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
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from experiments.benchmarks.collapsed_step import compiled_step
from experiments.benchmarks.machine import in_process
from experiments.benchmarks.printing import Table, parser_of
from experiments.benchmarks.printing import write as write_tables
from experiments.recording.memory import MEGABYTE, peak_beyond_resident
from gpflow_pep import PEPR, PEPClassifier, fit
from gpflow_pep.data.readers import array_batches

INPUTS = 8
_PIECE = 250_000  # rows written at a time


def main() -> None:
    """Write the file, and print a row for each size."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--inducing", type=int, default=256)
    parser.add_argument(
        "--fit", type=int, default=20, help="iterations of fit on the last size; 0: none"
    )
    parser.add_argument(
        "--classify", type=int, default=2_000_000, help="rows of the classifier; 0: none"
    )
    parser.add_argument(
        "--folder", type=Path, help="folder of the file, written if missing (a temporary folder)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = arguments.folder or Path(temporary)
        write(arguments.folder, max(*arguments.rows, arguments.classify))
        write_tables(report(arguments), arguments.json)


def report(arguments: argparse.Namespace) -> list[Table]:
    """Measure each size and task in a process of its own."""
    columns = {
        "N": ",d",
        "file MB": ".0f",
        "construct": ".1f",
        "loss+gradient": ".1f",
        "reading, of it": ".1%",
    }
    steps = Table(
        f"PEPR, alpha 0.5, M = {arguments.inducing}, D = {INPUTS}, float64, from a file: seconds",
        columns | {"peak MB beyond": ".0f"},
    )
    tables = [steps]
    for num_data in arguments.rows:
        row = in_process(measure_step, arguments, num_data)
        share = 2 * row["reading"] / row["step"]
        file, peak = row["file"] / MEGABYTE, row["peak"] / MEGABYTE
        steps.add(num_data, file, row["construction"], row["step"], share, peak)
    if arguments.fit:
        row = in_process(measure_fit, arguments, arguments.rows[-1])
        columns = {
            "N": ",d",
            "iterations": "d",
            "seconds": ".0f",
            "first objective": ".4f",
            "last objective": ".4f",
        }
        tables.append(Table("fit; objectives in nats a row", columns | {"peak MB beyond": ".0f"}))
        values = (row[key] for key in ("iterations", "seconds", "first", "last"))
        tables[-1].add(arguments.rows[-1], *values, row["peak"] / MEGABYTE)
    if arguments.classify:
        row = in_process(measure_classifier, arguments)
        columns = {
            "N": ",d",
            "converged": "<",
            "sweeps": "d",
            "seconds": ".0f",
            "peak MB beyond": ".0f",
        }
        tables.append(Table("PEPClassifier, probit, alpha 0.5, fixed hyperparameters", columns))
        converged = "yes" if row["converged"] else "no"
        tables[-1].add(
            arguments.classify, converged, row["sweeps"], row["seconds"], row["peak"] / MEGABYTE
        )
    return tables


def write(folder: Path, num_data: int) -> None:
    """Write X.npy [N, 8], Y.npy and labels.npy [N, 1], unless they exist with at least N rows."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "X.npy").exists() and len(np.load(folder / "X.npy", mmap_mode="r")) >= num_data:
        return
    open_memmap: Any = np.lib.format.open_memmap  # NumPy gives it no types
    arrays = {
        name: open_memmap(folder / f"{name}.npy", "w+", np.float64, (num_data, columns))
        for name, columns in (("X", INPUTS), ("Y", 1), ("labels", 1))
    }
    rng = np.random.default_rng(0)
    for start in range(0, num_data, _PIECE):
        rows = slice(start, min(start + _PIECE, num_data))
        X = rng.uniform(0.0, 4.0, (rows.stop - rows.start, INPUTS))
        # As in records of flights: a smooth part of some inputs, a weak part of other inputs, and
        # much noise.
        f = (
            np.sin(X[:, :1] + X[:, 1:2])
            + 0.5 * np.cos(2.0 * X[:, 2:3])
            + 0.1 * X[:, 3:].sum(axis=1, keepdims=True)
        )
        arrays["X"][rows] = X
        arrays["Y"][rows] = f + 0.3 * rng.normal(size=f.shape)
        arrays["labels"][rows] = f - f.mean() + rng.normal(size=f.shape) > 0.0
    for array in arrays.values():
        array.flush()


def measure_step(arguments: argparse.Namespace, num_data: int) -> dict[str, float]:
    """
    Return seconds to construct PEPR, of a pass that only reads, and of a compiled step; peak memory
    of all.
    """
    tf.linalg.cholesky(tf.eye(2, dtype=tf.float64))  # TensorFlow's own memory

    def everything() -> dict[str, float]:
        start = time.perf_counter()
        model = _regression(arguments, num_data)
        constructed = time.perf_counter()
        model.check_data()
        read = time.perf_counter()
        step = compiled_step(model)
        step()  # traces
        traced = time.perf_counter()
        loss, _ = step()
        assert np.isfinite(loss.numpy())
        end = time.perf_counter()
        return {
            "construction": constructed - start,
            "reading": read - constructed,
            "step": end - traced,
        }

    seconds, peak = peak_beyond_resident(everything)
    return {**seconds, "peak": peak, "file": 8 * (INPUTS + 1) * num_data}


def measure_fit(arguments: argparse.Namespace, num_data: int) -> dict[str, float]:
    """
    Return seconds of `fit`, objectives a row at its first and last iteration, and peak memory.
    """
    model = _regression(arguments, num_data)
    result, peak = peak_beyond_resident(lambda: fit(model, max_iterations=arguments.fit))
    first, last = (result.objective[place] / num_data for place in (0, -1))
    return {
        "iterations": result.iterations,
        "seconds": result.seconds,
        "first": first,
        "last": last,
        "peak": peak,
    }


def measure_classifier(arguments: argparse.Namespace) -> dict[str, float]:
    """Return seconds from the constructor of PEPClassifier to converged sites, and peak memory."""

    def everything() -> dict[str, float]:
        start = time.perf_counter()
        dataset, Z = _rows(arguments, arguments.classify, "labels")
        model = PEPClassifier(dataset, _kernel(), inducing_variable=Z, alpha=0.5)
        status = model.update_sites()
        seconds = time.perf_counter() - start
        return {"converged": status.converged, "sweeps": status.sweeps, "seconds": seconds}

    found, peak = peak_beyond_resident(everything)
    return {**found, "peak": peak}


def _regression(arguments: argparse.Namespace, num_data: int) -> PEPR:
    dataset, Z = _rows(arguments, num_data, "Y")
    return PEPR(dataset, _kernel(), Z, alpha=0.5, noise_variance=0.1)


def _rows(arguments: argparse.Namespace, num_data: int, outputs: str) -> tuple[Any, Any]:
    """Return the dataset of the file's first rows, and M of them as inducing points."""
    X, Y = (
        np.load(arguments.folder / f"{name}.npy", mmap_mode="r")[:num_data]
        for name in ("X", outputs)
    )
    return array_batches(X, Y), np.array(X[: arguments.inducing])


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(INPUTS, 1.5))


if __name__ == "__main__":
    main()
