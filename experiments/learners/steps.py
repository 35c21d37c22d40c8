"""A few steps of an optimizer after every batch, with a graph that is traced once."""

from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.keras import tf_keras
from scipy.optimize import minimize

Loss = Callable[[], tf.Tensor]

_COMPILED = {"autograph": False}  # there is nothing to convert, and looking for it takes most of a minute


class LBFGS:
    """SciPy's L-BFGS-B; a step so long that a matrix cannot be factorized makes its line search take a shorter one."""

    def __init__(self, loss: Loss, variables: Sequence[tf.Variable], evaluations: int):
        """
        :param loss: the same closure for every batch, of data in variables.
        :param evaluations: of the loss and its gradient in a call, about as many at most.
        """
        self._optimizer = gpflow.optimizers.Scipy()  # keeps the graph
        self._loss, self._variables, self._evaluations = loss, tuple(variables), evaluations
        self.failures = 0
        self._evaluate(np.asarray(self._optimizer.initial_parameters(self._variables)))  # traces

    def __call__(self, evaluations: int | None = None) -> None:
        """
        Minimize the loss; the variables end where it was least.

        :raises tf.errors.InvalidArgumentError: where the loss cannot be computed where they are.
        """
        if not self._variables:
            return
        limit = self._evaluations if evaluations is None else evaluations
        least, best = np.inf, np.asarray(self._optimizer.initial_parameters(self._variables))

        def evaluate(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            nonlocal least, best
            try:
                value, gradient = self._evaluate(x)
            except tf.errors.InvalidArgumentError:
                if not np.isfinite(least):
                    raise
                self.failures += 1
                return least + 1.0 + abs(least), np.zeros_like(x)
            if value < least:
                least, best = value, x.copy()
            return value, gradient

        minimize(evaluate, best, jac=True, method="L-BFGS-B", options={"maxiter": limit, "maxfun": limit})
        values = self._optimizer.unpack_tensors(self._variables, tf.constant(best))
        self._optimizer.assign_tensors(self._variables, values)

    def _evaluate(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        value, gradient = self._optimizer.eval_func(self._loss, self._variables, tf_fun_args=_COMPILED)(x)
        return float(value), gradient


class Adam:
    """Steps of Adam, whose averages go on from batch to batch."""

    failures = 0

    def __init__(self, loss: Loss, variables: Sequence[tf.Variable], steps: int, learning_rate: float):
        """
        :param loss: the same closure for every batch, of data in variables.
        :param steps: in a call.
        """
        self._steps = steps
        optimizer = tf_keras.optimizers.Adam(learning_rate)
        optimizer.build(list(variables))

        @tf.function(autograph=False)
        def step() -> None:
            with tf.GradientTape() as tape:
                value = loss()
            optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

        step.get_concrete_function()
        self._step = step

    def __call__(self, steps: int | None = None) -> None:
        """As many steps as asked for."""
        for _ in range(self._steps if steps is None else steps):
            self._step()


Steps = LBFGS | Adam


def steps(
    optimizer: str, loss: Loss, variables: Sequence[tf.Variable], *, evaluations: int, learning_rate: float
) -> Steps:
    """
    The optimizer that a configuration asks for.

    :raises ValueError: where there is none of that name.
    """
    if optimizer == "lbfgs":
        return LBFGS(loss, variables, evaluations)
    if optimizer == "adam":
        return Adam(loss, variables, evaluations, learning_rate)
    raise ValueError(f"optimizer is {optimizer!r}; accepted are lbfgs, adam.")
