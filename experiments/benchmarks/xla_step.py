"""
Time loss with gradient, and predictions, with XLA (``jit_compile=True``) and without it, on one core, in float64.

Warm times are CPU times; both take turns within a round, and the table has medians. The first call (tracing and
compiling) is made once. Values are compared before timing.

    python -m experiments.benchmarks.xla_step [--rows 2000] [--inducing 100] [--inputs 4] [--rounds 15] [--models ...]
"""

import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from experiments.benchmarks.machine import machine, use_one_core
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.small_step import Problem, make_problem, seconds
from gpflow_pep import APEP, PEPR, PEPSVGP, TSGPR, StreamingSGPR

Function = Callable[[], Any]
LARGEST_DIFFERENCE = 1e-9  # between values with and without XLA, relative to the largest value
NEW_ROWS = 1000


MODELS: dict[str, Callable[[Problem], Any]] = {
    "SGPR (GPflow)": lambda p: gpflow.models.SGPR(p.data, p.kernel(), p.Z, noise_variance=0.1),
    "PEPR 0.5": lambda p: PEPR(
        p.data, p.kernel(), p.Z, noise_variance=0.1, chunk_size=len(p.data[0])
    ),
    "PEPR 0.5, chunks": lambda p: PEPR(p.data, p.kernel(), p.Z, noise_variance=0.1, chunk_size=512),
    "TSGPR": lambda p: TSGPR(p.data, p.kernel(), p.Z, noise_variance=0.1),
    "StreamingSGPR": lambda p: in_midstream(
        StreamingSGPR(p.data, p.kernel(), p.Z, noise_variance=0.1), p
    ),
    "PEPSVGP": lambda p: PEPSVGP(p.kernel(), gpflow.likelihoods.Gaussian(0.1), p.Z, **own_q(p)),
    "APEP": lambda p: APEP(p.kernel(), gpflow.likelihoods.Gaussian(0.1), p.Z, **own_q(p)),
}


def own_q(problem: Problem) -> dict[str, Any]:
    """Return arguments of a minibatch model, with a q(u) whose mean is not 0."""
    return {
        "num_data": len(problem.data[0]),
        "q_mu": np.random.default_rng(2).normal(size=(len(problem.Z), 1)),
    }


def in_midstream(model: StreamingSGPR, problem: Problem) -> StreamingSGPR:
    """Update the model with a second batch."""
    model.update(problem.data)
    return model


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--inputs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", choices=MODELS, nargs="+", default=list(MODELS))
    arguments = parser.parse_args()
    use_one_core()
    print(machine())
    problem = make_problem(arguments.rows, arguments.inducing, arguments.inputs)
    table = Table(
        f"N = {arguments.rows}, M = {arguments.inducing}, D = {arguments.inputs}, {NEW_ROWS} new rows, "
        f"{arguments.rounds} rounds",
        {"model": "<18", "function": "<18", "without, ms": ".2f", "XLA, ms": ".2f", "ratio": ".2f"}
        | {"first, s": ".1f", "XLA, s": ".1f", "differs": ".0e"},
    )
    for name in arguments.models:
        for what, function in functions(MODELS[name](problem), problem):
            table.add(name, what, *compared(function, arguments.rounds))
    write([table], arguments.json)


def functions(model: Any, problem: Problem) -> list[tuple[str, Function]]:
    """Return the compiled functions, by name."""
    data = () if hasattr(model, "data") else (problem.data,)
    X_new = tf.constant(np.random.default_rng(1).uniform(0.0, 4.0, (NEW_ROWS, problem.Z.shape[1])))

    def loss_and_gradient() -> Any:
        variables = model.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, variables)

    return [("loss and gradient", loss_and_gradient), ("predict_f", lambda: model.predict_f(X_new))]


def compared(function: Function, rounds: int) -> tuple[float, ...]:
    """Return times without and with XLA, and the difference of the values."""
    compiled = [
        tf.function(function, autograph=False),
        tf.function(function, autograph=False, jit_compile=True),
    ]
    first, values = [], []
    for run in compiled:
        start = time.perf_counter()
        values.append(run())
        first.append(time.perf_counter() - start)
    values = [run() for run in compiled]  # now from the same sites
    error = difference(*values)
    if not error < LARGEST_DIFFERENCE:
        raise AssertionError(f"values with and without XLA differ by {error:.0e}.")
    times = np.array([[seconds(run, 3) for run in compiled] for _ in range(rounds)])
    without, with_xla = 1e3 * np.median(times, axis=0)
    ratio = np.median(times[:, 1] / times[:, 0])
    return without, with_xla, ratio, *first, error


def difference(some: Any, others: Any) -> float:
    """Return the largest difference of two structures of tensors, relative to the largest value of each tensor."""
    pairs = zip(tf.nest.flatten(some), tf.nest.flatten(others), strict=True)
    return max(float(np.max(np.abs(one - other)) / np.max(np.abs(one))) for one, other in pairs)


if __name__ == "__main__":
    main()
