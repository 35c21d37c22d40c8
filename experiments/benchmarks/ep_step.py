"""Time expectation propagation on one core, cold and warm, against GPflow's SVGP in the same run.

Cold is a process of its own for each figure, from the model's constructor on: to converged sites,
to the first loss and gradient, compiled without AutoGraph, or to the end of one iteration of
GPflow's Scipy optimizer, which compiles with it as in GPflow's examples; and the loss and gradient
of PEPR and GPflow's SGPR. Warm is a sweep (the time of `update_sites()` from sites of 0, by the
number of sweeps) and a compiled loss and gradient: of an unchanged model, and after all
lengthscales have changed by 1 %, as in training. Labels of two classes, 3 inputs, probit, alpha
0.5. Cases take turns; figures are medians, ratios medians of the ratios of CPU times within a
round.

    python -m experiments.benchmarks.ep_step [--rounds 5] [--repeats 30] [--sizes 400x30 5000x100]
        [--skip-cold]
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from experiments.benchmarks.collapsed_step import compiled_step, in_turns, seconds_of
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.trajectory import clocks
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
_CHANGE = 1.01  # factor on the lengthscales


def main() -> None:
    """Print a table of cold and a table of warm figures."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--rounds", type=count, default=5, help="processes for each cold figure (%(default)s)"
    )
    parser.add_argument(
        "--repeats", type=count, default=30, help="repeats of each warm figure (%(default)s)"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=size, default=[_SIZE, (5000, 100)], help="N x M of warm figures"
    )
    parser.add_argument("--skip-cold", action="store_true", help="warm figures only")
    arguments = parser.parse_args()
    print(machine())
    tables = [] if arguments.skip_cold else [cold_table(arguments.rounds)]
    write([*tables, warm_table(arguments.sizes, arguments.repeats)], arguments.json)


def size(text: str) -> tuple[int, int]:
    """Parse N and M, such as 400x30."""
    rows, _, inducing = text.partition("x")
    return count(rows), count(inducing)


def cold_table(rounds: int) -> Table:
    """Return the table of seconds in fresh processes."""
    found = in_turns(
        lambda name: in_process(cold, name, one_core=True), COLD, rounds
    )  # [rounds, 2] each
    table = Table(
        f"cold, N = {_SIZE[0]}, M = {_SIZE[1]}, {rounds} processes each",
        {
            "from the constructor to": "<32",
            "CPU s": ".2f",
            "wall s": ".2f",
            "ratio": ".2f",
            "to": "<",
        },
    )
    for name, peer in COLD.items():
        ratio = np.median(found[name][:, 0] / found[peer][:, 0])
        cpu, wall = np.median(found[name], axis=0)
        table.add(
            name, cpu, wall, *((None, None) if name == peer else (ratio, peer.partition(",")[0]))
        )
    return table


def cold(name: str) -> AnyNDArray:
    """
    Return CPU and wall seconds [2] of one figure in this process, in which nothing has been traced.
    """
    labels = not name.startswith(("SGPR", "PEPR"))
    X, Y, Z = rows(*_SIZE, labels)
    make: dict[str, Callable[[], Any]] = {
        "SVGP": lambda: svgp(X, Z),
        "PEPClassifier": lambda: classifier(X, Y, Z),
        "SGPR": lambda: gpflow.models.SGPR((X, Y), kernel(), Z, noise_variance=0.1),
        "PEPR": lambda: PEPR((X, Y), kernel(), Z, alpha=ALPHA, noise_variance=0.1),
    }
    kind, _, what = name.partition(", ")

    def run() -> None:
        model, data = make[kind](), [(X, Y)] if kind == "SVGP" else []
        if what == "sites":
            assert model.update_sites().converged
        elif what == "loss and gradient":
            loss, _ = compiled_step(model, *data)()
            assert np.isfinite(loss)
        else:
            closure = model.training_loss_closure(*data)
            gpflow.optimizers.Scipy().minimize(
                closure, model.trainable_variables, options={"maxiter": 1}
            )

    return seconds_of(run, clocks)


def warm_table(sizes: list[tuple[int, int]], repeats: int) -> Table:
    """Return the table of milliseconds of compiled functions."""
    table = Table(
        f"warm, {repeats} repeats",
        {
            "N": "d",
            "M": "d",
            "figure": "<38",
            "CPU ms": ".3f",
            "wall ms": ".3f",
            "times SVGP": ".2f",
        },
    )
    for num_data, inducing in sizes:
        found, sweeps = in_process(warm, num_data, inducing, repeats, one_core=True)
        peer = found["SVGP, loss and gradient"][:, 0]
        for name, times in found.items():
            note = f" ({sweeps} of them)" if name == "PEPClassifier, sweep" else ""
            ratio = np.median(times[:, 0] / peer)
            cpu, wall = 1e3 * np.median(times, axis=0)
            table.add(num_data, inducing, name + note, cpu, wall, ratio)
    return table


def warm(num_data: int, inducing: int, repeats: int) -> tuple[dict[str, AnyNDArray], int]:
    """
    Return CPU and wall seconds [repeats, 2] of each figure, and the number of sweeps from sites of
    0.
    """
    X, Y, Z = rows(num_data, inducing, labels=True)
    swept, model, peer = classifier(X, Y, Z), classifier(X, Y, Z), svgp(X, Z)
    step, peer_step = compiled_step(model), compiled_step(peer, (X, Y))
    lengthscales = model.kernel.lengthscales.unconstrained_variable
    start = lengthscales.numpy()
    changed = model.kernel.lengthscales.transform.inverse(
        _CHANGE * model.kernel.lengthscales.numpy()
    ).numpy()
    found: dict[str, list[AnyNDArray]] = {
        name: [] for name in ("PEPClassifier, sweep", "changed", "unchanged", "SVGP")
    }
    sweeps = 0
    for repeat in range(repeats + 1):
        swept.reset_sites()
        seconds = seconds_of(swept.update_sites, clocks)
        sweeps = swept.sites_status.sweeps + 1
        found["PEPClassifier, sweep"].append(seconds / sweeps)
        lengthscales.assign(changed if repeat % 2 else start)
        for name, function in {"changed": step, "unchanged": step, "SVGP": peer_step}.items():
            found[name].append(seconds_of(function, clocks))
    assert swept.sites_status.converged and model.sites_status.converged
    titles = {
        "unchanged": "PEPClassifier, loss and gradient",
        "changed": "the same, lengthscales changed by 1 %",
        "SVGP": "SVGP, loss and gradient",
    }
    return {
        titles.get(name, name): np.array(times[1:]) for name, times in found.items()
    }, sweeps  # after compiling


def rows(num_data: int, inducing: int, labels: bool) -> tuple[Any, Any, Any]:
    """Draw X [N, 3], labels or targets Y [N, 1] and Z [M, 3]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_data, INPUTS))
    f = 2.0 * np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:2]) + X[:, 2:]
    noisy = f + rng.standard_normal(f.shape)
    Z = X[rng.choice(num_data, inducing, replace=False)]
    return X, (noisy > 0.0).astype(float) if labels else noisy, Z


def kernel() -> gpflow.kernels.Kernel:
    """Return a new kernel."""
    return gpflow.kernels.SquaredExponential(2.0, lengthscales=np.full(INPUTS, 1.2))


def classifier(X: Any, Y: Any, Z: Any) -> PEPClassifier:
    """Return PEP for two classes."""
    return PEPClassifier((X, Y), kernel(), Probit(), Z.copy(), alpha=ALPHA)


def svgp(X: Any, Z: Any) -> gpflow.models.SVGP:
    """Return GPflow's SVGP for the same labels."""
    return gpflow.models.SVGP(kernel(), gpflow.likelihoods.Bernoulli(), Z.copy(), num_data=len(X))


if __name__ == "__main__":
    main()
