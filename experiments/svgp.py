"""Trains models with a q(u) of their own: GPflow's SVGP and the models with tied factors."""

import gpflow
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.utilities import set_trainable

from experiments.optimisers import Report, Training, adam, lbfgs
from gpflow_pep.models.tied import TiedFactors

ExternalModel = gpflow.models.SVGP | TiedFactors

_GAMMA = 0.1  # step length of the natural gradient


def train_svgp(
    model: ExternalModel,
    data: RegressionData,
    report: Report,
    *,
    optimiser: str,
    maxiter: int,
    learning_rate: float,
    batch_size: int | None,
    seed: int,
) -> Training:
    """
    Maximise the objective: "lbfgs" over q(u) and the hyperparameters alike; "adam" over the hyperparameters, with a
    step along the natural gradient of q(u) before each of Adam's, both from the same minibatch if a size is given.
    """
    if optimiser == "lbfgs":
        return lbfgs(model.training_loss_closure(data, compile=False), model.trainable_variables, maxiter, report)
    for parameter in (model.q_mu, model.q_sqrt):  # Adam's are the others
        set_trainable(parameter, False)
    natural = gpflow.optimizers.NaturalGradient(gamma=_GAMMA)
    batch = _Batch(data, batch_size, seed)

    def loss() -> tf.Tensor:
        return model.training_loss(batch.current())

    def before() -> None:
        batch.draw()
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])

    return adam(loss, model.trainable_variables, maxiter, learning_rate, report, before)


class _Batch:
    """Rows of the data, some other ones after each draw; all of them without a size."""

    def __init__(self, data: RegressionData, size: int | None, seed: int):
        self._data = tuple(tf.constant(part, gpflow.default_float()) for part in data)
        N = len(data[0])
        self._rows = None if size is None else tf.Variable(tf.range(min(size, N)), trainable=False)
        self._num_data, self._generator = N, tf.random.Generator.from_seed(seed)

    def draw(self) -> None:
        if self._rows is not None:
            order = tf.argsort(self._generator.uniform([self._num_data]))
            self._rows.assign(order[: tf.size(self._rows)])

    def current(self) -> RegressionData:
        if self._rows is None:
            return self._data
        return tuple(tf.gather(part, self._rows) for part in self._data)
