"""
Time a batch of a stream: StreamingSGPR against GPflow's SGPR on a window of 3,000 points, in one
run.

Per batch of 300 rows, M = 100, D = 1 and 8: `.update()` and 20 evaluations of the objective with
all derivatives, against as many evaluations of SGPR on the window. Times are compared within a
round; the table has medians of these ratios. Protocol T3 compares their scores.

    python -m experiments.benchmarks.streaming [--rounds 30]
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from experiments.benchmarks.collapsed_step import compiled_step, data, seconds_of
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep import StreamingSGPR
from gpflow_pep.runtime import assign_all

BATCH, INDUCING, WINDOW, EVALUATIONS = 300, 100, 3000, 20
_WARM_UP = 3  # rounds


def main() -> None:
    """Print a row for each power and number of inputs."""
    parser = parser_of(__doc__)
    parser.option("--rounds", 30)
    arguments = parser.parse_args()
    table = Table(
        f"batch {BATCH}, M = {INDUCING}, {EVALUATIONS} evaluations, window {WINDOW}, "
        f"{arguments.rounds} rounds",
        {
            "alpha": "g",
            "D": "d",
            "update, ms": ".2f",
            "moved, ms": ".2f",
            "batch, ms": ".1f",
            "window, ms": ".1f",
            "ratio": ".2f",
        },
    )
    for alpha in (0.0, 0.5):
        for num_inputs in (1, 8):
            update, moved, steps, window = compare(alpha, num_inputs, arguments.rounds)
            times = (1e3 * np.median(each) for each in (update, moved, update + steps, window))
            table.add(alpha, num_inputs, *times, np.median(window / (update + steps)))
    write([table], arguments.json)


def compare(alpha: float, num_inputs: int, rounds: int) -> AnyNDArray:
    """
    Return seconds [4, rounds] of `.update()`, without and with moved points, of the steps and the
    window's steps.
    """
    X, Y, Z = data(WINDOW + BATCH * (rounds + _WARM_UP), INDUCING, num_inputs)
    window = tuple(tf.Variable(values[:WINDOW], trainable=False) for values in (X, Y))
    peer = gpflow.models.SGPR(window, _kernel(num_inputs), Z.copy(), noise_variance=0.1)
    model, moving = (
        StreamingSGPR(
            (X[:BATCH], Y[:BATCH]), _kernel(num_inputs), Z.copy(), alpha=alpha, noise_variance=0.1
        )
        for _ in range(2)
    )
    step, peer_step = compiled_step(model), compiled_step(peer)

    def round_of(first: int) -> list[float]:
        last = first + BATCH
        batch = X[first:last], Y[first:last]

        def learn_again() -> None:
            assign_all(window, (values[last - WINDOW : last] for values in (X, Y)))
            _repeat(peer_step)

        return [
            seconds_of(lambda: model.update(batch)),
            seconds_of(lambda: moving.update(batch, fraction_to_move=0.2)),
            seconds_of(lambda: _repeat(step)),
            seconds_of(learn_again),
        ]

    return np.transpose([round_of(first) for first in range(WINDOW, len(X), BATCH)][_WARM_UP:])


def _kernel(num_inputs: int) -> gpflow.kernels.Kernel:
    lengthscale = 0.2 if num_inputs == 1 else 1.5
    return gpflow.kernels.SquaredExponential(lengthscales=[lengthscale] * num_inputs)


def _repeat(step: Callable[[], Any]) -> None:
    for _ in range(EVALUATIONS):
        np.asarray(step()[0])


if __name__ == "__main__":
    main()
