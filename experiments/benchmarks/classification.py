"""Seconds until a posterior predicts as well as it ever will, at equal and fixed hyperparameters.

PEP (alpha 0.5) by sweeps against `gpflow.models.SVGP` by Adam (0.01) and by natural gradients, M = 100 inducing points.
Counted are the seconds of updates, without compilation and without evaluation, until the predictive NLPD of held-out
rows is within 0.002 nats of the method's own optimum, there and at the two evaluations that follow. SVGP's optimum is
that of PEP at alpha = 0. Of several batch sizes (and steps of the natural gradient) each peer's fastest one counts.

    python -m experiments.benchmarks.classification [--sets banana usps generated] [--rounds 3]
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from experiments.initialisation import Floats, cluster_centres, median_distance
from gpflow_pep import PEPClassifier, datasets
from gpflow_pep.likelihoods import Probit

INDUCING = 100
ALPHA = 0.5
CLOSE = 0.002  # nats
CONFIRMED_BY = 2  # evaluations that follow
ADAM_RATE = 0.01
MAX_SECONDS = 40.0


@dataclass(frozen=True)
class Problem:
    """Training and held-out rows, with the hyperparameters all methods share."""

    name: str
    X: Floats
    Y: Floats
    X_test: Floats
    Y_test: Floats
    variance: float
    lengthscale: float

    def kernel(self) -> gpflow.kernels.Kernel:
        """A new kernel."""
        return gpflow.kernels.SquaredExponential(self.variance, self.lengthscale)


def main() -> None:
    """Print one table per set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.sets:
        compare(PROBLEMS[name](), arguments.rounds)


def banana() -> Problem:
    """5300 rows, 2 inputs."""
    return _of_dataset("banana-5300", variance=10.0, lengthscale=0.8)


def usps() -> Problem:
    """Digits 3 against 5, 256 inputs."""
    return _of_dataset("usps-3-5", variance=10.0)


def generated() -> Problem:
    """50,000 rows, 4 inputs, labels drawn from a smooth function."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (55_000, 4))
    f = 3.0 * np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 2.0 * np.sin(X[:, 2] + X[:, 3])
    Y = (f + rng.standard_normal(len(X)) > 0.0).astype(float)[:, None]
    return Problem("generated", X[:50_000], Y[:50_000], X[50_000:], Y[50_000:], variance=10.0, lengthscale=2.0)


PROBLEMS: dict[str, Callable[[], Problem]] = {"banana": banana, "usps": usps, "generated": generated}


def _of_dataset(name: str, variance: float, lengthscale: float | None = None) -> Problem:
    data = datasets.load(name)
    scale = median_distance(data.X_train, 0) if lengthscale is None else lengthscale
    return Problem(name, data.X_train, data.Y_train, data.X_test, data.Y_test, variance, scale)


def compare(problem: Problem, rounds: int) -> None:
    """Time all methods in turn, several times, and print medians."""
    Z = cluster_centres(problem.X, INDUCING, 0)
    optimum = {alpha: _optimum(problem, Z, alpha) for alpha in (0.0, ALPHA)}
    methods: dict[str, Callable[[], float]] = {
        "PEP sweeps": partial(pep, problem, Z, optimum[ALPHA], None),
        "PEP sweeps, batch 1000": partial(pep, problem, Z, optimum[ALPHA], 1000),
    }
    for size in (None, 200, 1000) if len(problem.X) < 10_000 else (200, 1000):
        methods[f"SVGP Adam, batch {size or 'all'}"] = partial(adam, problem, Z, optimum[0.0], size)
        for gamma in (0.1, 0.5, 1.0) if size is None else (0.03, 0.1):
            name = f"SVGP natural gradient {gamma:g}, batch {size or 'all'}"
            methods[name] = partial(natural_gradients, problem, Z, optimum[0.0], size, gamma)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            seconds[name].append(method())

    print(
        f"\n{problem.name}: N = {len(problem.X)}, D = {problem.X.shape[1]}, M = {INDUCING}, "
        f"{len(problem.X_test)} held-out rows, {rounds} rounds\n"
        f"optimal NLPD: PEP {ALPHA:g} {optimum[ALPHA]:.4f}, SVGP {optimum[0.0]:.4f}"
    )
    ours = np.min([np.median(seconds[name]) for name in seconds if name.startswith("PEP")])
    print(f"{'method':40}{'seconds':>9}{'times PEP':>11}")
    for name, times in seconds.items():
        print(f"{name:40}{np.median(times):9.3f}{np.median(times) / ours:11.1f}")
    for peer in ("SVGP Adam", "SVGP natural"):
        best = min(np.median(times) for name, times in seconds.items() if name.startswith(peer))
        print(f"PEP is {best / ours:.1f} times as fast as the fastest {peer}", flush=True)


class Clock:
    """Counts the seconds of updates, and notes from when on a model has predicted as well as it ever will."""

    def __init__(self, model: Any, optimum: float, problem: Problem):
        data = tf.constant(problem.X_test), tf.constant(problem.Y_test)
        self._density = tf.function(lambda: model.predict_log_density(data), autograph=False)
        self._density()  # compiles
        self._optimum = optimum
        self._reached: list[float] = []
        self.seconds = 0.0
        self._started = time.perf_counter()

    def tick(self) -> None:
        """An update is done; what follows is not counted until this returns."""
        self.seconds += time.perf_counter() - self._started
        if not self.done:
            close = abs(-float(np.mean(self._density())) - self._optimum) < CLOSE
            self._reached = [*self._reached, self.seconds] if close else []
        self._started = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether the predictions are good and have stayed so, or time is up."""
        return len(self._reached) > CONFIRMED_BY or self.seconds > MAX_SECONDS

    def result(self) -> float:
        """Seconds until the predictions were good; infinite if they never were."""
        return self._reached[0] if self._reached else np.inf


def _optimum(problem: Problem, Z: Floats, alpha: float) -> float:
    model = PEPClassifier((problem.X, problem.Y), problem.kernel(), Probit(), Z, alpha=alpha)
    model.update_sites()
    return -float(np.mean(model.predict_log_density((problem.X_test, problem.Y_test))))


def pep(problem: Problem, Z: Floats, optimum: float, batch_size: int | None) -> float:
    """Updates of all sites at once, or of a minibatch's."""
    model = PEPClassifier((problem.X, problem.Y), problem.kernel(), Probit(), Z, alpha=ALPHA)
    model.update_sites(max_sweeps=1, batch_size=batch_size)  # compiles
    model.reset_sites()
    clock = Clock(model, optimum, problem)
    model.update_sites(batch_size=batch_size, report=lambda status: clock.tick())
    return clock.result()


def adam(problem: Problem, Z: Floats, optimum: float, batch_size: int | None) -> float:
    """Steps of Adam on q(u)."""
    model, loss = _svgp(problem, Z, batch_size)
    optimiser = tf_keras.optimizers.Adam(ADAM_RATE)
    variables = [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]
    optimiser.build(variables)

    @tf.function(autograph=False)
    def step() -> None:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        optimiser.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    return _repeat(step, [*variables, *optimiser.variables], lambda: Clock(model, optimum, problem))


def natural_gradients(problem: Problem, Z: Floats, optimum: float, batch_size: int | None, gamma: float) -> float:
    """Steps of the natural gradient on q(u)."""
    model, loss = _svgp(problem, Z, batch_size)
    optimiser = gpflow.optimizers.NaturalGradient(gamma)
    step = tf.function(lambda: optimiser.minimize(loss, [(model.q_mu, model.q_sqrt)]), autograph=False)
    variables = [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]
    return _repeat(step, variables, lambda: Clock(model, optimum, problem))


def _svgp(problem: Problem, Z: Floats, batch_size: int | None) -> tuple[gpflow.models.SVGP, Callable[[], tf.Tensor]]:
    model = gpflow.models.SVGP(problem.kernel(), Probit(), Z, num_data=len(problem.X))
    if batch_size is None:
        return model, model.training_loss_closure((problem.X, problem.Y), compile=False)
    X, Y = tf.constant(problem.X), tf.constant(problem.Y)

    def loss() -> tf.Tensor:
        rows = tf.random.uniform([batch_size], 0, len(problem.X), tf.int32)
        return model.training_loss((tf.gather(X, rows), tf.gather(Y, rows)))

    return model, loss


def _repeat(step: Callable[[], Any], variables: list[tf.Variable], start_clock: Callable[[], Clock]) -> float:
    """Compiles the step, and repeats it from the start."""
    initial = [tf.identity(variable) for variable in variables]
    step()
    for variable, value in zip(variables, initial, strict=True):
        variable.assign(value)
    clock = start_clock()
    while not clock.done:
        step()
        clock.tick()
    return clock.result()


if __name__ == "__main__":
    main()
