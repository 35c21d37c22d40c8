"""One training step (loss and all gradients, compiled, float64) of the collapsed models against GPflow's.

Times of two models are compared within a round, so that a machine whose speed drifts does not matter; medians of
these ratios are what is reported. The time is also given in units of one M x M by M x N product, measured in the same
rounds: SGPR cannot do with less than 3 of them, or a little less where triangles and symmetry are made use of.

    python -m experiments.benchmarks.collapsed_step [--rounds 15] [--rows 50000 10000] [--inducing 256 512]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models.sgpr import GPRFITC

from gpflow_pep import BTSGPR, PEPR, TSGPR

INPUTS = 8
UNIT_COLUMNS = 2048
Step = Callable[[], tuple[tf.Tensor, list[tf.Tensor]]]


def main() -> None:
    """Print one table per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 10_000])
    parser.add_argument("--inducing", type=int, nargs="+", default=[256, 512])
    arguments = parser.parse_args()
    for num_data, num_inducing in zip(arguments.rows, arguments.inducing, strict=True):
        compare(num_data, num_inducing, arguments.rounds)


def compare(num_data: int, num_inducing: int, rounds: int) -> None:
    """Time every model and print the table, after checking that losses and gradients agree with GPflow's."""
    models = build(num_data, num_inducing)
    peers = {"PEPR 0": "SGPR", "TSGPR": "SGPR", "BTSGPR 20": "SGPR", "PEPR 1": "GPRFITC", "PEPR 0.5": "GPRFITC"}
    steps = {name: compiled_step(model) for name, model in models.items()}
    loss_error, gradient_error = {}, {}
    for name, peer in (("PEPR 0", "SGPR"), ("PEPR 1", "GPRFITC")):
        loss_error[name], gradient_error[name] = differences(steps[name](), steps[peer]())
    seconds = time_rounds({**steps, "unit": unit_product(num_inducing)}, rounds)
    unit = seconds.pop("unit") * num_data / UNIT_COLUMNS

    print(f"\nN = {num_data}, M = {num_inducing}, D = {INPUTS}, float64, squared exponential ARD, {rounds} rounds")
    print(f"{'model':12}{'seconds':>9}{'units':>7}  {'times as fast as':18}{'loss differs':>14}{'gradient':>10}")
    for name, times in seconds.items():
        row = f"{name:12}{np.median(times):9.3f}{np.median(times / unit):7.1f}  "
        if name in peers:
            row += f"{np.median(seconds[peers[name]] / times):5.2f}  {peers[name]:11}"
        if name in loss_error:
            row += f"{loss_error[name]:14.0e}{gradient_error[name]:10.0e}"
        print(row.rstrip(), flush=True)


def build(num_data: int, num_inducing: int) -> dict[str, Any]:
    """The models, all on the same data with the same hyperparameters."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, (num_data, INPUTS))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.standard_normal((num_data, 1))
    Z = X[rng.choice(num_data, num_inducing, replace=False)]

    def model(constructor: Callable[..., Any], **options: Any) -> Any:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(INPUTS, 1.5))
        return constructor((X, Y), kernel, Z.copy(), noise_variance=0.1, **options)

    return {
        "SGPR": model(gpflow.models.SGPR),
        "PEPR 0": model(PEPR, alpha=0.0),
        "GPRFITC": model(GPRFITC),
        "PEPR 1": model(PEPR, alpha=1.0),
        "PEPR 0.5": model(PEPR, alpha=0.5),
        "TSGPR": model(TSGPR),
        "BTSGPR 20": model(BTSGPR, blocks=20),
    }


def compiled_step(model: Any, *data: Any) -> Step:
    """Loss (of data, where the model has none of its own) and all its gradients as one compiled function."""

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, model.trainable_variables)

    return cast(Step, step)


def unit_product(num_inducing: int) -> Callable[[], tf.Tensor]:
    """A product of M x M with M x 2048."""
    rng = np.random.default_rng(1)
    left = tf.constant(rng.standard_normal((num_inducing, num_inducing)))
    right = tf.constant(rng.standard_normal((num_inducing, UNIT_COLUMNS)))
    return cast(Callable[[], tf.Tensor], tf.function(lambda: tf.matmul(left, right)))


def differences(ours: Any, theirs: Any) -> tuple[float, float]:
    """Relative difference of the losses, and the largest of the gradients, each relative to its largest entry."""
    loss = float(abs(ours[0] - theirs[0]) / abs(theirs[0]))
    pairs = zip(ours[1], theirs[1], strict=True)
    return loss, max(float(tf.reduce_max(abs(a - b)) / tf.reduce_max(abs(b))) for a, b in pairs)


def time_rounds(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Seconds of each function in each round [rounds], after one call that compiles it."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(times) for name, times in seconds.items()}


if __name__ == "__main__":
    main()
