"""
Time a step (objective and all derivatives, compiled) of the structured minibatch bounds against
GPflow's SVGP.

Times are compared within a round; the table has medians of these ratios.

    python -m experiments.benchmarks.structured_step [--rounds 40] [--rows 500] [--inducing 256]
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np

from experiments.benchmarks.collapsed_step import INPUTS, KERNELS, compiled_step, data, time_rounds
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep import BTSVGP, PEPSVGP, TSVGP

NUM_DATA = 1_000_000
MODELS: dict[str, Callable[..., Any]] = {
    "SVGP": gpflow.models.SVGP,
    "TSVGP": TSVGP,
    "PEPSVGP": PEPSVGP,
    "BTSVGP": BTSVGP,
    "PEPSVGP of blocks": partial(PEPSVGP, minibatch_is_block=True),
}


def main() -> None:
    """Print a row per model."""
    parser = parser_of(__doc__)
    parser.option("--rounds", 40)
    parser.option("--rows", 500, "rows of a minibatch")
    parser.option("--inducing", 256)
    asked = parser.parse_args()
    X, Y, Z = data(max(asked.rows, asked.inducing), asked.inducing, INPUTS)
    X, Y = X[: asked.rows], Y[: asked.rows]
    steps = {}
    for name, constructor in MODELS.items():
        kernel = KERNELS["SquaredExponential"](INPUTS)
        model = constructor(kernel, gpflow.likelihoods.Gaussian(0.1), Z, num_data=NUM_DATA)
        steps[name] = compiled_step(model, (X, Y))
    seconds = time_rounds(steps, asked.rounds)
    table = Table(
        f"M = {asked.inducing}, batch {asked.rows}, D = {INPUTS}, {asked.rounds} rounds",
        {"model": "<18", "ms": ".1f", "times SVGP": ".2f"},
    )
    for name, times in seconds.items():
        table.add(name, 1e3 * np.median(times), np.median(times / seconds["SVGP"]))
    write([table], asked.json)


if __name__ == "__main__":
    main()
