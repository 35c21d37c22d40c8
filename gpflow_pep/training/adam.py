"""Adam, with natural gradients of q(u) if they apply; the state is in variables."""

from collections.abc import Iterable

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.keras import tf_keras
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel
from gpflow.optimizers import NaturalGradient

from ..runtime import assign_all, compiled, in_every_replica, scope_of
from .coordinates import Coordinates
from .history import History, finite_loss, numbered
from .objectives import Objective
from .result import LIMIT, Outcome
from .starts import bring_within_reach


class Adam:
    """The Adam optimizer in scaled coordinates, with its state."""

    def __init__(self, objective: Objective, history: History, variables: Iterable[tf.Variable]):
        """
        :param variables: the variables of the objective that are trained.
        :raises ValueError: if the model was not constructed in the scope of the strategy in which
            it is trained.
        """
        options = history.options
        self._objective = objective
        self._history = history
        self._q: list[tuple[Parameter, Parameter]] = []
        if options.natural_step is not None:
            self._q = _quadratic_in(objective.model)
            self._natural = NaturalGradient(options.natural_step)
        self._of_q = [each.unconstrained_variable for pair in self._q for each in pair]
        trained = set(map(id, variables)) - set(map(id, self._of_q))
        coordinates = Coordinates(objective.model, objective.variables).each
        self._coordinates = [each for each in coordinates if id(each.variable) in trained]
        with scope_of(objective.variables):
            self._optimizer = tf_keras.optimizers.Adam(options.learning_rate)
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
        return (
            self._objective.state
            | numbered("adam", self._optimizer.variables)
            | numbered("unit", self._units)
            | numbered("good", self._good)
        )

    def __call__(self) -> Outcome:
        """Take steps until training is over."""
        history = self._history
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
        assign_all(self._changing, self._good)

    def _apply(self, loss: tf.Tensor, gradient: list[tf.Tensor]) -> None:
        """Take a step; if loss and gradient are finite, record the previous parameters as good."""
        derivatives = dict(zip(map(id, self._objective.variables), gradient, strict=True))
        with tf.control_dependencies([finite_loss(loss, gradient)]):
            saved = [
                good.assign(variable)
                for good, variable in zip(self._good, self._changing, strict=True)
            ]
        with tf.control_dependencies(saved):
            if self._q:

                def linear() -> tf.Tensor:  # linear in q(u), with the gradient already computed
                    return sum(tf.reduce_sum(derivatives[id(each)] * each) for each in self._of_q)

                in_every_replica(lambda: self._natural.minimize(linear, self._q))
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


def _quadratic_in(model: GPModel) -> list[tuple[Parameter, Parameter]]:
    """Return q_mu and a full q_sqrt, if both are trainable and the likelihood is Gaussian."""
    parameters = [getattr(model, name, None) for name in ("q_mu", "q_sqrt")]
    trained = all(isinstance(each, Parameter) and each.trainable for each in parameters)
    if trained and model.q_sqrt.shape.rank == 3 and isinstance(model.likelihood, Gaussian):
        return [(model.q_mu, model.q_sqrt)]
    return []
