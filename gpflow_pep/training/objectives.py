"""What is minimized: a training loss at the present parameters, and how it is evaluated for each kind of model."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel
from typing_extensions import override

from .. import validation
from ..ep import SitesStatus
from ..minibatches import Minibatches
from ..models.pep import PEP
from ..observations import check_observations
from .step import training_step

Evaluation = tuple[float | None, list[tf.Tensor]]
"""The loss, if it is known, and its derivatives in the trainable variables."""

FAILURES = (tf.errors.InvalidArgumentError, FloatingPointError)
"""What an evaluation raises where a matrix cannot be factorized or a value is not finite."""

# The largest change of the sites at which an energy is used; larger where it is a bound, which holds at any sites.
_MAX_CHANGE, _MAX_CHANGE_OF_BOUND = 0.1, 100.0
_MAX_SWEEPS, _MAX_FIRST_SWEEPS = 500, 1000  # in an evaluation; in the first one, which has nothing to go back to
_FEW_SWEEPS = 10  # where a model allows no more than these, its sites need not converge in an evaluation
_SETTLING_SWEEPS = 1000  # in the end
_LOOSEST, _OF_GAIN = 3e-3, 2e-2  # tolerance of the sites: the largest, and over the root of the last gain in nats


def rows_for(model: GPModel, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """
    X [N, D] and Y [N, P] as a model that is given data takes them.

    :raises ValueError: where they are no regression data, or the likelihood does not accept Y.
    """
    X, Y = validation.regression_data(data)
    mixing = getattr(model.kernel, "W", None)  # [P, C], of latent functions that outputs share
    check_observations(model.likelihood, Y, int(model.num_latent_gps if mixing is None else mixing.shape[0]))
    # GPflow's softmax takes whole numbers only; the models here take them too.
    return X, Y.astype(np.int64) if isinstance(model.likelihood, Softmax) else Y


class Objective:
    """A training loss of all rows, which are the model's or given."""

    def __init__(self, model: GPModel, data: RegressionData | None = None):
        self.model, self.variables = model, list(model.trainable_variables)
        self._rows = () if data is None else tuple(tf.constant(values) for values in data)
        self._step = training_step(model)

    @property
    def interval(self) -> int:
        """Steps between records, or a divisor of that."""
        return 1

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What goes with the parameters from step to step."""
        return {}

    def evaluate(self, step: int) -> Evaluation:
        """
        Return the loss and its derivatives at the current parameters.

        :param step: the number of the step, from 0.
        :raises FAILURES: where that is not possible.
        """
        loss, slopes = self._step(*self._rows)
        return float(loss), slopes

    def probe(self, step: int) -> Evaluation:
        """Evaluate as in this step, and leave everything as it is."""
        return self.evaluate(step)

    def mark_best(self) -> None:
        """Record that the current parameters are the best so far."""

    def restore_best(self) -> None:
        """Restore what belongs to the best parameters, which have been restored."""

    def reset(self) -> None:
        """Drop what belongs to the last parameters: others have been restored."""

    def recorded(self, losses: list[float]) -> float:
        """What is recorded after steps that had these losses."""
        return -losses[-1]


class MinibatchObjective(Objective):
    """A training loss that is estimated from some rows in each step."""

    def __init__(self, model: GPModel, data: tuple[AnyNDArray, AnyNDArray], batches: Minibatches):
        super().__init__(model)
        self._data, self._batches = data, batches

    @override
    def evaluate(self, step: int) -> Evaluation:
        rows = self._batches.rows(step)
        loss, slopes = self._step(*(values[rows] for values in self._data))
        return float(loss), slopes

    @override
    def recorded(self, losses: list[float]) -> float:
        return -float(np.mean(losses))


class SitesObjective(Objective):
    """The energy of a model with sites."""

    model: PEP

    @property
    @override
    def state(self) -> dict[str, tf.Variable]:
        sites = self.model.sites  # the status has the fraction of an update that few sweeps at a time begin with
        return {"precision": sites.precision, "linear": sites.linear, "status": self.model._status}

    @override
    def probe(self, step: int) -> Evaluation:
        before = self.model.sites.values()
        try:
            return super().probe(step)
        finally:
            self.model.sites.assign(before)

    @override
    def reset(self) -> None:
        self.model.reset_sites()


class SweptMinibatchObjective(SitesObjective):
    """Update a minibatch's sites and estimate derivatives from it; take the sums over all rows anew once an epoch."""

    def __init__(self, model: PEP, batch_size: int, seed: int):
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
    def probe(self, step: int) -> Evaluation:
        under_way, self._epoch = self._epoch, None
        try:
            return super().probe(step)
        finally:
            self._epoch = under_way

    @override
    def recorded(self, losses: list[float]) -> float:
        before = self.model.sites.values()
        try:
            return -float(self.model.training_loss())
        finally:
            self.model.sites.assign(before)


class ConvergedSitesObjective(SitesObjective):
    """
    The energy at converged sites, with a tolerance that follows the progress of the search.

    The gradient's error is proportional to the tolerance of the sites, and what a step gains is proportional to the
    square of the gradient: the tolerance is proportional to the root of the last gain.
    """

    def __init__(self, model: PEP):
        super().__init__(model)
        self._best: Any = None
        self._settled = False  # whether the sites had converged, or nearly, in an evaluation before
        self._best_loss, self._gain = np.inf, np.inf
        self._last_loss = np.inf

    @override
    def evaluate(self, step: int) -> Evaluation:
        model, tol, max_sweeps = self.model, self.model.tol, self.model.max_sweeps
        try:
            model.tol = max(tol, min(_LOOSEST, _OF_GAIN * np.sqrt(self._gain)))
            model.max_sweeps = min(max_sweeps, _MAX_FIRST_SWEEPS if self._best is None else _MAX_SWEEPS)
            found = super().evaluate(step)
        finally:
            model.tol, model.max_sweeps = tol, max_sweeps
        change = model.sites_status.change
        if change > (_MAX_CHANGE_OF_BOUND if model.is_lower_bound else _MAX_CHANGE) and max_sweeps > _FEW_SWEEPS:
            if self._settled:
                raise FloatingPointError(
                    f"The sites are far from converged: an update would still change a marginal by {change:.1e} of its "
                    "standard deviation. Try a smaller alpha, optimizer='adam', or other initial hyperparameters."
                )
        else:
            self._settled = True
        assert found[0] is not None
        self._last_loss = found[0]
        return found

    @override
    def mark_best(self) -> None:
        self._best = self.model.sites.values()
        self._gain, self._best_loss = self._best_loss - self._last_loss, self._last_loss

    @override
    def restore_best(self) -> None:
        if self._best is not None:
            self.model.sites.assign(self._best)


@contextmanager
def quiet(model: GPModel) -> Iterator[None]:
    """Do not warn of sites that have not converged: the result of the training says so."""
    with model._quiet() if isinstance(model, PEP) else nullcontext():
        yield


def settle(model: PEP) -> SitesStatus:
    """Update the sites until they have converged, also where `max_sweeps` was small in training."""
    max_sweeps = model.max_sweeps
    try:
        model.max_sweeps = max(max_sweeps, _SETTLING_SWEEPS)
        return model.update_sites()
    finally:
        model.max_sweeps = max_sweeps
