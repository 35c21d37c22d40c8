"""
Compare a step of the models with tied factors with GPflow's SVGP: seconds and peak memory, as
ratios in one run.

Objective and all derivatives, compiled: 10 classes, 200 inducing points, a minibatch of 200 rows
with 784 inputs. SVGP has GPflow's robust-max likelihood, whose quadrature is less accurate than
ours. Seconds are compared within a round; the additional peak memory of each model is measured in a
process of its own (Linux).

    python -m experiments.benchmarks.tied_step [--rounds 40]
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from experiments.benchmarks.collapsed_step import compiled_step, time_rounds
from experiments.benchmarks.machine import in_process
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.recording.memory import MEGABYTE, peak_beyond_resident
from gpflow_pep import APEP, ARPEP, RPAPEP, MultiClassRobustMax

CLASSES, INDUCING, BATCH, INPUTS, NUM_DATA = 10, 200, 200, 784, 60_000
MODELS: dict[str, Callable[..., Any]] = {
    "SVGP": gpflow.models.SVGP,
    "ARPEP": ARPEP,
    "APEP": APEP,
    "RPAPEP": RPAPEP,
}
_STEPS = 5  # steps in which the peak memory is measured


def main() -> None:
    """Print a row per model."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    seconds = time_rounds({name: step(name) for name in MODELS}, arguments.rounds)
    memory = {name: in_process(peak, name) for name in MODELS}
    table = Table(
        f"C = {CLASSES}, M = {INDUCING}, batch {BATCH}, D = {INPUTS}, {arguments.rounds} rounds, "
        "medians",
        {"model": "<", "ms": ".1f", "ms, times SVGP": ".2f", "MB": ".0f", "MB, times SVGP": ".2f"},
    )
    for name in MODELS:
        ratio = np.median(np.divide(seconds[name], seconds["SVGP"]))
        milliseconds = 1e3 * np.median(seconds[name])
        table.add(name, milliseconds, ratio, memory[name] / MEGABYTE, memory[name] / memory["SVGP"])
    write([table], arguments.json)


def step(name: str) -> Any:
    """Compile loss and derivatives of a model in the course of training."""
    rng = np.random.default_rng(0)
    X, Z = (rng.uniform(0.0, 1.0, (rows, INPUTS)) for rows in (BATCH, INDUCING))
    Y = rng.integers(0, CLASSES, (BATCH, 1)).astype(float)
    likelihood = gpflow.likelihoods.MultiClass if name == "SVGP" else MultiClassRobustMax
    q_sqrt = np.tril(rng.normal(size=(CLASSES, INDUCING, INDUCING)) * 0.02) + 0.5 * np.eye(INDUCING)
    model = MODELS[name](
        gpflow.kernels.SquaredExponential(4.0, lengthscales=15.0),
        likelihood(CLASSES),
        Z,
        num_data=NUM_DATA,
        num_latent_gps=CLASSES,
        q_mu=rng.normal(size=(INDUCING, CLASSES)),
        q_sqrt=q_sqrt,
    )
    evaluate: Any = compiled_step(model, (X, Y))
    evaluate.get_concrete_function()
    return evaluate


def peak(name: str) -> int:
    """Return the additional peak memory of the steps, in bytes."""
    evaluate = step(name)
    tf.linalg.cholesky(tf.eye(64))  # TensorFlow's own memory

    def steps() -> Any:
        for _ in range(_STEPS):
            loss, _ = evaluate()
        return loss

    loss, most = peak_beyond_resident(steps)
    assert np.isfinite(loss)
    return most


if __name__ == "__main__":
    main()
