"""Training objectives: evaluate loss and gradient for each kind of model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel
from gpflow.models.training_mixins import (
    ExternalDataTrainingLossMixin,
    InternalDataTrainingLossMixin,
)
from typing_extensions import override

from ..engine import Chunks
from ..ep import FEW_SWEEPS, SitesStatus
from ..likelihoods import Logit, Probit
from ..maths.linalg import unreported
from ..models import PEP
from ..runtime import (
    ONE_PROCESS,
    RARE,
    Tensors,
    UnreadableData,
    Workers,
    compiled,
    derivatives,
    functions_of_model,
    in_replica,
    watching,
    with_plain_errors,
    without_rare_branches,
)

# The loss, 0 if not computed, and its gradient in the trainable variables.
Evaluation = tuple[float, list[tf.Tensor]]

FAILURES = (tf.errors.InvalidArgumentError, FloatingPointError, UnreadableData)
"""Errors of an evaluation: a singular matrix, a value that is not finite, an unreadable dataset."""

_MAX_SWEEPS = 1000  # after training
_MOST_FAR = 8  # evaluations in a row in which sites may be far from converged
_FEW_SITES = 500  # number of sites above which tolerances shrink
_FEWEST = 50  # sweeps allowed in an evaluation, however often sites have not converged before


def without_warnings(model: GPModel) -> AbstractContextManager[None]:
    """Suppress the warning that sites have not converged: the training result reports it."""
    return model.without_warnings() if isinstance(model, PEP) else nullcontext()


@contextmanager
def restored(model: GPModel, *names: str) -> Iterator[None]:
    """Restore these attributes of the model, if it has them, at the end of the context."""
    before = {name: getattr(model, name) for name in names if hasattr(model, name)}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(model, name, value)


def has_own_data(model: GPModel) -> bool:
    """Return whether the model holds its data; otherwise its training loss takes them."""
    if isinstance(model, InternalDataTrainingLossMixin):
        return True
    if not isinstance(model, ExternalDataTrainingLossMixin):
        name = type(model).__name__
        raise ValueError(
            f"model must be a gpflow_pep or GPflow model with training loss, got {name}."
        )
    return False


def workers_of(model: GPModel) -> Workers:
    """Return the workers that share the rows of the model or of `fit`."""
    workers = getattr(model, "_workers", None) or Workers.of_strategy()
    if workers.count > 1 and not hasattr(model, "_workers") and has_own_data(model):
        raise ValueError(
            "model must be a gpflow_pep model if there are several workers: "
            f"the data of {type(model).__name__} are not divided among them."
        )
    return workers


def _seldom_has_rare_branches(model: GPModel) -> bool:
    """
    Return whether to try a training step without rare branches, to be traced again if it needs one.

    None of 44 fits of the classifier to 11 tables needs one. Without priors some fits do: variances
    grow if classes are separated.
    """
    has_priors = any(each.prior is not None for each in model.trainable_parameters)
    return has_priors and isinstance(getattr(model, "likelihood", None), Probit | Logit | Softmax)


def _without_rare_branches(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step, traced without rare branches at its first call."""

    def traced(*rows: tf.Tensor) -> Any:
        with without_rare_branches():
            return step(*rows)

    return traced


class TrainingStep:
    """Training loss and gradient; the model stores the compiled functions."""

    def __init__(self, model: GPModel, *, jit_compile: bool = False):
        self._model = model
        self.jit_compile = jit_compile
        self.compiled = functions_of_model(model, "_training_step")

    def __call__(self, *rows: TensorType) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Compute the training loss [] and its gradient; the rows are X [n, D] and Y [n, P]."""
        tensors = tuple(map(tf.constant, rows))
        loss, gradient = self._run(tensors, self.jit_compile)
        if self.jit_compile and not all(np.isfinite(value).all() for value in (loss, *gradient)):
            return self._run(tensors, False)  # raises the error for which XLA returned NaN
        return loss, gradient

    def log_prior_density(self) -> float:
        """Compute the log density of the priors."""
        compute = self.compiled.setdefault("prior", compiled(self._model.log_prior_density))
        return float(compute())

    def _run(self, rows: Tensors, jit_compile: bool) -> tuple[tf.Tensor, list[tf.Tensor]]:
        specs = tuple(tf.TensorSpec([None, values.shape[1]], values.dtype) for values in rows)
        key = (jit_compile, specs)
        if key not in self.compiled:
            workers = getattr(self._model, "_workers", ONE_PROCESS)
            step = self._compiled(specs, jit_compile)
            # Other workers would wait for one that traces again.
            if _seldom_has_rare_branches(self._model) and not jit_compile and workers.count == 1:
                step = _without_rare_branches(step)
            self.compiled[key] = step
        try:
            chunks = getattr(self._model, "_chunks", None)
            place: Callable[[], str] = str
            if isinstance(chunks, Chunks):
                place = chunks.place
            return with_plain_errors(self.compiled[key], *rows, place=place)
        except tf.errors.InvalidArgumentError as error:
            if RARE in error.message:
                self.compiled[key] = self._compiled(specs, jit_compile)
                return self._run(rows, jit_compile)
            if "Collective ops is aborted" in error.message:  # another worker has failed
                raise tf.errors.AbortedError(None, None, error.message) from error
            raise

    def _compiled(self, specs: Sequence[tf.TensorSpec], jit_compile: bool) -> Callable[..., Any]:
        step = partial(in_replica, self._loss_and_gradient)
        compiled_step: Callable[..., Any] = compiled(
            step, input_signature=specs, jit_compile=jit_compile or None
        )
        return compiled_step

    def _loss_and_gradient(self, *rows: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        variables = self._model.trainable_variables
        with unreported(), watching(variables) as tape:
            loss = self._model.training_loss(*([rows] if rows else []))
        gradient = list(derivatives(tape, loss, variables))
        workers = getattr(self._model, "_workers", ONE_PROCESS)
        if workers.count > 1:  # all workers need the same last digit, or their steps would diverge
            loss, *gradient = workers.from_chief([loss, *gradient])
        return loss, gradient


class Objective:
    """The training loss of the model's data or of given rows."""

    model: GPModel
    interval = 1  # steps between records are a multiple of this
    default_interval = 1  # steps between records
    trial_iterations = 5  # of L-BFGS from each start, before the starts are compared
    is_exact = True  # False if losses have errors because sites converge to a tolerance only
    is_accurate = True  # False if sites were far from converged in the last evaluation
    # False if sites need not converge in an evaluation: losses far from each other are not
    # compared.
    waits = True

    def __init__(
        self,
        model: GPModel,
        rows: Callable[[int], object] = lambda step: (),
        mean: Callable[..., Any] | None = None,
    ):
        """
        :param rows: returns X and Y of a step, for a model without data; called once for each step.
        :param mean: averages loss and gradient over the workers; None: this process has all rows.
        """
        self.model = model
        self.variables = list(model.trainable_variables)
        self._mean = mean
        self._rows_of = rows
        self._rows: Any = ()
        self.training_step = TrainingStep(model)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """Variables besides the parameters that change from step to step, by name."""
        return {}

    def evaluate(self, step: int) -> Evaluation:
        """Return loss and gradient in a step, from 0, or raise one of `FAILURES`."""
        self._rows = self._rows_of(step)
        return self._evaluate()

    def _evaluate(self) -> Evaluation:
        loss, gradient = self.training_step(*self._rows)
        if self._mean is not None:
            loss, *gradient = self._mean([loss, *gradient])
        return float(loss), gradient

    def check_data(self) -> None:
        """After a failure, raise a `ValueError` if the dataset has changed since its first pass."""
        if hasattr(self.model, "check_data"):  # GPflow's models hold their data as tensors
            self.model.check_data()

    def probe(self, step: int) -> Evaluation:
        """Evaluate the loss after the last step, on its rows; change no state."""
        return self._evaluate() if self._rows else self.evaluate(step)

    def mark_best(self) -> None:
        """Record that the current parameters are the best so far."""

    def restore_best(self) -> None:
        """Restore the sites of the best parameters; call this after restoring the parameters."""

    def restart(self) -> None:
        """Forget the best parameters before a search from other parameters."""

    def tighten(self, *, fully: bool, gain: float = 0.0) -> bool:
        """
        Tighten the tolerance of later evaluations; return whether it was loose.

        :param fully: tighten it to the model's tolerance, or so far that the error of a loss is
            well below `gain`.
        :param gain: a gain that matters, in nats.
        """
        if not (fully and getattr(self.model, "mixed_precision", False)):
            return False
        # Until `fit` ends: rounding of single precision may have ended the search.
        self.model.mixed_precision = False
        self.training_step = TrainingStep(self.model, jit_compile=self.training_step.jit_compile)
        return True

    def reset(self) -> None:
        """Reset the sites after other parameters were restored."""

    def recorded(self, losses: list[float]) -> float:
        """Return the objective to record after steps with these losses."""
        return -losses[-1]


class MinibatchObjective(Objective):
    """The training loss estimated from one minibatch per step; records are means over steps."""

    default_interval = 100  # the objectives of single minibatches are noisy

    @override
    def recorded(self, losses: list[float]) -> float:
        return -float(np.mean(losses))


class SitesObjective(Objective):
    """The energy of a model with sites."""

    model: PEP

    @property
    @override
    def state(self) -> dict[str, tf.Variable]:
        # With several workers only the chief writes the checkpoint: leave out the sites, which
        # differ between workers.
        return self.model.sites_variables if workers_of(self.model).count == 1 else {}

    @override
    def probe(self, step: int) -> Evaluation:
        with self._same_sites():
            return super().probe(step)

    @override
    def reset(self) -> None:
        self.model.reset_sites()

    @property
    def _last_sweeps(self) -> int:
        """The largest number of sweeps after training."""
        return max(self.model.max_sweeps, _MAX_SWEEPS)

    def converge(self) -> SitesStatus:
        """Update the sites until they converge, even if `max_sweeps` was small in training."""
        # Faster than tracing `update_sites`, although it also computes derivatives.
        update = self.training_step if self.training_step.compiled else self.model.update_sites
        with restored(self.model, "max_sweeps"):
            self.model.max_sweeps = self._last_sweeps
            try:
                update()
            except FAILURES:
                # Sites from other hyperparameters may be improper: start from the prior.
                self.reset()
                update()
        return self.model.sites_status

    @contextmanager
    def _same_sites(self) -> Iterator[None]:
        """Restore the sites at the end of the context."""
        before = self.model.sites.stacked()
        try:
            yield
        finally:
            self.model.sites.assign_stacked(before)


class SweptMinibatchObjective(SitesObjective):
    """Update sites and estimate derivatives by minibatches; sum over all rows in every epoch."""

    def __init__(self, model: PEP, batch_size: int, seed: int):
        super().__init__(model)
        self._batch_size = batch_size
        self._seed = seed
        self._epoch: Iterator[list[tf.Tensor]] | None = None
        self.interval = self.default_interval = -(-int(model.num_data) // batch_size)

    @override
    def evaluate(self, step: int) -> Evaluation:
        epoch, place = divmod(step, self.interval)
        if place == 0 or self._epoch is None:  # a resumed run may start within an epoch
            seed = int(np.random.SeedSequence([self._seed, epoch]).generate_state(1)[0])
            self._epoch = self.model.minibatches(self._batch_size, seed=seed)
        return 0.0, next(self._epoch)

    @override
    def probe(self, step: int) -> Evaluation:
        self._epoch = None  # sum over all rows again
        return super().probe(step)

    @override
    def recorded(self, losses: list[float]) -> float:
        with self._same_sites():
            return -float(self.model.training_loss())


class ConvergedSitesObjective(SitesObjective):
    """
    The energy at converged sites, with a tolerance proportional to the square root of the last
    gain.

    The error of the gradient is proportional to the tolerance, and the gain of a step to the
    squared gradient. Each search has a tighter tolerance. Unless it is a lower bound, the energy at
    other sites may exceed the converged one.
    """

    trial_iterations = 0  # an evaluation takes many sweeps
    is_exact = False

    def __init__(self, model: PEP):
        super().__init__(model)
        self.waits = model.max_sweeps > FEW_SWEEPS
        # Largest number of sweeps in an evaluation, halved after each that takes all of them: near
        # these hyperparameters sites that have not converged in many sweeps seldom do.
        self._allowed = _MAX_SWEEPS // 2
        self._forget()

    def _forget(self) -> None:
        self._best: Any = None
        self._least = 0.0  # smallest tolerance that sites reach near the last hyperparameters
        self._have_converged = False  # sites were (nearly) converged in an earlier evaluation
        self._num_far = 0  # evaluations in a row in which they were far from it
        self._best_loss, self._gain, self._last_loss = np.inf, np.inf, np.inf
        # The largest tolerance, its ratio to sqrt(last gain in nats), and the largest change of the
        # sites at which the loss is accepted. All are larger for a bound, which holds at any sites.
        limits = (3e-2, 2e-1, 100.0) if self.model.is_lower_bound else (1e-2, 6e-2, 0.1)
        self._loosest, self._of_gain, self._max_change = limits
        # The loss's error is the sum of the sites' errors, proportional to their squared changes.
        number = int(self.model.num_data) * self.model.num_latent_gps
        share = min(1.0, (_FEW_SITES / number) ** 0.5)
        self._loosest *= share
        self._of_gain *= share

    @override
    def evaluate(self, step: int) -> Evaluation:
        tol = max(self.model.tol, min(self._loosest, self._of_gain * np.sqrt(self._gain)))
        tol = max(tol, self._least)
        max_sweeps = min(self.model.max_sweeps, self._allowed)
        with restored(self.model, "tol", "max_sweeps"):
            self.model.tol, self.model.max_sweeps = tol, max_sweeps
            loss, gradient = super().evaluate(step)
        change = self.model.sites_status.change
        self._least *= 0.8
        if self.waits and not self.model.sites_status.converged:
            self._allowed = max(self._allowed // 2, _FEWEST)
            self._least = min(2.0 * change, 0.05)
        self.is_accurate = change <= self._max_change or not self.waits
        is_far = self.waits and change > 0.5 * self._max_change
        stays_far = is_far and self._num_far >= _MOST_FAR
        if stays_far or (self._have_converged and not self.is_accurate):
            raise FloatingPointError(
                "The sites are far from converged: the next update would change a marginal by "
                f"{change:.1e} standard deviations. Try Softmax for several classes, more "
                "inducing points, a smaller alpha, optimizer='adam', or other initial "
                "hyperparameters."
            )
        self._have_converged = self.is_accurate
        self._num_far = self._num_far + 1 if is_far else 0
        self._last_loss = loss
        return loss, gradient

    @property
    @override
    def _last_sweeps(self) -> int:
        if self._num_far > 0 and not self._have_converged:
            return 2 * _FEWEST  # more would not help
        return super()._last_sweeps

    @override
    def mark_best(self) -> None:
        self._best = self.model.sites.stacked()
        self._gain = self._best_loss - self._last_loss
        self._best_loss = self._last_loss

    @override
    def tighten(self, *, fully: bool, gain: float = 0.0) -> bool:
        # The loss's error is proportional to the squared tolerance (`_of_gain`): this one is far
        # below the gain.
        enough = max(float(self.model.tol), 1e-3 * np.sqrt(gain))
        was_loose = bool(self._loosest > enough)
        self._loosest *= 0.1  # before each further search, down to the model's tolerance
        if fully:
            self._loosest = min(self._loosest, enough)
        self._of_gain *= 0.1
        # Loose sites may underestimate the loss, and the next gain would be negative.
        self._best_loss = np.inf
        return was_loose

    @override
    def restart(self) -> None:
        self.reset()
        self._forget()

    @override
    def restore_best(self) -> None:
        if self._best is not None:
            self.model.sites.assign_stacked(self._best)
