"""What is minimised: a training loss at the present parameters, and how it is evaluated for each kind of model."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel
from typing_extensions import override

from .. import validation
from ..derivatives import derivatives
from ..graphs import compiled
from ..minibatches import Minibatches
from ..models.classifier import PEPClassifier
from ..sites import SitesStatus

Evaluation = tuple[float | None, list[tf.Tensor]]
"""The loss, if it is known, and its derivatives in the trainable variables."""

FAILURES = (tf.errors.InvalidArgumentError, FloatingPointError)
"""What an evaluation raises where a matrix cannot be factorised or a value is not finite."""

# Change of the sites above which an energy means nothing (it may be huge), or one that is a bound is rounding.
_UNSETTLED, _WILD = 0.1, 100.0
_PATIENCE = 10  # times as many sweeps at the first evaluation, which has nothing to go back to


def rows_for(model: GPModel, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """
    X [N, D] and Y [N, P] as a model that is given data takes them.

    :raises ValueError: where they are no regression data.
    """
    X, Y = validation.regression_data(data)
    # GPflow's softmax takes whole numbers only; the models here take them too.
    return X, Y.astype(np.int64) if isinstance(model.likelihood, Softmax) else Y


class Problem:
    """A training loss of all rows, which are the model's or given."""

    def __init__(self, model: GPModel, data: RegressionData | None = None):
        self.model, self.variables = model, list(model.trainable_variables)
        arguments = () if data is None else (tuple(tf.constant(values) for values in data),)
        self._closure: Callable[..., tf.Tensor] = lambda: model.training_loss(*arguments)
        self._compiled = compiled(self._loss_and_derivatives)

    @property
    def interval(self) -> int:
        """Steps between records, or a divisor of that."""
        return 1

    @property
    def carried(self) -> dict[str, tf.Variable]:
        """What goes with the parameters from step to step."""
        return {}

    def evaluate(self, step: int) -> Evaluation:
        """
        At the present parameters, for the step of this number, from 0.

        :raises FAILURES: where that is not possible.
        """
        loss, slopes = self._compiled()
        return float(loss), slopes

    def look(self, step: int) -> Evaluation:
        """The same, but nothing changes."""
        return self.evaluate(step)

    def keep(self) -> None:
        """The present parameters are the best so far."""

    def go_back(self) -> None:
        """The best parameters come back."""

    def start_over(self) -> None:
        """Parameters come back that nothing is known for."""

    def objective(self, losses: list[float]) -> float:
        """What is recorded after steps that had these losses."""
        return -losses[-1]

    def _loss_and_derivatives(self, *rows: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            loss = self._closure(*rows)
        return loss, list(derivatives(tape, loss, self.variables))


class MinibatchProblem(Problem):
    """A training loss that is estimated from some rows in each step."""

    def __init__(self, model: GPModel, data: tuple[AnyNDArray, AnyNDArray], batches: Minibatches):
        super().__init__(model)
        self._data, self._batches = data, batches
        self._closure = lambda X, Y: model.training_loss((X, Y))
        signature = [tf.TensorSpec([None, values.shape[1]], values.dtype) for values in data]
        self._compiled = compiled(self._loss_and_derivatives, input_signature=signature)

    @override
    def evaluate(self, step: int) -> Evaluation:
        rows = self._batches.rows(step)
        loss, slopes = self._compiled(*(tf.constant(values[rows]) for values in self._data))
        return float(loss), slopes

    @override
    def objective(self, losses: list[float]) -> float:
        return -float(np.mean(losses))


class _WithSites(Problem):
    """The energy of a model with sites."""

    model: PEPClassifier

    @property
    @override
    def carried(self) -> dict[str, tf.Variable]:
        return {"precision": self.model.sites.precision, "linear": self.model.sites.linear}

    @override
    def look(self, step: int) -> Evaluation:
        before = self.model.sites.values()
        try:
            return super().look(step)
        finally:
            self.model.sites.assign(before)

    @override
    def start_over(self) -> None:
        self.model.reset_sites()


class SweptProblem(_WithSites):
    """One update of the sites before every step."""

    @override
    def evaluate(self, step: int) -> Evaluation:
        self.model.update_sites_once()
        return super().evaluate(step)


class SweptMinibatchProblem(_WithSites):
    """Sites of a minibatch are updated, and derivatives estimated from it; the sums over all rows once an epoch."""

    def __init__(self, model: PEPClassifier, batch_size: int, seed: int):
        super().__init__(model)
        self._batch_size, self._seed = batch_size, seed
        self._epoch: Iterator[list[tf.Tensor]] | None = None

    @property
    @override
    def interval(self) -> int:
        return -(-int(self.model.num_data) // self._batch_size)

    @override
    def evaluate(self, step: int) -> Evaluation:
        epoch, place = divmod(step, self.interval)
        if place == 0 or self._epoch is None:  # a longer run may go on from the midst of one
            seed = int(np.random.SeedSequence([self._seed, epoch]).generate_state(1)[0])
            self._epoch = self.model.minibatches(self._batch_size, seed=seed)
        return None, next(self._epoch)

    @override
    def look(self, step: int) -> Evaluation:
        under_way, self._epoch = self._epoch, None
        try:
            return super().look(step)
        finally:
            self._epoch = under_way

    @override
    def objective(self, losses: list[float]) -> float:
        return -float(self.model.training_loss())


class ConvergedProblem(_WithSites):
    """The energy at converged sites."""

    def __init__(self, model: PEPClassifier, max_sweeps: int, tol: float):
        super().__init__(model)
        self._max_sweeps, self._tol = max_sweeps, tol
        self._best: Any = None

    @override
    def evaluate(self, step: int) -> Evaluation:
        status = converge_sites(self.model, self._max_sweeps * (_PATIENCE if self._best is None else 1), self._tol)
        if status.change > (_WILD if self.model.is_lower_bound else _UNSETTLED):
            raise FloatingPointError(f"the sites are far from converged: the change is {status.change:.1e}.")
        return super().evaluate(step)

    @override
    def keep(self) -> None:
        self._best = self.model.sites.values()

    @override
    def go_back(self) -> None:
        if self._best is not None:
            self.model.sites.assign(self._best)


def converge_sites(model: PEPClassifier, max_sweeps: int, tol: float) -> SitesStatus:
    """Update the sites; that they have not converged is in the result."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The sites have not converged")
        return model.update_sites(max_sweeps=max_sweeps, tol=tol)
