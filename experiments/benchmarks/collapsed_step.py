"""
Compare a training step (loss and all gradients, compiled, float64) of the collapsed models with
GPflow's.

Times of two models are compared within a round, so that drifting speed cancels; the table has
medians of these ratios. "Mixed" models have ``mixed_precision=True``; their losses and gradients
are compared with double precision. The time is also given in units of one M x M by M x N product,
measured in the same rounds. SGPR's step needs at least one product and half a Gram matrix (1.5
units), other powers at least two of each (3 units). This minimum divided by the measured units is
the share of the machine's product rate. With `--cores 1` times are CPU times. "First" is the first
call, with tracing. `--xla` compiles by XLA (``jit_compile=True``), which cannot compile blocks of
rows.

    python -m experiments.benchmarks.collapsed_step [--rounds 15] [--rows 50000 10000]
        [--inducing 256 512] [--cores 1] [--inputs 8] [--xla]
        [--kernel SquaredExponential Matern32 Matern52 sum product]
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Matern32, Matern52, SquaredExponential
from gpflow.models.sgpr import GPRFITC

from experiments.benchmarks.machine import use_one_core
from experiments.benchmarks.printing import Table, parser_of, write
from gpflow_pep import BTSGPR, PEPR, TSGPR

INPUTS = 8
UNIT_COLUMNS = 2048
NOISE, LENGTHSCALE = 0.1, 1.5
KERNELS: dict[str, Callable[[int], Kernel]] = {
    "SquaredExponential": lambda D: SquaredExponential(lengthscales=[LENGTHSCALE] * D),
    "Matern32": lambda D: Matern32(lengthscales=[LENGTHSCALE] * D),
    "Matern52": lambda D: Matern52(lengthscales=[LENGTHSCALE] * D),
    "sum": lambda D: KERNELS["SquaredExponential"](D) + KERNELS["Matern32"](D),
    "product": lambda D: KERNELS["SquaredExponential"](D) * KERNELS["Matern52"](D),
}
MODELS: dict[str, tuple[Any, ...]] = {
    "SGPR": (gpflow.models.SGPR, {}, None, 1.5),
    "PEPR 0": (PEPR, {"alpha": 0.0}, "SGPR", 1.5),
    "GPRFITC": (GPRFITC, {}, None, 3.0),
    "PEPR 1": (PEPR, {"alpha": 1.0}, "GPRFITC", 3.0),
    "PEPR 0.5": (PEPR, {"alpha": 0.5}, "GPRFITC", 3.0),
    "PEPR 0, mixed": (PEPR, {"alpha": 0.0, "mixed_precision": True}, "SGPR", None),
    "PEPR 0.5, mixed": (PEPR, {"alpha": 0.5, "mixed_precision": True}, "GPRFITC", None),
    "TSGPR": (TSGPR, {}, "SGPR", 3.0),
    "TSGPR, mixed": (TSGPR, {"mixed_precision": True}, "SGPR", None),
    "BTSGPR 20": (BTSGPR, {"blocks": 20}, "SGPR", None),
}
"""Constructor and options of each model, GPflow's model, and the fewest units of a step."""
COMPARED = {
    "PEPR 0": "SGPR",
    "PEPR 0, mixed": "PEPR 0",
    "PEPR 1": "GPRFITC",
    "PEPR 0.5, mixed": "PEPR 0.5",
    "TSGPR, mixed": "TSGPR",
}
"""Models whose losses and gradients agree, with mixed precision to fewer digits."""
_COLUMNS = {
    "model": "<16",
    "seconds": ".3g",
    "first, s": ".2f",
    "units": ".1f",
    "share": ".0%",
    "times as fast": ".2f",
    "as": "<",
    "loss differs": ".0e",
    "gradient": ".0e",
}


def main() -> None:
    """Print one table per size and kernel."""
    parser = parser_of(__doc__)
    parser.option("--rounds", 15)
    parser.option("--rows", [50_000, 10_000])
    parser.option("--inducing", [256, 512])
    parser.option("--inputs", INPUTS)
    parser.option("--kernel", ["SquaredExponential"], choices=KERNELS)
    parser.option("--cores", int, "all by default", choices=[1])
    parser.option("--xla", False)
    asked = parser.parse_args()
    if asked.cores is not None:
        use_one_core()
    tables = [
        compare(data(num_data, num_inducing, asked.inputs), kernel, asked)
        for num_data, num_inducing in zip(asked.rows, asked.inducing, strict=True)
        for kernel in asked.kernel
    ]
    write(tables, asked.json)


def compare(rows: tuple[AnyNDArray, ...], kernel: str, asked: argparse.Namespace) -> Table:
    """Time every model, after checking that losses and gradients agree with GPflow's."""
    X, Y, Z = rows
    (N, D), M = X.shape, len(Z)
    models = {name: build(name, X, Y, Z, KERNELS[kernel](D)) for name in MODELS}
    if asked.xla:
        del models["BTSGPR 20"]
    for name in models:  # TensorFlow initializes
        compiled_step(build(name, X[:40], Y[:40], Z[:4], KERNELS[kernel](D)))()
    steps = {name: compiled_step(model, by_xla=asked.xla) for name, model in models.items()}
    clock = time.perf_counter
    if asked.cores is not None:
        clock = time.process_time
    first = {name: seconds_of(step, clock) for name, step in steps.items()}
    errors = {name: differences(steps[name](), steps[peer]()) for name, peer in COMPARED.items()}
    seconds = time_rounds(steps | {"unit": unit_product(M)}, asked.rounds, clock)
    unit = seconds.pop("unit") * N / UNIT_COLUMNS

    table = Table(
        f"N = {N}, M = {M}, D = {D}, float64, {kernel} ARD, {asked.rounds} rounds, "
        f"{'all cores' if asked.cores is None else 'one core, CPU'}, products "
        f"{2e-9 * M**2 * N / np.median(unit):.0f} GFLOP/s"
        f"{', XLA' if asked.xla else ''}",
        _COLUMNS,
    )
    for name, times in seconds.items():
        _, _, peer, least = MODELS[name]
        units = np.median(times / unit)
        share = speed = None
        if least is not None:
            share = least / units
        if peer is not None:
            speed = np.median(seconds[peer] / times)
        shown = np.median(times), first[name], units, share, speed, peer
        table.add(name, *shown, *errors.get(name, (None, None)))
    return table


def data(num_data: int, num_inducing: int, num_inputs: int) -> tuple[AnyNDArray, ...]:
    """Draw X [N, D], Y [N, 1], a smooth function with noise, and Z [M, D]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, (num_data, num_inputs))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.standard_normal((num_data, 1))
    return X, Y, X[rng.choice(num_data, num_inducing, replace=False)]


def build(name: str, X: AnyNDArray, Y: AnyNDArray, Z: AnyNDArray, kernel: Kernel) -> Any:
    """Return a model at the common hyperparameters."""
    constructor, options, *_ = MODELS[name]
    return constructor((X, Y), kernel, Z.copy(), noise_variance=NOISE, **options)


def compiled_step(model: Any, *data: Any, by_xla: bool = False) -> Any:
    """
    Compile a function that returns loss and all gradients; `data` for a model that holds none.
    """

    @tf.function(autograph=False, jit_compile=by_xla or None)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, model.trainable_variables)

    return step


def unit_product(num_inducing: int) -> Any:
    """Return a function that multiplies M x M with M x 2048."""
    rng = np.random.default_rng(1)
    left = tf.constant(rng.standard_normal((num_inducing, num_inducing)))
    right = tf.constant(rng.standard_normal((num_inducing, UNIT_COLUMNS)))
    return tf.function(lambda: tf.matmul(left, right))


def differences(ours: Any, theirs: Any) -> tuple[float, float]:
    """Return the differences of losses and of gradients, each relative to its largest entry."""
    loss = float(abs(ours[0] - theirs[0]) / abs(theirs[0]))
    pairs = zip(ours[1], theirs[1], strict=True)
    return loss, max(float(tf.reduce_max(abs(a - b)) / tf.reduce_max(abs(b))) for a, b in pairs)


def time_rounds(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Seconds of each function in each round [rounds], after one call that compiles it."""
    for function in functions.values():
        function()
    return in_turns(lambda name: seconds_of(functions[name], clock), functions, rounds)


def in_turns(
    time_of: Callable[[str], Any], names: Iterable[str], rounds: int
) -> dict[str, AnyNDArray]:
    """Return the times of each name, which take turns in a round, [rounds, ...]."""
    times = [[time_of(name) for name in names] for _ in range(rounds)]
    return dict(zip(names, np.array(times).swapaxes(0, 1), strict=True))


def seconds_of(function: Callable[[], Any], clock: Callable[[], Any] = time.perf_counter) -> Any:
    """Return the seconds of a call by a clock, or by several in an array."""
    start = clock()
    function()
    return clock() - start


if __name__ == "__main__":
    main()
