"""Training losses to minimize: how loss and gradient are evaluated for each kind of model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel
from typing_extensions import override

from .. import validation
from ..data.minibatches import Minibatches
from ..ep import SitesStatus
from ..likelihoods.observations import check_observations
from .declared import ModelWithSites
from .step import training_step
from .workers import Share, workers_of

Evaluation = tuple[float | None, list[tf.Tensor]]
"""The loss, if it is known, and its gradient: derivatives in the trainable variables."""

FAILURES = (tf.errors.InvalidArgumentError, FloatingPointError)
"""Errors of an evaluation in which a matrix cannot be factorized or a value is not finite."""

# The largest change of the sites at which an energy is accepted; larger for a bound, which holds at any sites.
_MAX_CHANGE, _MAX_CHANGE_OF_BOUND = 0.1, 100.0
_MAX_SWEEPS, _MAX_FIRST_SWEEPS = 500, 1000  # per evaluation; in the first one, which has no sites to restore
_FEW_SWEEPS = 10  # if max_sweeps is at most this, sites need not converge in an evaluation
_FINAL_SWEEPS = 1000  # after training
_INTERVAL = 100  # steps of minibatch training between records
# Tolerance of the sites: its largest value, and its ratio to sqrt(last gain in nats). Those of a bound may be larger.
_LOOSEST, _OF_GAIN = 1e-2, 6e-2
_LOOSEST_OF_BOUND, _OF_GAIN_OF_BOUND = 3e-2, 2e-1
_TIGHTER = 0.1  # the factor by which both become smaller before each new search, down to the model's tolerance


def rows_for(model: GPModel, data: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Return X [N, D] and Y [N, P] in the form that the model's objective accepts.

    :raises ValueError: if they are not valid regression data, or the likelihood does not accept Y.
    """
    X, Y = validation.regression_data(data)
    mixing = getattr(model.kernel, "W", None)  # [P, C], of latent functions that outputs share
    check_observations(model.likelihood, Y, int(model.num_latent_gps if mixing is None else mixing.shape[0]))
    # GPflow's softmax takes whole numbers only; the models here take them too.
    return X, Y.astype(np.int64) if isinstance(model.likelihood, Softmax) else Y


class Objective:
    """A training loss of all rows: the model's own data, or data given."""

    model: Any

    def __init__(self, model: Any, data: RegressionData | None = None, share: Share | None = None):
        """
        :param model: a model of GPflow, or a `ModelWithSites`.
        :param share: that of the data given in those of all workers; None: these are all.
        """
        self.model, self.variables, self._share = model, list(model.trainable_variables), share
        self._rows = () if data is None else tuple(tf.constant(values) for values in data)
        self._step = training_step(model)

    @property
    def jit_compile(self) -> bool:
        """Whether XLA compiles loss and gradient."""
        return self._step.jit_compile

    @jit_compile.setter
    def jit_compile(self, jit_compile: bool) -> None:
        self._step.jit_compile = jit_compile

    @property
    def interval(self) -> int:
        """Steps between records, or a divisor of that."""
        return 1

    @property
    def default_interval(self) -> int:
        """Steps between records, unless the user gives them."""
        return self.interval

    @property
    def state(self) -> dict[str, tf.Variable]:
        """Variables that change from step to step, other than the parameters, by name."""
        return {}

    def evaluate(self, step: int) -> Evaluation:
        """
        Return the loss and its derivatives at the current parameters.

        :param step: the number of the step, from 0.
        :raises FAILURES: if they cannot be computed.
        """
        return self._loss_and_gradient(*self._rows)

    def _loss_and_gradient(self, *rows: Any) -> Evaluation:
        loss, gradient = self._step(*rows)
        if self._share is not None:
            loss, *gradient = self._share.mean([loss, *gradient])
        return float(loss), gradient

    def check_data(self) -> None:
        """
        After a failure: check that data which are read anew in every pass are what they were.

        :raises ValueError: if they are not; no other step helps then.
        """
        check = getattr(self.model, "check_data", None)  # none of GPflow's models reads data anew
        if check is not None:
            check()

    def probe(self, step: int) -> Evaluation:
        """Evaluate as in this step, without changing any state."""
        return self.evaluate(step)

    def mark_best(self) -> None:
        """Record that the current parameters are the best so far."""

    def restore_best(self) -> None:
        """Restore the sites of the best parameters, after these were restored."""

    def tighten(self, *, fully: bool) -> bool:
        """
        Evaluate more accurately from now on; return whether this makes a difference.

        :param fully: as accurately as possible.
        """
        return False

    def reset(self) -> None:
        """Reset the sites after other parameters were restored."""

    def recorded(self, losses: list[float]) -> float:
        """Return the objective to record after steps with these losses."""
        return -losses[-1]


class EstimatedObjective(Objective):
    """A training loss estimated from some rows in each step; recorded are means over steps."""

    @property
    @override
    def default_interval(self) -> int:
        return _INTERVAL

    @override
    def recorded(self, losses: list[float]) -> float:
        return -float(np.mean(losses))


class MinibatchObjective(EstimatedObjective):
    """A training loss estimated from a minibatch of arrays in each step."""

    def __init__(
        self, model: GPModel, data: tuple[AnyNDArray, AnyNDArray], batches: Minibatches, share: Share | None = None
    ):
        super().__init__(model, share=share)
        self._data, self._batches = data, batches

    @override
    def evaluate(self, step: int) -> Evaluation:
        rows = self._batches.rows(step)
        return self._loss_and_gradient(*(values[rows] for values in self._data))


class SitesObjective(Objective):
    """The energy of a model with sites."""

    model: ModelWithSites

    @property
    @override
    def state(self) -> dict[str, tf.Variable]:
        # Of several workers one writes the checkpoint, with its own sites: all begin without.
        return self.model.sites_variables if workers_of(self.model) is None else {}

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

    def converge(self) -> SitesStatus:
        """Update the sites until they converge, even if `max_sweeps` was small in training."""
        model, max_sweeps = self.model, self.model.max_sweeps
        try:
            model.max_sweeps = max(max_sweeps, _FINAL_SWEEPS)
            if self._step.is_compiled:  # then this is faster, although it computes derivatives, too
                self._step()
                if model.sites_status.converged:
                    return model.sites_status
            return model.update_sites()
        finally:
            model.max_sweeps = max_sweeps


class SweptMinibatchObjective(SitesObjective):
    """Update a minibatch's sites and estimate derivatives from it; recompute the sums over all rows every epoch."""

    def __init__(self, model: ModelWithSites, batch_size: int, seed: int):
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
        if place == 0 or self._epoch is None:  # a resumed run may start within an epoch
            seed = int(np.random.SeedSequence([self._seed, epoch]).generate_state(1)[0])
            self._epoch = self.model.minibatches(self._batch_size, seed=seed)
        return None, next(self._epoch)

    @override
    def probe(self, step: int) -> Evaluation:
        epoch, self._epoch = self._epoch, None
        try:
            return super().probe(step)
        finally:
            self._epoch = epoch

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

    The error of the gradient is proportional to the tolerance of the sites, and that of the energy to its square; the
    gain of a step is proportional to the squared gradient. So the tolerance is set proportional to the square root of
    the last gain, and tighter with every search. Where sites have not converged the energy may be too high; a lower
    bound never is.
    """

    def __init__(self, model: ModelWithSites):
        super().__init__(model)
        self._best: Any = None
        self._have_converged = False  # or nearly, in an earlier evaluation
        self._best_loss, self._gain = np.inf, np.inf
        self._last_loss = np.inf
        of_bound = (_LOOSEST_OF_BOUND, _OF_GAIN_OF_BOUND) if model.is_lower_bound else (_LOOSEST, _OF_GAIN)
        self._loosest, self._of_gain = of_bound

    @override
    def evaluate(self, step: int) -> Evaluation:
        loss, gradient = self._at_following_tolerance(step)
        change = self.model.sites_status.change
        if not self._is_far(change):
            self._have_converged = True
        elif self._have_converged:
            raise FloatingPointError(
                f"The sites are far from converged: an update would still change a marginal by {change:.1e} of its "
                "standard deviation. Try a smaller alpha, optimizer='adam', or other initial hyperparameters."
            )
        assert loss is not None
        self._last_loss = loss
        return loss, gradient

    def _at_following_tolerance(self, step: int) -> Evaluation:
        model, tol, max_sweeps = self.model, self.model.tol, self.model.max_sweeps
        try:
            model.tol = max(tol, min(self._loosest, self._of_gain * np.sqrt(self._gain)))
            model.max_sweeps = min(max_sweeps, _MAX_FIRST_SWEEPS if self._best is None else _MAX_SWEEPS)
            return super().evaluate(step)
        finally:
            model.tol, model.max_sweeps = tol, max_sweeps

    def _is_far(self, change: float) -> bool:
        """Whether sites are far from converged that would still change by this much."""
        if change <= _MAX_CHANGE or self.model.max_sweeps <= _FEW_SWEEPS:
            return False
        return change > _MAX_CHANGE_OF_BOUND or not self.model.is_lower_bound

    @override
    def mark_best(self) -> None:
        self._best = self.model.sites.values()
        self._gain, self._best_loss = self._best_loss - self._last_loss, self._last_loss

    @override
    def tighten(self, *, fully: bool) -> bool:
        was_loose = self._loosest > self.model.tol
        self._loosest *= 0.0 if fully else _TIGHTER
        self._of_gain *= _TIGHTER
        self._best_loss = np.inf  # it may be too low, and a gain negative
        return was_loose

    @override
    def restore_best(self) -> None:
        if self._best is not None:
            self.model.sites.assign(self._best)
