"""
Compare a training step (loss and all gradients, compiled, float64) of the collapsed models with
GPflow's.

Times of two models are compared within a round, so that drifting speed cancels; the table has
medians of these ratios. "Mixed" models have ``mixed_precision=True``; their losses and gradients
are compared with double precision. The time is also given in units of one M x M by M x N product,
measured in the same rounds. SGPR's step needs at least one product and half a Gram matrix (1.5
units), other powers at least two of each (3 units). This minimum divided by the measured units is
the share of the machine's product rate. With `--cores 1` times are CPU times. GPyTorch's SGPR is
included if GPyTorch is installed.

    python -m experiments.benchmarks.collapsed_step [--rounds 15] [--rows 50000 10000] [--inducing 256 512] [--cores 1]
        [--kernel SquaredExponential Matern32 Matern52 sum product]
"""

import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Matern32, Matern52, SquaredExponential
from gpflow.models.sgpr import GPRFITC

from experiments.benchmarks.machine import use_one_core
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.protocols.arguments import count
from gpflow_pep import BTSGPR, PEPR, TSGPR

INPUTS = 8
UNIT_COLUMNS = 2048
NOISE, LENGTHSCALE = 0.1, 1.5
KERNELS: dict[str, Callable[[], Kernel]] = {
    "SquaredExponential": lambda: SquaredExponential(lengthscales=np.full(INPUTS, LENGTHSCALE)),
    "Matern32": lambda: Matern32(lengthscales=np.full(INPUTS, LENGTHSCALE)),
    "Matern52": lambda: Matern52(lengthscales=np.full(INPUTS, LENGTHSCALE)),
    "sum": lambda: KERNELS["SquaredExponential"]() + KERNELS["Matern32"](),
    "product": lambda: KERNELS["SquaredExponential"]() * KERNELS["Matern52"](),
}
PEERS = {
    "PEPR 0": "SGPR",
    "PEPR 0, mixed": "SGPR",
    "TSGPR": "SGPR",
    "TSGPR, mixed": "SGPR",
    "BTSGPR 20": "SGPR",
    "PEPR 1": "GPRFITC",
    "PEPR 0.5": "GPRFITC",
    "PEPR 0.5, mixed": "GPRFITC",
}
COMPARED = {
    "PEPR 0": "SGPR",
    "PEPR 0, mixed": "PEPR 0",
    "PEPR 1": "GPRFITC",
    "PEPR 0.5, mixed": "PEPR 0.5",
    "TSGPR, mixed": "TSGPR",
}
"""Models whose losses and gradients agree, with mixed precision to fewer digits."""
_LEAST = {
    "SGPR": 1.5,
    "PEPR 0": 1.5,
    "GPRFITC": 3.0,
    "PEPR 1": 3.0,
    "PEPR 0.5": 3.0,
    "TSGPR": 3.0,
}  # units
Step = Callable[[], tuple[tf.Tensor, list[tf.Tensor]]]


def main() -> None:
    """Print one table per size and kernel."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=count, default=15)
    parser.add_argument("--rows", type=count, nargs="+", default=[50_000, 10_000])
    parser.add_argument("--inducing", type=count, nargs="+", default=[256, 512])
    parser.add_argument("--kernel", nargs="+", choices=KERNELS, default=["SquaredExponential"])
    parser.add_argument("--cores", type=count, choices=[1], help="all by default")
    arguments = parser.parse_args()
    if arguments.cores is not None:
        use_one_core()
    tables = [
        compare(num_data, num_inducing, kernel, arguments.rounds, arguments.cores)
        for num_data, num_inducing in zip(arguments.rows, arguments.inducing, strict=True)
        for kernel in arguments.kernel
    ]
    write(tables, arguments.json)


def compare(
    num_data: int, num_inducing: int, kernel: str, rounds: int, cores: int | None = None
) -> Table:
    """Time every model, after checking that losses and gradients agree with GPflow's."""
    X, Y, Z = data(num_data, num_inducing)
    steps = {name: compiled_step(model) for name, model in build(X, Y, Z, KERNELS[kernel]).items()}
    errors = {name: differences(steps[name](), steps[peer]()) for name, peer in COMPARED.items()}
    with_gpytorch = find_spec("gpytorch") is not None
    if with_gpytorch:
        from experiments.benchmarks.gpytorch_step import sgpr_step

        steps["GPyTorch SGPR"] = sgpr_step(X, Y, Z, kernel, NOISE, LENGTHSCALE, cores)
    clock = time.perf_counter if cores is None else time.process_time
    seconds = time_rounds({**steps, "unit": unit_product(num_inducing)}, rounds, clock)
    unit = seconds.pop("unit") * num_data / UNIT_COLUMNS

    rate = 2e-9 * num_inducing**2 * num_data / np.median(unit)
    table = Table(
        f"N = {num_data}, M = {num_inducing}, D = {INPUTS}, float64, {kernel} ARD, {rounds} "
        f"rounds, {'all cores' if cores is None else 'one core, CPU'}, products {rate:.0f} "
        f"GFLOP/s, GPyTorch {'installed' if with_gpytorch else 'not installed'}",
        {
            "model": "<16",
            "seconds": ".3f",
            "units": ".1f",
            "share": ".0%",
            "times as fast": ".2f",
            "as": "<",
        }
        | {"as GPyTorch": ".2f", "loss differs": ".0e", "gradient": ".0e"},
    )
    for name, times in seconds.items():
        against, units = PEERS.get(name), float(np.median(times / unit))
        table.add(
            name,
            float(np.median(times)),
            units,
            _LEAST[name] / units if name in _LEAST else None,
            float(np.median(seconds[against] / times)) if against else None,
            against,
            float(np.median(seconds["GPyTorch SGPR"] / times))
            if with_gpytorch and name == "PEPR 0"
            else None,
            *errors.get(name, (None, None)),
        )
    return table


def data(
    num_data: int, num_inducing: int, num_inputs: int = INPUTS
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Draw X [N, D], Y [N, 1], a smooth function with noise, and Z [M, D]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, (num_data, num_inputs))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.standard_normal((num_data, 1))
    return X, Y, X[rng.choice(num_data, num_inducing, replace=False)]


def build(
    X: AnyNDArray,
    Y: AnyNDArray,
    Z: AnyNDArray,
    kernel: Callable[[], Kernel],
    chunk_size: int | None = None,
) -> dict[str, Any]:
    """Return the models, all on the same data with the same hyperparameters."""

    def model(constructor: Callable[..., Any], **options: Any) -> Any:
        return constructor((X, Y), kernel(), Z.copy(), noise_variance=NOISE, **options)

    def own(constructor: Callable[..., Any], **options: Any) -> Any:
        return model(constructor, chunk_size=chunk_size, **options)

    return {
        "SGPR": model(gpflow.models.SGPR),
        "PEPR 0": own(PEPR, alpha=0.0),
        "GPRFITC": model(GPRFITC),
        "PEPR 1": own(PEPR, alpha=1.0),
        "PEPR 0.5": own(PEPR, alpha=0.5),
        "PEPR 0, mixed": own(PEPR, alpha=0.0, mixed_precision=True),
        "PEPR 0.5, mixed": own(PEPR, alpha=0.5, mixed_precision=True),
        "TSGPR": own(TSGPR),
        "TSGPR, mixed": own(TSGPR, mixed_precision=True),
        "BTSGPR 20": own(BTSGPR, blocks=20),
    }


def compiled_step(model: Any, *data: Any, by_xla: bool = False) -> Step:
    """Compile loss and all gradients as one function; `data` for a model that holds none."""

    @tf.function(autograph=False, jit_compile=by_xla or None)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, model.trainable_variables)

    return cast(Step, step)


def unit_product(num_inducing: int) -> Callable[[], tf.Tensor]:
    """Return a function that multiplies M x M with M x 2048."""
    rng = np.random.default_rng(1)
    left = tf.constant(rng.standard_normal((num_inducing, num_inducing)))
    right = tf.constant(rng.standard_normal((num_inducing, UNIT_COLUMNS)))
    return cast(Callable[[], tf.Tensor], tf.function(lambda: tf.matmul(left, right)))


def differences(ours: Any, theirs: Any) -> tuple[float, float]:
    """Return the differences of losses and of gradients, each relative to its largest entry."""
    loss = float(abs(ours[0] - theirs[0]) / abs(theirs[0]))
    pairs = zip(ours[1], theirs[1], strict=True)
    return loss, max(float(tf.reduce_max(abs(a - b)) / tf.reduce_max(abs(b))) for a, b in pairs)


def time_rounds(
    functions: dict[str, Callable[[], Any]],
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
    return {
        name: np.array(column) for name, column in zip(names, zip(*times, strict=True), strict=True)
    }


def seconds_of(function: Callable[[], Any], clock: Callable[[], Any] = time.perf_counter) -> Any:
    """Return the seconds of a call by a clock, or by several in an array."""
    start = clock()
    function()
    return clock() - start


if __name__ == "__main__":
    main()
