"""Optimizers that minimize a training loss, tell what they do and say how that ended."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gpflow
import tensorflow as tf
from gpflow.keras import tf_keras
from scipy.optimize import OptimizeResult

Report = Callable[[int, float], None]
"""Called after iterations with their number, from 1, and the last loss computed."""


@dataclass(frozen=True)
class Training:
    """How a training ended."""

    iterations: int
    """Iterations done."""

    seconds: float
    """Wall time, without tracing the graph and without the reports."""

    converged: bool
    """Whether the optimizer says that it has converged; Adam never says so."""

    message: str
    """The optimizer's own words."""


class Clock:
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

    def ended(self, converged: bool, message: str) -> Training:
        """Training has ended now."""
        return Training(self.iterations, time.perf_counter() - self._began, converged, message)


def lbfgs(loss: Callable[[], tf.Tensor], variables: Sequence[tf.Variable], maxiter: int, report: Report) -> Training:
    """SciPy's L-BFGS-B; when `report` is called the variables are at the iterate reported."""
    optimizer, clock = gpflow.optimizers.Scipy(), Clock(report)

    def callback(intermediate_result: OptimizeResult) -> None:  # SciPy goes by the argument's name
        iterate = tf.constant(intermediate_result.x, gpflow.default_float())
        optimizer.assign_tensors(variables, optimizer.unpack_tensors(variables, iterate))
        clock.tick(float(intermediate_result.fun))

    # GPflow keeps the traced graph for the closure, so that minimize finds it.
    optimizer.eval_func(loss, variables, tf_fun_args={})(optimizer.initial_parameters(variables))
    clock.start()
    result = optimizer.minimize(loss, variables, callback=callback, options={"maxiter": maxiter})
    return clock.ended(bool(result.success), str(result.message))


def adam(
    loss: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    steps: int,
    learning_rate: float,
    report: Report,
    before: Callable[[], None] = lambda: None,
) -> Training:
    """
    Steps of Adam.

    :param before: part of every step, compiled with it; what comes before the step proper.
    """
    optimizer, clock = tf_keras.optimizers.Adam(learning_rate), Clock(report)
    optimizer.build(variables)

    @tf.function
    def step() -> tf.Tensor:
        before()
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    step.get_concrete_function()
    clock.start()
    for _ in range(steps):
        clock.tick(float(step()))  # the loss before this step's update
    return clock.ended(False, f"{steps} steps of Adam, as asked")
