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

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax

from experiments import datasets
from experiments.benchmarks.machine import in_process, machine
from experiments.benchmarks.printing import Table, parser_of, write
from experiments.benchmarks.trajectory import Over, Trajectory, assign, settled
from experiments.ingredients.initialization import cluster_centers, median_distance
from experiments.protocols.arguments import count
from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Probit
from gpflow_pep.softmax.integrals import softmax_power
from gpflow_pep.training import fit

BINARY = ("banana", "pima", "iono", "breast-cancer", "usps-3-5")
MULTICLASS = ("iris", "three-classes", "vehicle")
METHODS = ("PEP 0", "PEP 0.5", "PEP 1", "SVGP L-BFGS", "SVGP Adam", "SVGP natural")
LIKELIHOODS = ("robust-max", "softmax")
CLOSE = 0.002  # nats
INDUCING, ADAM_RATE, NATURAL_STEP = 50, 0.01, 0.1
_LBFGS, _ADAM, _SECONDS = 2000, 20_000, 300  # limits, in iterations and in CPU seconds
_SHORT = (15, 150, 20)
_HELD_OUT = 1000  # largest number of rows
_BETWEEN = 10  # steps of Adam between records
_FLAT_ITERATIONS, _FLAT_GAIN = 20, 1e-3  # of SVGP's L-BFGS; nats
# Adam has converged: nats a row in the last third of its steps; fewest steps.
_GAIN, _ADAM_AT_LEAST = (
    1e-4,
    1000,
)


@dataclass(frozen=True)
class Case:
    """Data set, likelihood and limits of training."""

    data: str
    likelihood: str
    short: bool

    @property
    def limits(self) -> tuple[int, int, int]:
        """Iterations of L-BFGS, steps of Adam, CPU seconds."""
        return _SHORT if self.short else (_LBFGS, _ADAM, _SECONDS)


Report = Callable[[int], None]


@dataclass(frozen=True)
class Trainee:
    """A model that can be trained more than once."""

    model: gpflow.models.GPModel
    recorded: Sequence[tf.Variable]
    """Variables that its predictions depend on."""
    others: Sequence[tf.Variable]
    """Other variables that change in training."""
    train: Callable[[Report], bool]
    """Train and report every iteration; return True if converged."""
    objective: Callable[[], float] | None = None
    """Objective at the present parameters, if the training itself does not end when it is flat."""


def main() -> None:
    """Print a table for each set and likelihood."""
    asked = _parser().parse_args()
    found: dict[str, Any] = {"machine": machine(), "results": []}
    print(
        f"{found['machine']}\nM = {INDUCING}, {asked.rounds} "
        f"rounds{', short' if asked.short else ''}"
    )
    tables = []
    for name in asked.sets:
        try:
            data = datasets.load(name)
        except OSError as error:  # no network, or not the published file
            print(f"\n{name} is left out: {error}")
            continue
        for likelihood in asked.likelihoods if name in MULTICLASS else ["probit"]:
            N, D = data.X_train.shape
            title = (
                f"{name}, {likelihood}: N = {N}, D = {D}, {min(len(data.X_test), _HELD_OUT)} "
                "held-out rows"
            )
            case = Case(name, likelihood, asked.short)
            results = [_rounds(case, method, asked.rounds) for method in asked.methods]
            tables.append(_table(title, asked.methods, results))
            for method, result in zip(asked.methods, results, strict=True):
                found["results"].append(
                    {"set": name, "likelihood": likelihood, "method": method, **result}
                )
            if asked.courses is not None:
                asked.courses.write_text(json.dumps(found, indent=1))
    write(tables, asked.json)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    known = (*datasets.names(task="classification"), *datasets.names(task="multiclass"))
    parser.add_argument(
        "--sets", nargs="+", choices=known, metavar="SET", default=[*BINARY, *MULTICLASS]
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument(
        "--likelihoods",
        nargs="+",
        choices=LIKELIHOODS,
        default=LIKELIHOODS,
        help="likelihoods for several classes",
    )
    parser.add_argument(
        "--rounds", type=count, default=1, help="processes for each method (%(default)s)"
    )
    parser.add_argument(
        "--short", action="store_true", help="a few iterations, to see that everything works"
    )
    parser.add_argument(
        "--courses", type=Path, help="write seconds and NLPD of every record to this file"
    )
    return parser


def _rounds(case: Case, method: str, rounds: int) -> dict[str, Any]:
    """
    Return the results of a method's processes with medians of their seconds, or the error of the
    training.
    """
    found = [in_process(measure, case, method, one_core=True) for _ in range(rounds)]
    failed = [each for each in found if "error" in each]
    if failed:
        return failed[0]
    medians = {
        key: np.median([each[key] for each in found], axis=0).tolist()
        for key in ("cold", "warm", "end")
    }
    return {**found[0], **medians}


# --- one method, in a process of its own ----------------------------------------------------------


def measure(case: Case, method: str) -> dict[str, Any]:
    """
    Train to the end, find the first record with the final predictions, and train up to it once
    more.
    """
    data = datasets.load(case.data)
    X, Y = data.X_train, data.Y_train
    Z = cluster_centers(X, min(INDUCING, len(X)), 0)
    lengthscale = median_distance(X, 0)
    course = Trajectory(max_seconds=case.limits[2])
    trainee = _trainee(case, method, X, Y, Z, lengthscale)
    trained = [*trainee.recorded, *trainee.others]
    start = [variable.numpy() for variable in trained]
    try:
        converged = _run(trainee, course)
    except (tf.errors.InvalidArgumentError, FloatingPointError) as error:
        after = course.iterations[-1] if course.iterations else 0
        return {"error": f"fails after iteration {after}: {type(error).__name__}"}
    if trainee.objective is not None:
        objective = course.scores(trainee.recorded, trainee.objective)
        converged |= course.end_where_flat(objective, _FLAT_ITERATIONS, _FLAT_GAIN)
    nlpd = course.scores(
        trainee.recorded, _score(trainee.model, data.X_test[:_HELD_OUT], data.Y_test[:_HELD_OUT])
    )
    reached = settled(nlpd, CLOSE)
    assign(trained, start)
    again = Trajectory(max_iterations=course.iterations[reached])
    _run(trainee, again)
    return {
        "nlpd": nlpd[-1],
        "best": nlpd.min(),
        "converged": converged,
        "iterations": [course.iterations[reached], course.iterations[-1]],
        "cold": course.seconds[reached].tolist(),  # CPU and wall
        "warm": again.seconds[-1].tolist(),
        "end": course.seconds[-1].tolist(),
        "trajectory": {
            "iterations": course.iterations,
            "seconds": [seconds.tolist() for seconds in course.seconds],
            "nlpd": nlpd.tolist(),
        },
    }


def _run(trainee: Trainee, course: Trajectory) -> bool:
    """Train until the course ends; return True if the training converged."""
    done = 0

    def report(iteration: int) -> None:
        nonlocal done
        done = iteration
        course.record(iteration, trainee.recorded)

    try:
        converged = trainee.train(report)
    except Over:
        return False
    course.record(done, trainee.recorded, last=True)
    return converged


def _score(model: gpflow.models.GPModel, X: Any, Y: Any) -> Callable[[], float]:
    """Return the NLPD of held-out rows; for a softmax, which GPflow samples, by quadrature."""

    def density() -> tf.Tensor:
        if not isinstance(model.likelihood, Softmax):
            return tf.reduce_mean(model.predict_log_density((X, Y)))
        mean, variance = (tf.transpose(each) for each in model.predict_f(X))  # [C, n]
        labels = tf.constant(Y[:, 0].astype(np.int32))
        return tf.reduce_mean(
            softmax_power(labels, mean, variance, tf.constant(1.0, mean.dtype)).log_normalizer
        )

    compiled = tf.function(density, autograph=False)
    return lambda: -float(compiled())


# --- methods --------------------------------------------------------------------------------------


def _trainee(case: Case, method: str, X: Any, Y: Any, Z: Any, lengthscale: float) -> Trainee:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], lengthscale))
    name, _, how = method.partition(" ")
    C = int(Y.max()) + 1
    if name == "PEP":
        model = PEP((X, Y), kernel, _likelihood(case.likelihood, C, ours=True), Z, alpha=float(how))
        recorded = [*model.trainable_variables, model.sites.precision, model.sites.linear]

        def train(report: Report) -> bool:
            return fit(
                model, max_iterations=case.limits[0], callback=lambda step, objective: report(step)
            ).converged

        return Trainee(model, recorded, [], train)
    likelihood = _likelihood(case.likelihood, C, ours=False)
    model = gpflow.models.SVGP(
        kernel, likelihood, Z, num_data=len(X), num_latent_gps=1 if C == 2 else C
    )
    # GPflow's softmax takes whole numbers only.
    data = tf.constant(X), tf.constant(Y.astype(np.int64) if isinstance(likelihood, Softmax) else Y)
    if how == "L-BFGS":
        return _lbfgs(model, data, case.limits[0])
    return _adam(model, data, case.limits[1], NATURAL_STEP if how == "natural" else None)


def _likelihood(name: str, C: int, *, ours: bool) -> Likelihood:
    """
    Return a likelihood of this library, or GPflow's counterpart, without trainable parameters.
    """
    if name == "probit":
        return Probit() if ours else Bernoulli()
    if name == "softmax":
        return Softmax(C)
    likelihood = MultiClassRobustMax(C) if ours else MultiClass(C)
    gpflow.set_trainable(likelihood, False)
    return likelihood


def _lbfgs(model: gpflow.models.SVGP, data: tuple[tf.Tensor, tf.Tensor], limit: int) -> Trainee:
    optimizer, variables = gpflow.optimizers.Scipy(), model.trainable_variables
    loss = model.training_loss_closure(data, compile=False)  # Scipy compiles, once

    def train(report: Report) -> bool:
        def callback(
            step: int, variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]
        ) -> None:
            assign(variables, values)
            report(step + 1)

        options = {"maxiter": limit, "maxfun": 4 * limit}
        compiled = {"autograph": False}  # nothing to convert
        found = optimizer.minimize(
            loss, variables, step_callback=callback, tf_fun_args=compiled, options=options
        )
        return bool(found.success)

    compiled_loss = tf.function(loss, autograph=False)
    return Trainee(model, variables, [], train, lambda: -float(compiled_loss()))


def _adam(
    model: gpflow.models.SVGP,
    data: tuple[tf.Tensor, tf.Tensor],
    limit: int,
    natural_step: float | None,
) -> Trainee:
    loss = model.training_loss_closure(data, compile=False)
    recorded = model.trainable_variables
    q = (model.q_mu, model.q_sqrt)
    of_q = {parameter.unconstrained_variable.ref() for parameter in q}
    variables = [each for each in recorded if natural_step is None or each.ref() not in of_q]
    natural = None if natural_step is None else gpflow.optimizers.NaturalGradient(natural_step)
    optimizer = tf_keras.optimizers.Adam(ADAM_RATE)
    optimizer.build(variables)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        if natural is not None:
            natural.minimize(loss, [q])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    def train(report: Report) -> bool:
        losses = []
        for number in range(1, limit + 1):
            value = step()
            if number % _BETWEEN == 0:
                losses.append(float(value))
                report(number)
                early, late = (
                    np.array_split(losses, 3)[1:] if number >= _ADAM_AT_LEAST else ([np.inf], [0.0])
                )
                if np.mean(early) - np.mean(late) < _GAIN * len(data[0]):
                    return True
        return False

    return Trainee(model, recorded, optimizer.variables, train)


# --- the table ------------------------------------------------------------------------------------


def _table(title: str, methods: Sequence[str], results: Sequence[dict[str, Any]]) -> Table:
    """
    Return the table: ratios of CPU seconds to the fastest SVGP's; the last column has errors of
    failed training.
    """
    peers = [
        result for name, result in zip(methods, results, strict=True) if name.startswith("SVGP")
    ]
    best = {
        key: min((result[key][0] for result in peers if "error" not in result), default=np.nan)
        for key in ("cold", "warm")
    }
    seconds = {"CPU s": ".2f", "wall s": ".2f", "ratio": ".2f"}
    again = {f"{name}, again": form for name, form in seconds.items()}
    end = {"s to the end": ".1f", "iterations to the end": "d", "converged": "<", "error": "<"}
    columns = {"method": "<13", "NLPD": ".4f", "iterations": "d", **seconds, **again, **end}
    table = Table(title, columns)
    for method, result in zip(methods, results, strict=True):
        if "error" in result:
            table.add(method, *[None] * (len(columns) - 2), result["error"])
            continue
        times = ((*result[key], result[key][0] / best[key]) for key in ("cold", "warm"))
        first, last = result["iterations"]
        converged = "yes" if result["converged"] else "no"
        table.add(
            method, result["nlpd"], first, *chain(*times), result["end"][0], last, converged, None
        )
    return table


if __name__ == "__main__":
    main()
