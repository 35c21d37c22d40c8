"""
Time training until predictions are as good as at a method's own optimum: PEP against GPflow's SVGP,
one core.

PEP at alpha 0, 0.5 and 1 is trained by `gpflow_pep.training.fit` (L-BFGS) with its defaults; SVGP
by L-BFGS, by Adam (0.01), and by natural gradients of q(u) (0.1) with Adam (0.01). All use all
rows, and start from the same kernel (squared exponential, a lengthscale for each input, at the
median distance) and the same inducing points (k-means; SVGP trains them).

A method's own optimum is the end of its training: `fit` ends, SVGP's L-BFGS converges or gains less
than 0.001 nats in 20 iterations, the last third of Adam's steps gains less than 1e-4 nats a row, or
a limit is reached (marked +). Seconds are counted from the constructor to the first iteration after
which the NLPD of at most 1000 held-out rows stays within 0.002 nats of its final value, without
scoring. "Again" is a second training of the same model in the same process, from the same start,
without new tracing. Every method has a process of its own. The table has medians over rounds.

    python -m experiments.benchmarks.ep_training [--sets banana iris]
        [--methods "PEP 0.5" "SVGP L-BFGS"] [--rounds 3]
    python -m experiments.benchmarks.ep_training --short --sets breast-cancer
        --courses training.json
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax
from gpflow.models import SVGP, GPModel

from experiments import datasets
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.trajectory import Over, Trajectory, settled
from experiments.ingredients.initialization import cluster_centers
from experiments.ingredients.kernel import initial_kernel
from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Probit
from gpflow_pep.runtime import assign_all
from gpflow_pep.tilted.predictive import predicted_log_density
from gpflow_pep.training import fit

BINARY = ("banana", "pima", "iono", "breast-cancer", "usps-3-5")
MULTICLASS = ("iris", "three-classes", "vehicle")
METHODS = ("PEP 0", "PEP 0.5", "PEP 1", "SVGP L-BFGS", "SVGP Adam", "SVGP natural")
LIKELIHOODS: dict[str, tuple[Callable[[int], Likelihood], ...]] = {
    "probit": (lambda C: Probit(), lambda C: Bernoulli()),
    "robust-max": (MultiClassRobustMax, MultiClass),
    "softmax": (Softmax, Softmax),
}
"""Likelihoods of this library and GPflow's counterparts, by the number of classes."""
CLOSE = 0.002  # nats
INDUCING, ADAM_RATE, NATURAL_STEP = 50, 0.01, 0.1
# Limits of L-BFGS and of Adam, in iterations, and of either in CPU seconds.
_LIMITS = (2000, 20_000, 300)
_SHORT = (15, 150, 20)
_HELD_OUT = 1000  # largest number of rows
_BETWEEN = 10  # steps of Adam between records
_FLAT_ITERATIONS, _FLAT_GAIN = 20, 1e-3  # of SVGP's L-BFGS; nats
# Adam has converged: nats a row in the last third of its steps; fewest steps.
_GAIN, _ADAM_AT_LEAST = 1e-4, 1000
_COLUMNS = {
    "method": "<13",
    "NLPD": ".4f",
    "iterations": "d",
    "CPU s": ".2f",
    "ratio": ".2f",
    "CPU s, again": ".2f",
    "ratio, again": ".2f",
    "s to the end": ".1f",
    "iterations to the end": "d",
    "converged": "<",
    "error": "<",
}

Result = dict[str, Any]
Report = Callable[[int], None]
"""Records an iteration; raises `Over` at a limit."""


def main() -> None:
    """Print a table for each set and likelihood."""
    parser = parser_of(__doc__)
    known = (*datasets.names(task="classification"), *datasets.names(task="multiclass"))
    parser.option("--sets", [*BINARY, *MULTICLASS], choices=known, metavar="SET")
    parser.option("--methods", METHODS, choices=METHODS)
    parser.option("--rounds", 1, "processes for each method (%(default)s)")
    parser.option("--short", False, "a few iterations, to see that everything works")
    parser.option("--courses", Path, "write seconds and NLPD of every record to this file")
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "results": []}
    print(f"{found['machine']}\nM = {INDUCING}, {asked.rounds} rounds")
    tables = []
    for name in asked.sets:
        try:
            N, D = datasets.load(name).X_train.shape
        except OSError as error:  # no network, or not the published file
            print(f"\n{name} is left out: {error}")
            continue
        several = len(datasets.describe(name).classes) > 2
        for likelihood in ("robust-max", "softmax") if several else ("probit",):
            case = {"set": name, "likelihood": likelihood}
            results = []
            for method in asked.methods:
                each = [
                    in_process(measure, name, likelihood, method, asked.short, one_core=True)
                    for _ in range(asked.rounds)
                ]
                results.append(case | {"method": method} | _medians(each))
            tables.append(_table(f"{name}, {likelihood}: N = {N}, D = {D}", results))
            found["results"] += results
            if asked.courses is not None:
                asked.courses.write_text(json.dumps(found, indent=1))
    write(tables, asked.json)


def _medians(found: Sequence[Result]) -> Result:
    """Return the first result, with medians of seconds; the error of one that failed."""
    failed = [each for each in found if "error" in each]
    if failed:
        return failed[0]
    keys = ("cold", "warm", "end")
    return found[0] | {k: np.median([each[k] for each in found]) for k in keys}


def _table(title: str, results: Sequence[Result]) -> Table:
    """Return the table; ratios are CPU seconds over the fastest SVGP's."""
    table = Table(title, _COLUMNS)
    peers = [each for each in results if each["method"].startswith("SVGP") and "error" not in each]
    for each in results:
        if "error" in each:
            table.add(each["method"], *[None] * (len(_COLUMNS) - 2), each["error"])
            continue
        first, last = each["iterations"]
        row = [each["method"], each["trajectory"]["nlpd"][-1], first]
        for key in ("cold", "warm"):
            best = min((peer[key] for peer in peers), default=np.nan)
            row += [each[key], each[key] / best]
        table.add(*row, each["end"], last, "yes" if each["converged"] else "no", None)
    return table


# --- one method, in a process of its own ----------------------------------------------------------


def measure(name: str, likelihood: str, method: str, short: bool) -> Result:
    """
    Train to the end, find the first record with the final predictions, and train up to it once
    more.
    """
    data = datasets.load(name)
    X, Y = data.X_train, data.Y_train
    Z = cluster_centers(X, min(INDUCING, len(X)), 0)
    kernel = initial_kernel(X)
    lbfgs, adam, seconds = _SHORT if short else _LIMITS
    course = Trajectory(max_seconds=seconds)
    kind, _, how = method.partition(" ")
    C = int(Y.max()) + 1
    chosen = LIKELIHOODS[likelihood][kind == "SVGP"](C)
    gpflow.set_trainable(chosen, False)
    others: Sequence[tf.Variable] = []
    if kind == "PEP":
        model = PEP((X, Y), kernel, chosen, Z, alpha=float(how))
        train: Callable[[Report], bool] = partial(_fit, model, lbfgs)
        recorded = [*model.trainable_variables, model.sites.precision, model.sites.linear]
    else:
        model = SVGP(kernel, chosen, Z, num_data=len(X), num_latent_gps=1 if C == 2 else C)
        recorded = model.trainable_variables
        # GPflow's softmax takes whole numbers only.
        labels = Y.astype(np.int64) if likelihood == "softmax" else Y
        loss = model.training_loss_closure((tf.constant(X), tf.constant(labels)), compile=False)
        if how == "L-BFGS":
            train = partial(_lbfgs, loss, recorded, lbfgs)
        else:
            train, others = _adam(model, loss, adam, _GAIN * len(X), how == "natural")
    trained = [*recorded, *others]
    start = [variable.numpy() for variable in trained]
    try:
        converged = _run(train, recorded, course)
    except (tf.errors.InvalidArgumentError, FloatingPointError) as error:
        return {"error": f"fails after {len(course.iterations)} records: {type(error).__name__}"}
    if how == "L-BFGS":
        compiled = tf.function(loss, autograph=False)
        objective = course.scores(recorded, lambda: -float(compiled()))
        converged |= course.end_where_flat(objective, _FLAT_ITERATIONS, _FLAT_GAIN)
    held_out = data.X_test[:_HELD_OUT], data.Y_test[:_HELD_OUT]
    nlpd = course.scores(recorded, _score(model, *held_out))
    reached = settled(nlpd, CLOSE)
    assign_all(trained, start)
    again = Trajectory(max_iterations=course.iterations[reached])
    _run(train, recorded, again)
    return {
        "converged": converged,
        "iterations": [course.iterations[reached], course.iterations[-1]],
        "cold": course.seconds[reached],
        "warm": again.seconds[-1],
        "end": course.seconds[-1],
        "trajectory": {
            "iterations": course.iterations,
            "seconds": course.seconds,
            "nlpd": nlpd.tolist(),
        },
    }


def _run(
    train: Callable[[Report], bool], recorded: Sequence[tf.Variable], course: Trajectory
) -> bool:
    """Train until the course ends; return True if the training converged."""
    try:
        converged = train(lambda iteration: course.record(iteration, recorded))
    except Over:
        return False
    with suppress(Over):  # training has ended
        course.record(max(course.iterations, default=0), recorded)  # sites have been updated
    return converged


def _score(model: GPModel, X: Any, Y: Any) -> Callable[[], float]:
    """Return the NLPD of held-out rows; for a softmax, which GPflow samples, by quadrature."""

    def density() -> tf.Tensor:
        if not isinstance(model.likelihood, Softmax):
            return tf.reduce_mean(model.predict_log_density((X, Y)))
        f = model.predict_f(X)  # [n, C] each
        return tf.reduce_mean(predicted_log_density(model.likelihood, X, *f, Y))

    compiled = tf.function(density, autograph=False)
    return lambda: -float(compiled())


def _fit(model: PEP, limit: int, report: Report) -> bool:
    return fit(model, max_iterations=limit, callback=lambda step, _: report(step)).converged


def _lbfgs(
    loss: Callable[[], tf.Tensor], variables: Sequence[tf.Variable], limit: int, report: Report
) -> bool:
    def callback(step: int, _: Any, values: Sequence[tf.Tensor]) -> None:
        assign_all(variables, values)
        report(step + 1)

    found = gpflow.optimizers.Scipy().minimize(
        loss,
        variables,
        step_callback=callback,
        tf_fun_args={"autograph": False},  # nothing to convert
        options={"maxiter": limit, "maxfun": 4 * limit},
    )
    return bool(found.success)


def _adam(
    model: SVGP, loss: Callable[[], tf.Tensor], limit: int, gain: float, natural: bool
) -> tuple[Callable[[Report], bool], Sequence[tf.Variable]]:
    """Return the training, which ends when it gains less, and the optimizer's variables."""
    q = (model.q_mu, model.q_sqrt)
    follow = gpflow.optimizers.NaturalGradient(NATURAL_STEP)
    if natural:
        for part in q:
            gpflow.set_trainable(part, False)
    variables = model.trainable_variables
    optimizer = tf_keras.optimizers.Adam(ADAM_RATE)
    optimizer.build(variables)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        if natural:
            follow.minimize(loss, [q])
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.minimize(value, variables, tape)
        return value

    def train(report: Report) -> bool:
        losses = []
        for number in range(1, limit + 1):
            value = step()
            if number % _BETWEEN == 0:
                losses.append(float(value))
                report(number)
                if number >= _ADAM_AT_LEAST:
                    _, early, late = map(np.mean, np.array_split(losses, 3))
                    if early - late < gain:
                        return True
        return False

    return train, optimizer.variables


if __name__ == "__main__":
    main()
