"""
Time a step (objective and all derivatives, compiled) of the structured minibatch bounds against
GPflow's SVGP.

Times are compared within a round; the table has medians of these ratios.

    python -m experiments.benchmarks.structured_step [--rounds 40] [--rows 500] [--inducing 256]
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np

from experiments.benchmarks.collapsed_step import Step, compiled_step, time_rounds
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep import BTSVGP, PEPSVGP, TSVGP

INPUTS, NUM_DATA = 8, 1_000_000
MODELS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "SVGP": (gpflow.models.SVGP, {}),
    "TSVGP": (TSVGP, {}),
    "PEPSVGP": (PEPSVGP, {}),
    "BTSVGP": (BTSVGP, {}),
    "PEPSVGP of blocks": (PEPSVGP, {"minibatch_is_block": True}),
}


def main() -> None:
    """Print a row per model."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", type=int, default=500, help="rows of a minibatch")
    parser.add_argument("--inducing", type=int, default=256)
    arguments = parser.parse_args()
    steps = {name: step(name, arguments.rows, arguments.inducing) for name in MODELS}
    seconds = time_rounds(steps, arguments.rounds)
    table = Table(
        f"M = {arguments.inducing}, batch {arguments.rows}, D = {INPUTS}, {arguments.rounds} "
        "rounds, medians",
        {"model": "<18", "ms": ".1f", "times SVGP": ".2f"},
    )
    for name in MODELS:
        table.add(
            name,
            1e3 * np.median(seconds[name]),
            np.median(np.divide(seconds[name], seconds["SVGP"])),
        )
    write([table], arguments.json)


def step(name: str, rows: int, inducing: int) -> Step:
    """Compile loss and derivatives of a model."""
    rng = np.random.default_rng(0)
    X, Z = (rng.uniform(0.0, 1.0, (count, INPUTS)) for count in (rows, inducing))
    Y = np.sin(X.sum(axis=1, keepdims=True))
    constructor, options = MODELS[name]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(INPUTS))
    model = constructor(kernel, gpflow.likelihoods.Gaussian(0.1), Z, num_data=NUM_DATA, **options)
    return compiled_step(model, (X, Y))


if __name__ == "__main__":
    main()
