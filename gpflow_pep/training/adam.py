"""Adam steps, with natural gradients of q(u) if they apply; all state is in variables."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.keras import tf_keras
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel
from gpflow.optimizers import NaturalGradient

from ..runtime.devices import in_every_replica, scope_of
from ..runtime.tracing import compiled
from .history import History, check_finite, restore_on_failure
from .objectives import Objective
from .result import CONVERGED, FAILED, LIMIT, Outcome


class Adam:
    """The Adam optimizer: its steps and its state."""

    def __init__(self, objective: Objective, learning_rate: float, natural_step: float | None):
        """
        :param natural_step: natural gradient step size, if the objective is quadratic in q(u); None: use Adam only.
        :raises ValueError: if the model was not constructed in the scope of the strategy in which it is trained.
        """
        self._objective = objective
        self._q = _quadratic_in(objective.model) if natural_step is not None else None
        self._natural = NaturalGradient(natural_step or 0.0)
        of_q = [] if self._q is None else [parameter.unconstrained_variable for parameter in self._q]
        self._is_of_q = [any(variable is other for other in of_q) for variable in objective.variables]
        with scope_of(objective.variables):
            self._optimizer = tf_keras.optimizers.Adam(learning_rate)
            self._optimizer.build([v for v, of_q in zip(objective.variables, self._is_of_q, strict=True) if not of_q])
            self._changing = [*objective.variables, *self._optimizer.variables]
            self._good = [tf.Variable(variable, trainable=False) for variable in self._changing]
        self._step = compiled(self._apply)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """Variables that change from step to step, other than the parameters, by name."""
        moments = {f"adam.{number}": variable for number, variable in enumerate(self._optimizer.variables)}
        return moments | {f"good.{number}": variable for number, variable in enumerate(self._good)}

    def __call__(self, history: History) -> Outcome:
        """Take steps until training is over."""
        if not self._objective.variables:
            return Outcome(CONVERGED, "Nothing is trainable.")
        losses: list[float] = []
        with restore_on_failure(self._objective, history, self._restore) as failure:
            while not history.is_over:
                loss, gradient = self._objective.evaluate(history.iterations)
                with scope_of(self._objective.variables):
                    self._step(tf.constant(0.0 if loss is None else loss), gradient)
                losses += [] if loss is None else [loss]
                if history.will_record:
                    history.step(self._objective.recorded(losses))
                    losses = []
                else:
                    history.step(None)
            self._check(history.iterations)  # the result of the last step has not been checked yet
            reason = f"Adam: {history.iterations} steps, as asked."
            if history.is_interrupted:
                return history.interrupted
            return history.early_stop if history.is_over_early else Outcome(LIMIT, reason)
        history.discard_last()
        return Outcome(FAILED, failure[0])

    def _apply(self, loss: tf.Tensor, gradient: list[tf.Tensor]) -> None:
        """Take a step. The parameters before it are recorded as good if loss and gradient are finite."""
        pairs = list(zip(gradient, self._objective.variables, strict=True))
        with tf.control_dependencies(check_finite(loss, *gradient)):
            kept = [good.assign(variable) for good, variable in zip(self._good, self._changing, strict=True)]
        with tf.control_dependencies(kept):
            parts = list(zip(pairs, self._is_of_q, strict=True))
            if self._q is not None:
                of_q = [pair for pair, is_of_q in parts if is_of_q]
                in_every_replica(partial(self._apply_to_q, self._q, of_q))
            others = [pair for pair, is_of_q in parts if not is_of_q]
            # The gradient is that of all rows already, where several workers have them.
            in_every_replica(lambda: self._optimizer.apply_gradients(others, skip_gradients_aggregation=True))

    def _apply_to_q(self, q: tuple[Parameter, Parameter], gradient: list[tuple[tf.Tensor, tf.Variable]]) -> None:
        # A linear function of q(u) with these derivatives, so that they are not computed twice.
        self._natural.minimize(lambda: sum(tf.reduce_sum(derivative * value) for derivative, value in gradient), [q])

    def _check(self, step: int) -> None:
        """Raise an error if loss or gradient is not finite at the parameters."""
        loss, gradient = self._objective.probe(step)
        check_finite(tf.constant(0.0 if loss is None else loss), *gradient)

    def _restore(self) -> None:
        for good, variable in zip(self._good, self._changing, strict=True):
            variable.assign(good)


def _quadratic_in(model: GPModel) -> tuple[Parameter, Parameter] | None:
    """Return q_mu and q_sqrt if natural gradients apply: both trainable, q_sqrt full, a Gaussian likelihood."""
    q: Sequence[Any] = (getattr(model, "q_mu", None), getattr(model, "q_sqrt", None))
    trained = all(isinstance(parameter, Parameter) and parameter.trainable for parameter in q)
    if not trained or q[1].shape.rank != 3 or not isinstance(model.likelihood, Gaussian):
        return None
    return q[0], q[1]
