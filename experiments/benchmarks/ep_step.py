"""Time expectation propagation on one core, cold and warm, against GPflow's SVGP in the same run.

Cold is a process of its own for each figure, from the model's constructor on: to converged sites,
to the first loss and gradient, compiled without AutoGraph, or to the end of one iteration of
GPflow's Scipy optimizer, which compiles with it as in GPflow's examples; and the loss and gradient
of PEPR and GPflow's SGPR. Warm is a sweep, also under the Wasserstein projection (the time of
`reset_sites()` and `update_sites()` by the number of sweeps), and a compiled loss and gradient at
converged sites. Labels of two classes, 3 inputs, probit, alpha 0.5. Cases take turns; figures are
medians of CPU times, ratios medians of the ratios within a round.

    python -m experiments.benchmarks.ep_step [--rounds 5] [--repeats 30] [--sizes 400x30 5000x100]
"""

import time
from functools import partial
from typing import Any

import gpflow
import numpy as np

from experiments.benchmarks.collapsed_step import compiled_step, in_turns, seconds_of, time_rounds
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.protocols.arguments import count
from gpflow_pep import PEPR, PEPClassifier
from gpflow_pep.likelihoods import Probit

INPUTS, ALPHA = 3, 0.5
COLD = {  # figure -> peer
    "SVGP, loss and gradient": "SVGP, loss and gradient",
    "PEPClassifier, sites": "SVGP, loss and gradient",
    "PEPClassifier, loss and gradient": "SVGP, loss and gradient",
    "SVGP, one iteration of Scipy": "SVGP, one iteration of Scipy",
    "PEPClassifier, one iteration of Scipy": "SVGP, one iteration of Scipy",
    "SGPR, loss and gradient": "SGPR, loss and gradient",
    "PEPR, loss and gradient": "SGPR, loss and gradient",
}
_SIZE = (400, 30)  # N and M of cold figures


def main() -> None:
    """Print a table of cold and a table of warm figures."""
    parser = parser_of(__doc__)
    parser.option("--rounds", 5, "processes for each cold figure (%(default)s)")
    parser.option("--repeats", 30, "repeats of each warm figure (%(default)s)")
    parser.option("--sizes", [_SIZE, (5000, 100)], "N x M of warm figures", type=size)
    asked = parser.parse_args()
    print(machine())
    found = in_turns(lambda name: in_process(cold, name, one_core=True), COLD, asked.rounds)
    of_cold = Table(
        f"cold, N = {_SIZE[0]}, M = {_SIZE[1]}, {asked.rounds} processes each",
        {"from the constructor to": "<38", "CPU s": ".2f", "ratio": ".2f"},
    )
    for name, peer in COLD.items():
        of_cold.add(name, np.median(found[name]), np.median(found[name] / found[peer]))
    of_warm = Table(
        f"warm, {asked.repeats} repeats",
        {"N": "d", "M": "d", "warm": "<34", "CPU ms": ".2f", "times SVGP": ".2f"},
    )
    for N, M in asked.sizes:
        seconds = in_process(warm, N, M, asked.repeats, one_core=True)
        for name, times in seconds.items():
            ratio = np.median(times / seconds["SVGP, loss and gradient"])
            of_warm.add(N, M, name, 1e3 * np.median(times), ratio)
    write([of_cold, of_warm], asked.json)


def size(text: str) -> tuple[int, int]:
    """Parse N and M, such as 400x30."""
    rows, _, inducing = text.partition("x")
    return count(rows), count(inducing)


def cold(name: str) -> float:
    """Return the CPU seconds of a figure in this process, in which nothing has been traced."""
    kind, _, end = name.partition(", ")
    rows = drawn(*_SIZE)

    def run() -> None:
        model, data = made(kind, *rows)
        if end == "sites":
            assert model.update_sites().converged
        elif end == "loss and gradient":
            loss, _ = compiled_step(model, *data)()
            assert np.isfinite(loss)
        else:
            loss = model.training_loss_closure(*data)
            options = {"maxiter": 1}
            gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=options)

    return seconds_of(run, time.process_time)


def warm(num_data: int, num_inducing: int, repeats: int) -> dict[str, Any]:
    """Return the CPU seconds of each figure [repeats]."""
    rows = drawn(num_data, num_inducing)
    swept = {f"{name}, sweep": made(name, *rows)[0] for name in ("PEPClassifier", "Wasserstein")}
    (model, _), (peer, data) = (made(name, *rows) for name in ("PEPClassifier", "SVGP"))

    def sweep(model: PEPClassifier) -> None:
        model.reset_sites()
        assert model.update_sites().converged

    functions = {
        **{name: partial(sweep, of_sweep) for name, of_sweep in swept.items()},
        "PEPClassifier, loss and gradient": compiled_step(model),
        "SVGP, loss and gradient": compiled_step(peer, *data),
    }
    seconds = time_rounds(functions, repeats, time.process_time)
    for name, of_sweep in swept.items():
        seconds[name] /= of_sweep.sites_status.sweeps + 1
    return seconds


def drawn(num_data: int, num_inducing: int) -> tuple[Any, ...]:
    """Draw X [N, 3], labels Y [N, 1] and Z [M, 3]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_data, INPUTS))
    f = 2.0 * np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:2]) + X[:, 2:]
    Y = (f + rng.standard_normal(f.shape) > 0.0).astype(float)
    return X, Y, X[rng.choice(num_data, num_inducing, replace=False)]


def made(name: str, X: Any, Y: Any, Z: Any) -> tuple[Any, list[Any]]:
    """Return a new model, and the data that it does not hold."""
    kernel = gpflow.kernels.SquaredExponential(2.0, lengthscales=[1.2] * INPUTS)
    if name == "SVGP":
        likelihood = gpflow.likelihoods.Bernoulli()
        return gpflow.models.SVGP(kernel, likelihood, Z, num_data=len(X)), [(X, Y)]
    projections = {"PEPClassifier": "kl", "Wasserstein": "wasserstein"}
    if name in projections:
        kind = projections[name]
        return PEPClassifier((X, Y), kernel, Probit(), Z, alpha=ALPHA, projection=kind), []
    if name == "SGPR":
        return gpflow.models.SGPR((X, Y), kernel, Z, noise_variance=0.1), []
    return PEPR((X, Y), kernel, Z, alpha=ALPHA, noise_variance=0.1), []


if __name__ == "__main__":
    main()
