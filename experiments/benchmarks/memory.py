"""Measure the additional peak memory of one loss and gradient: it must not grow with N.

Each size runs in a process of its own (Linux: the kernel's high-water mark is reset before the
step).

    python -m experiments.benchmarks.memory [--rows 100000 2000000] [--inducing 256] [--alpha 0 0.5]
"""

import numpy as np

from experiments.benchmarks.collapsed_step import INPUTS, KERNELS, compiled_step, data
from experiments.benchmarks.machine import in_process
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.recording.memory import MEGABYTE, peak_of
from gpflow_pep import PEPR


def main() -> None:
    """Print a row per size and model."""
    parser = parser_of(__doc__)
    parser.option("--rows", [100_000, 2_000_000])
    parser.option("--inducing", 256)
    parser.option("--alpha", [0.0, 0.5])
    arguments = parser.parse_args()
    table = Table(
        f"MB, PEPR, M = {arguments.inducing}",
        {
            "alpha": "g",
            "N": "d",
            "data": ".0f",
            "peak beyond": ".0f",
            "one M x N matrix": ".0f",
        },
    )
    for alpha in arguments.alpha:
        for num_data in arguments.rows:
            data, peak = in_process(measure, num_data, arguments.inducing, alpha)
            matrix = 8 * num_data * arguments.inducing / MEGABYTE
            table.add(alpha, num_data, data, peak, matrix)
    write([table], arguments.json)


def measure(num_data: int, num_inducing: int, alpha: float) -> tuple[float, float | None]:
    """
    Return MB of the data arrays, and the additional peak memory of one step in this process.
    """
    X, Y, Z = data(num_data, num_inducing, INPUTS)
    kernel = KERNELS["SquaredExponential"](INPUTS)
    step = compiled_step(PEPR((X, Y), kernel, Z, alpha=alpha, noise_variance=0.1))
    (loss, _), peak = peak_of(step)
    assert np.isfinite(loss.numpy())
    return (X.nbytes + Y.nbytes) / MEGABYTE, peak


if __name__ == "__main__":
    main()
