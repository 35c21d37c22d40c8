"""Trains models with a q(u) of their own: GPflow's SVGP, the models with tied factors, the tighter bounds."""

from collections.abc import Sequence

import gpflow
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.utilities import set_trainable

from experiments.ingredients.optimizers import Report, Training, adam, lbfgs
from gpflow_pep import BTSVGP
from gpflow_pep.minibatches import Minibatches
from gpflow_pep.models.structured_svgp import StructuredSVGP
from gpflow_pep.models.tied import TiedFactors

ExternalModel = gpflow.models.SVGP | TiedFactors
StochasticRegression = gpflow.models.SVGP | StructuredSVGP

_CHUNK = 10_000  # rows


def train_svgp(
    model: ExternalModel,
    data: RegressionData,
    report: Report,
    *,
    optimizer: str,
    maxiter: int,
    learning_rate: float,
    batch_size: int | None,
    natural_step: float | None,
    seed: int,
) -> Training:
    """
    Maximize the objective: "lbfgs" over q(u) and the hyperparameters alike; "adam" over the hyperparameters, with a
    step of this length along the natural gradient of q(u) before each of Adam's, both from the same minibatch if a size
    is given; without a length over q(u) and the hyperparameters alike.
    """
    if optimizer == "lbfgs":
        return lbfgs(model.training_loss_closure(data, compile=False), model.trainable_variables, maxiter, report)
    batch = _Batch(data, batch_size, seed)

    def loss() -> tf.Tensor:
        return model.training_loss(batch.current())

    if natural_step is None:
        return adam(loss, model.trainable_variables, maxiter, learning_rate, report, batch.draw)
    for parameter in (model.q_mu, model.q_sqrt):  # Adam's are the others
        set_trainable(parameter, False)
    natural = gpflow.optimizers.NaturalGradient(gamma=natural_step)

    def before() -> None:
        batch.draw()
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])

    return adam(loss, model.trainable_variables, maxiter, learning_rate, report, before)


def minibatches(model: StochasticRegression, num_data: int, size: int, seed: int) -> Minibatches:
    """Those of a regression model: fixed where they are blocks of its bound, in a new order every epoch elsewhere."""
    return Minibatches(num_data, min(size, num_data), fixed=isinstance(model, BTSVGP), seed=seed)


def objective(
    model: ExternalModel | StructuredSVGP, data: RegressionData, blocks: Sequence[AnyNDArray] | None = None
) -> float:
    """
    The objective of all rows: it is the mean of the estimates that parts give, by their sizes, at less memory.

    :param blocks: rows of each part, where it matters what they are.
    """
    X, Y = data
    N = len(X)
    estimate = tf.function(model.maximum_log_likelihood_objective, autograph=False, reduce_retracing=True)
    parts = blocks or [slice(start, start + _CHUNK) for start in range(0, N, _CHUNK)]
    return sum(float(estimate((X[part], Y[part]))) * len(X[part]) / N for part in parts)


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
