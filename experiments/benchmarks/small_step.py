"""
Time a loss and its gradients on few rows, mostly TensorFlow's own time: compiled steps, and the
first call.

Each model is compared with GPflow's on one core. Warm steps take turns within a round. The first
call (tracing, without the constructor) is timed in a fresh process each, and processes take turns.
Times are CPU times, which other programs affect little. The table has their medians, and medians of
the ratios within a round, so that drifting speed cancels. With `--xla` all steps are also compiled
by XLA (``jit_compile=True``).

    python -m experiments.benchmarks.small_step [--rows 400] [--inducing 30] [--inputs 1 8] [--rounds 30] [--starts 7]
        [--xla]
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from experiments.benchmarks.collapsed_step import Step, compiled_step, data, in_turns
from experiments.benchmarks.machine import in_process
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep import PEPR

STEPS_PER_ROUND = 20
_XLA = ", XLA"  # end of the names of steps compiled by XLA


class Problem(NamedTuple):
    """Data and inducing points of the models."""

    data: tuple[AnyNDArray, AnyNDArray]
    """X [N, D] and Y [N, 1]."""
    Z: AnyNDArray
    """[M, D]"""

    def kernel(self) -> gpflow.kernels.Kernel:
        """Return a squared exponential with a lengthscale for each input."""
        return gpflow.kernels.SquaredExponential(lengthscales=np.full(self.Z.shape[1], 1.5))


MODELS: dict[str, Callable[[Problem], Any]] = {
    "SGPR": lambda p: gpflow.models.SGPR(p.data, p.kernel(), p.Z, noise_variance=0.1),
    "PEPR 0": lambda p: PEPR(p.data, p.kernel(), p.Z, noise_variance=0.1, alpha=0.0),
    "PEPR 0.5": lambda p: PEPR(p.data, p.kernel(), p.Z, noise_variance=0.1, alpha=0.5),
}


def main() -> None:
    """Print one table per number of inputs."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--inducing", type=int, default=30)
    parser.add_argument("--inputs", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=30, help="rounds of warm steps")
    parser.add_argument("--starts", type=int, default=7, help="fresh processes of each model")
    parser.add_argument("--xla", action="store_true")
    arguments = parser.parse_args()
    names = list(MODELS)
    if arguments.xla:
        names += [f"{name}{_XLA}" for name in MODELS]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    problems = [
        make_problem(arguments.rows, arguments.inducing, num_inputs)
        for num_inputs in arguments.inputs
    ]
    write(
        [compare(problem, names, arguments.rounds, arguments.starts) for problem in problems],
        arguments.json,
    )


def make_problem(num_data: int, num_inducing: int, num_inputs: int) -> Problem:
    """Draw data of a smooth function with noise."""
    X, Y, Z = data(num_data, num_inducing, num_inputs)
    return Problem((X, Y), Z)


def seconds(step: Step, count: int) -> float:
    """Return the CPU seconds of a call, averaged over `count` calls."""
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


def step_of(name: str, problem: Problem) -> Step:
    """Compile a step by its name in the table."""
    model = MODELS[name.removesuffix(_XLA)](problem)
    return compiled_step(model, by_xla=name.endswith(_XLA))


def first_call(name: str, problem: Problem) -> float:
    """Return the CPU seconds of the first call of a step."""
    return seconds(step_of(name, problem), 1)


def compare(problem: Problem, names: Sequence[str], rounds: int, starts: int) -> Table:
    """Time the steps of these names."""
    X, _ = problem.data
    (N, D), M = X.shape, len(problem.Z)
    steps = {name: step_of(name, problem) for name in names}
    for step in steps.values():
        seconds(step, 1)
    warm = in_turns(lambda name: seconds(steps[name], STEPS_PER_ROUND), names, rounds)
    cold = in_turns(lambda name: in_process(first_call, name, problem), names, starts)
    columns = {
        "step, ms": ".2f",
        "step, of SGPR": ".2f",
        "first, s": ".2f",
        "first, of SGPR": ".2f",
    }
    table = Table(
        f"N = {N}, M = {M}, D = {D}, float64, one core; {rounds} rounds of {STEPS_PER_ROUND} "
        f"steps, {starts} starts",
        {"model": "<14", **columns},
    )
    for name in names:
        row: list[Any] = []
        for times, unit in ((warm, 1e3), (cold, 1.0)):
            ratio = None if name == "SGPR" else float(np.median(times[name] / times["SGPR"]))
            row += [unit * float(np.median(times[name])), ratio]
        table.add(name, *row)
    return table


if __name__ == "__main__":
    main()
