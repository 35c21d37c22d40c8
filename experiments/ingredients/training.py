"""The training ingredient: minimises a model's training loss and says how that ended."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import tensorflow as tf
from gpflow.keras import tf_keras
from sacred import Ingredient
from scipy.optimize import OptimizeResult

from experiments.recording import SAVE_GIT_INFO

training = Ingredient("training", save_git_info=SAVE_GIT_INFO)

Report = Callable[[int, float], None]
"""Called after every iteration with its number, from 1, and the last loss computed."""


@dataclass(frozen=True)
class Training:
    """How a training ended."""

    iterations: int
    """Iterations done."""

    seconds: float
    """Wall time, without tracing the graph and without the reports."""

    converged: bool
    """Whether the optimiser says that it has converged; Adam never says so."""

    message: str
    """The optimiser's own words."""


@training.config
def _config() -> None:
    # scipy (L-BFGS on the full data) or adam
    optimiser = "scipy"

    # iterations: L-BFGS does at most that many, Adam exactly
    maxiter = 500

    # Adam's learning rate
    learning_rate = 0.01

    # iterations from one entry in the logs to the next
    log_interval = 10


@training.capture
def train(model: gpflow.models.GPModel, report: Report, optimiser: str, maxiter: int, learning_rate: float) -> Training:
    """
    Minimise the training loss over the trainable variables, which are left at the last iterate.

    :param report: see :data:`Report`; when it is called the model is at the iterate reported.
    :raises FloatingPointError: where the loss is not finite.
    :raises tf.errors.InvalidArgumentError: where a matrix cannot be factorised.
    """
    clock = _Clock(report)
    if optimiser == "scipy":
        converged, message = _lbfgs(model, maxiter, clock)
    elif optimiser == "adam":
        converged, message = _adam(model, maxiter, learning_rate, clock)
    else:
        raise ValueError(f"optimiser is {optimiser!r}; accepted are scipy, adam.")
    return Training(clock.iterations, clock.seconds(), converged, message)


@training.capture
def is_logged(iteration: int, log_interval: int) -> bool:
    """Whether the logs get an entry after this iteration."""
    return iteration % log_interval == 0


class _Clock:
    """Counts iterations, and the time they take without the reports in between."""

    def __init__(self, report: Report):
        self.iterations = 0
        self._report = report
        self.start()

    def start(self) -> None:
        """Training starts, or starts over: the graph has been traced."""
        self._began = time.perf_counter()

    def tick(self, loss: float) -> None:
        """One iteration is done."""
        if not math.isfinite(loss):
            raise FloatingPointError(f"the training loss is {loss} after iteration {self.iterations + 1}.")
        self.iterations += 1
        began = time.perf_counter()
        self._report(self.iterations, loss)
        self._began += time.perf_counter() - began

    def seconds(self) -> float:
        return time.perf_counter() - self._began


def _lbfgs(model: gpflow.models.GPModel, maxiter: int, clock: _Clock) -> tuple[bool, str]:
    optimiser = gpflow.optimizers.Scipy()
    variables = model.trainable_variables

    def callback(intermediate_result: OptimizeResult) -> None:  # SciPy goes by the argument's name
        iterate = tf.constant(intermediate_result.x, gpflow.default_float())
        optimiser.assign_tensors(variables, optimiser.unpack_tensors(variables, iterate))
        clock.tick(float(intermediate_result.fun))

    closure = model.training_loss_closure(compile=False)
    # GPflow keeps the traced graph for the closure, so that minimize finds it.
    optimiser.eval_func(closure, variables, tf_fun_args={})(optimiser.initial_parameters(variables))
    clock.start()
    result = optimiser.minimize(closure, variables, callback=callback, options={"maxiter": maxiter})
    return bool(result.success), str(result.message)


def _adam(model: gpflow.models.GPModel, maxiter: int, learning_rate: float, clock: _Clock) -> tuple[bool, str]:
    optimiser = tf_keras.optimizers.Adam(learning_rate)
    variables = model.trainable_variables
    optimiser.build(variables)
    closure = model.training_loss_closure(compile=False)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = closure()
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    step.get_concrete_function()
    clock.start()
    for _ in range(maxiter):
        clock.tick(float(step()))  # the loss before this step's update
    return False, f"{maxiter} steps of Adam, as asked"
