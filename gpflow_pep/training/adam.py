"""Adam, with natural gradients of q(u) if they apply; the state is in variables."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.keras import tf_keras
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel
from gpflow.optimizers import NaturalGradient

from ..runtime.devices import in_every_replica, scope_of
from ..runtime.tracing import compiled
from .coordinates import Coordinates
from .history import History, finite_loss
from .objectives import Objective
from .result import LIMIT, Outcome
from .starts import bring_within_reach


class Adam:
    """The Adam optimizer in scaled coordinates, with its state."""

    def __init__(
        self,
        objective: Objective,
        variables: Iterable[tf.Variable],
        rate: float,
        natural_step: float | None,
    ):
        """
        :param variables: the variables trained, of those of the objective.
        :param natural_step: natural gradient step size, if the objective is quadratic in q(u); None: use Adam only.
        :raises ValueError: if the model was not constructed in the scope of the strategy in which it is trained.
        """
        self._objective = objective
        self._q = None if natural_step is None else _quadratic_in(objective.model)
        self._natural = NaturalGradient(natural_step or 0.0)
        self._ids_of_q = {id(parameter.unconstrained_variable) for parameter in self._q or ()}
        trained = {id(each) for each in variables} - self._ids_of_q
        coordinates = Coordinates(objective.model, objective.variables).each
        self._coordinates = [each for each in coordinates if id(each.variable) in trained]
        with scope_of(objective.variables):
            self._optimizer = tf_keras.optimizers.Adam(rate)
            # Recomputed in each step.
            self._values = [tf.Variable(each.variable) for each in self._coordinates]
            self._optimizer.build(self._values)
            self._units = [tf.Variable(each.unit, trainable=False) for each in self._coordinates]
            for each, unit in zip(self._coordinates, self._units, strict=True):
                each.unit = unit  # a resumed run has the units of its first start
            self._changing = [*objective.variables, *self._optimizer.variables]
            self._good = [tf.Variable(variable, trainable=False) for variable in self._changing]
        self._step = compiled(self._apply)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """Variables besides the parameters that change from step to step, by name."""
        moments = {
            f"adam.{number}": variable for number, variable in enumerate(self._optimizer.variables)
        }
        moments |= {f"unit.{number}": variable for number, variable in enumerate(self._units)}
        return moments | {f"good.{number}": variable for number, variable in enumerate(self._good)}

    def __call__(self, history: History) -> Outcome:
        """Take steps until training is over."""
        losses: list[float] = []
        if history.iterations == 0:
            bring_within_reach(self._objective.model, lambda: self._objective.probe(0)[0])
        while not history.is_over:
            loss, gradient = self._objective.evaluate(history.iterations)
            with scope_of(self._objective.variables):
                self._step(tf.constant(loss), gradient)
            losses.append(loss)
            if history.will_record:
                history.step(self._objective.recorded(losses))
                losses = []
            else:
                history.step(None)
        # The parameters after the last step have not been checked yet.
        loss, gradient = self._objective.probe(history.iterations)
        finite_loss(tf.constant(loss), gradient)
        return history.stopped or Outcome(
            LIMIT, f"Adam: max_iterations={history.iterations} was reached."
        )

    def restore(self) -> None:
        """Assign the last good values to the parameters and the state."""
        for good, variable in zip(self._good, self._changing, strict=True):
            variable.assign(good)

    def _apply(self, loss: tf.Tensor, gradient: list[tf.Tensor]) -> None:
        """Take a step; the previous parameters become the last good parameters if loss and gradient are finite."""
        pairs = list(zip(gradient, self._objective.variables, strict=True))
        with tf.control_dependencies([finite_loss(loss, gradient)]):
            saved = [
                good.assign(variable)
                for good, variable in zip(self._good, self._changing, strict=True)
            ]
        with tf.control_dependencies(saved):
            if (q := self._q) is not None:
                of_q = [pair for pair in pairs if id(pair[1]) in self._ids_of_q]

                def linear() -> tf.Tensor:  # linear in q(u), with the gradient already computed
                    return sum(tf.reduce_sum(derivative * value) for derivative, value in of_q)

                in_every_replica(lambda: self._natural.minimize(linear, [q]))
            derivatives = {id(variable): derivative for derivative, variable in pairs}
            steps = []
            for each, value in zip(self._coordinates, self._values, strict=True):
                value.assign(each.of(each.variable, tf.math))
                steps.append((derivatives[id(each.variable)] * each.slope(value, tf.math), value))
            # The gradient is already summed over the rows of all workers.
            in_every_replica(
                lambda: self._optimizer.apply_gradients(steps, skip_gradients_aggregation=True)
            )
            for each, value in zip(self._coordinates, self._values, strict=True):
                each.variable.assign(each.inverse(value, tf.math))


def _quadratic_in(model: GPModel) -> tuple[Parameter, Parameter] | None:
    """Return q_mu and q_sqrt if natural gradients apply: both trainable, q_sqrt full, a Gaussian likelihood."""
    q: list[Any] = [getattr(model, name, None) for name in ("q_mu", "q_sqrt")]
    trained = all(isinstance(parameter, Parameter) and parameter.trainable for parameter in q)
    if not trained or q[1].shape.rank != 3 or not isinstance(model.likelihood, Gaussian):
        return None
    return q[0], q[1]
