"""One function that trains every model."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel
from tqdm import tqdm

from .. import validation
from ..data.minibatches import Minibatches
from ..ep import SitesStatus
from ..models import PEP
from ..models.sparse import InducingVariableGP
from ..runtime.checks import UnreadableData, reason_of, warn
from ..runtime.devices import sync_trainable
from ..runtime.distribution import Workers
from ..runtime.tracing import compiled
from ..saving.run_identity import fingerprint, run_identity
from . import objectives
from .adam import Adam
from .checkpoints import Checkpoints, check_same_run, check_same_start
from .dataset_batches import Batch, dataset_batches, rows_for
from .history import Callback, HeldOut, History, keeping_data, recorded_interruption
from .lbfgs import LBFGS
from .monitor import monitor
from .objectives import FAILURES, Objective, SitesObjective
from .result import CONVERGED, EARLY, FAILED, INTERRUPTED, LIMIT, FitResult, Outcome
from .subsets import Subsets, checked_first_rows, stages

# A fraction of the prior variance: a smaller jitter changes standard deviations by at most 0.3 %.
_NOTICED = 1e-5
_LOST_WORKERS = (  # errors of collective operations
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)


def fit(
    model: GPModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    optimizer: str | None = None,
    max_iterations: int | None = None,
    learning_rate: float = 0.01,
    natural_step: float | None = 0.1,
    train_inducing: bool | None = None,
    tolerance: float = 5e-4,
    first_rows: int | None = None,
    n_restarts: int = 0,
    batch_size: int | None = None,
    held_out: RegressionData | None = None,
    patience: int | None = None,
    interval: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 10.0,
    tensorboard: str | os.PathLike[str] | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool = False,
    jit_compile: bool = False,
) -> FitResult:
    """
    Train a model of this library or of GPflow: maximize its objective over its trainable variables.

    =====================================  ==========================================================================
    models with data                       L-BFGS (`PEPR`, `TSGPR`, `BTSGPR`, `StreamingSGPR`, GPflow's `SGPR`, ...)
    :class:`PEP` and its subclasses        L-BFGS at converged sites; Adam at converged sites, or on minibatches whose
                                           sites are updated once per step (Bui, Yan and Turner 2017, sec. 3.9)
    minibatch models                       Adam, with natural gradients of q(u) if the likelihood is Gaussian and
                                           q_sqrt full (`TSVGP`, `BTSVGP`, `PEPSVGP`, `APEP`, GPflow's `SVGP`, ...)
    =====================================  ==========================================================================

    The optimizers work in coordinates that do not depend on units: logarithms of positive parameters, inducing points
    over the standard deviations of their columns (see :class:`gpflow_pep.training.Scipy`). L-BFGS trains in phases:

    1. It compares starts: the present parameters, and trainable lengthscales at 1, 0.3 and 0.1 times a column's
       standard deviation times the square root of the number of columns. Streams start at the present parameters.
    2. From the best start it trains all but the inducing points. If the inputs then explain nothing, models without
       sites go on with all parameters, or from the next start.
    3. It trains all parameters, if `train_inducing`.

    Adam starts lengthscales anew that differ from these starts by a factor of 100.

    If a matrix cannot be factorized or a value is not finite, training stops and restores the last good parameters; a
    warning and the result give the reason. Ctrl-C ends training after the current evaluation, writes the checkpoint
    and returns the result so far with the status "interrupted"; the same call resumes. A second Ctrl-C, or the first
    with several workers, raises `KeyboardInterrupt`. Models with sites update them at the end until they converge.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> result = fit(PEPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10]), max_iterations=5)
    >>> result.status, result.iterations, result.objective[-1] > result.objective[0]
    ('limit', 5, True)

    :param data: for minibatch models only: X [N, D] and Y [N, P]; or a `tf.data.Dataset` of minibatches (X [n, D],
        Y [n, P]). A finite dataset is read repeatedly and must have `num_data` rows in each pass (the last batch may be
        dropped); an infinite dataset is not counted. `fit` does not shuffle it: use
        ``rows.unbatch().shuffle(10_000).batch(500)``, or ``rows.shuffle(100)`` for models of fixed blocks.
    :param optimizer: "lbfgs" (SciPy, all rows) or "adam"; None: as above.
    :param max_iterations: the largest number of L-BFGS iterations (default 2000) or Adam steps (default 5000).
    :param learning_rate: the learning rate of Adam.
    :param natural_step: step size of natural gradients, in (0, 1], if they are used; None: Adam trains q(u), too.
    :param train_inducing: whether trainable inducing variables are trained. None: yes, except for :class:`PEP` and its
        subclasses: it takes ten times the iterations and seldom improves predictions of well spread points (k-means).
    :param tolerance: L-BFGS has converged after 20 iterations that together gained less than this,
        in nats per row; without sites and with at most 50 trained numbers, the last phase also
        after 5 that gained less than a fortieth of it. By default further gains do not matter to
        predictions; 1e-6 ends at an optimum to several digits.
    :param first_rows: the number of rows on which L-BFGS trains first, a random subset; for models
        of this library that store X and Y as arrays. Each further subset has ten times as many
        rows, and training continues from the end of the one before, with a few iterations on all
        rows at last. This saves time if rows are many: 10,000 mostly find the hyperparameters. It
        has no effect if there are fewer than twice `first_rows` rows. Records, patience and
        callback see the objective of the present rows, ``model.data``; the last record has all
        rows. None: train on all rows.
    :param n_restarts: the number of further starts from which L-BFGS trains all but the inducing points; the best
        objective is kept. Lengthscales of as many starts are drawn. At most 100.
    :param batch_size: rows per minibatch (Adam), on each worker; None: all rows, or 500 for minibatch models.
    :param held_out: X and Y of held-out rows, scored at every record.
    :param patience: stop after this many consecutive records without a better held-out score, and restore the
        parameters of the best score. Without `held_out`, stop after this many records without a better objective;
        L-BFGS then ends at its best parameters, Adam at its last parameters. None: no early stopping.
    :param interval: iterations between records (of objective and scores, in TensorBoard and, if due, in a checkpoint).
        Default: 1, or 100 with minibatches; with minibatches and sites it is rounded up to whole epochs.
    :param checkpoint: a file to write and, if it exists, to resume from: Adam continues exactly, L-BFGS restarts from
        its best parameters. A finished run returns its result again, unless `max_iterations` is larger (best by
        a multiple of `interval`, or by whole epochs for a model with sites). A checkpoint of a different model, data or
        public settings is rejected; functions and classes are compared by name. With a dataset the resumed run begins
        a new pass, and only types and shapes of the data are compared.
    :param checkpoint_seconds: the minimum number of seconds between checkpoints; ``math.inf``: write only at the end.
    :param tensorboard: a directory for TensorBoard: objective, parameters, scores; for D <= 2 plots of predictions.
    :param seed: seed for the order of minibatches, the starts of `n_restarts` and the subsets of `first_rows`.
    :param callback: called at every record with the iteration, from 1, and the objective in nats. If it raises
        `StopIteration`, training ends with the status "stopped early", and the same call resumes. It must not replace
        the data of the model.
    :param progress: show a progress bar.
    :param jit_compile: whether XLA compiles objective and gradient. If they are not finite, they are evaluated again
        without XLA, which cannot raise errors.
    :raises ValueError: naming the invalid argument or, after restoring the last good parameters, the invalid batch.
    :raises tf.errors.InvalidArgumentError, FloatingPointError: if the first evaluation of the objective fails.
    :raises NotImplementedError: if XLA cannot compile the objective.
    """
    workers = objectives.workers_of(model)
    batch_size = (
        None if batch_size is None else validation.positive_integer(batch_size, "batch_size")
    )
    optimizer, rows, batches = _checked(model, data, workers, optimizer, batch_size)
    default_steps = 2000 if optimizer == "lbfgs" else 5000
    steps = (
        default_steps
        if max_iterations is None
        else validation.positive_integer(max_iterations, "max_iterations")
    )
    learning_rate = validation.positive_number(learning_rate, "learning_rate")
    natural_step = (
        None if natural_step is None else validation.fraction(natural_step, "natural_step")
    )
    if not isinstance(train_inducing, bool | np.bool_ | None):
        raise ValueError(f"train_inducing must be True, False or None, got {train_inducing!r}.")
    tolerance = validation.positive_number(tolerance, "tolerance")
    n_restarts = validation.whole_number(n_restarts, "n_restarts", 0, 100)
    if n_restarts and optimizer == "adam":
        raise ValueError(f'n_restarts must be 0 with optimizer="adam", got {n_restarts}.')
    if first_rows is not None:
        first_rows = checked_first_rows(first_rows, model, optimizer)
    seed = validation.seed(seed)
    checkpoint_seconds = validation.seconds(checkpoint_seconds, "checkpoint_seconds")
    patience = None if patience is None else validation.positive_integer(patience, "patience")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function or None, got {callback!r}.")
    jit_compile = validation.boolean(jit_compile, "jit_compile")
    progress = validation.boolean(progress, "progress")
    sync_trainable(model.variables)
    if jit_compile and isinstance(model, PEP) and batch_size is not None:
        raise ValueError(
            f"jit_compile must be False with batch_size for {type(model).__name__}, got True."
        )
    if jit_compile and workers is not None:
        raise ValueError("jit_compile must be False if several workers train, got True.")
    if batches is None:
        objective = _objective(model, rows, workers, optimizer, batch_size, seed)
    else:
        objective = objectives.MinibatchObjective(model, lambda step: next(batches))
    objective.training_step.jit_compile = jit_compile
    phases = _phases(model, objective.variables, train_inducing)
    interval = (
        objective.default_interval
        if interval is None
        else validation.positive_integer(interval, "interval")
    )
    interval = -(-interval // objective.interval) * objective.interval  # rounded up to a multiple
    scores = None if held_out is None else HeldOut(model, held_out)
    checkpoints = None
    if checkpoint is not None or workers is not None:
        run = run_identity(model, rows if batches is None else data)
        run |= {
            "optimizer": optimizer,
            "learning_rate": learning_rate,
            "natural_step": natural_step,
        }
        run |= {"batch_size": batch_size, "seed": seed, "interval": interval, "patience": patience}
        run |= {"train_inducing": train_inducing, "tolerance": tolerance, "n_restarts": n_restarts}
        run["first_rows"] = first_rows
        run["held_out"] = fingerprint(*map(np.asarray, held_out or ()))
        run = run if workers is None else check_same_run(workers, model, run)
        if checkpoint is not None:
            checkpoints = Checkpoints(
                checkpoint, run, checkpoint_seconds, writes=workers is None or workers.is_chief
            )
    with (
        _reporting_lost_workers(workers),
        objectives.without_warnings(model),
        objectives.restored(model, "mixed_precision"),
        recorded_interruption(enabled=workers is None) as interrupted,
        _progress_bar(steps, shown=progress) as progress_bar,
    ):
        if callback is not None:
            callback = keeping_data(callback, model)
        history = History(
            variables=objective.variables,
            steps=steps,
            interval=interval,
            progress_bar=progress_bar,
            callback=callback,
            scores=scores,
            patience=patience,
            checkpoints=checkpoints,
            interrupted=interrupted,
        )
        if tensorboard is not None:
            directory = os.fspath(tensorboard)
            if workers is not None and not workers.is_chief:
                directory = os.path.join(directory, f"worker-{workers.index}")
            history.monitor = monitor(
                model, history, directory, model.data if rows is None else rows
            )
        num_rows = stages(first_rows, _num_rows(model, rows))
        lbfgs = LBFGS(objective, phases, tolerance, num_rows[0], n_restarts, seed)
        minimize: Adam | LBFGS | Subsets = lbfgs
        state = objective.state
        if optimizer == "adam":
            minimize = Adam(objective, phases[-1], learning_rate, natural_step)
        elif len(num_rows) > 1:
            minimize = Subsets(lbfgs, model, num_rows, seed)
            state = {}  # without sites, whose number changes
        outcome = history.resume({**state, **minimize.state})
        if workers is not None:
            check_same_start(workers, history.iterations, model)
        if history.iterations > steps:
            status, reason = (
                (LIMIT, "") if outcome is None else (outcome.status, f" {outcome.reason}")
            )
            done = f"the checkpoint has {history.iterations} iterations, max_iterations={steps}."
            outcome = Outcome(status, f"Nothing was trained: {done}{reason}")
        elif outcome is None or (outcome.status == LIMIT and not history.is_over):
            try:
                outcome = (
                    minimize(history) if phases[-1] else Outcome(CONVERGED, "Nothing is trainable.")
                )
            except FAILURES as error:
                minimize.restore()
                objective.reset()
                if not isinstance(error, UnreadableData):
                    objective.check_data()
                if history.iterations == 0 or error is history.callback_error:
                    raise
                if optimizer == "adam":
                    history.discard_last()
                outcome = Outcome(
                    FAILED, f"Stopped, and the last good parameters restored: {reason_of(error)}"
                )
            except BaseException:
                minimize.restore()
                raise
            resumes = outcome.status in (FAILED, INTERRUPTED) or history.stopped_by_callback
            history.save(None if resumes else outcome)
        by_patience = outcome.status == EARLY and not history.stopped_by_callback
        restored = history.restore_best() if by_patience else None
        sites = energy = None
        if isinstance(objective, SitesObjective):
            try:
                sites = objective.converge()
            except FAILURES:
                # Sites from other hyperparameters may be improper: start from the prior.
                objective.reset()
                sites = objective.converge()
            energy = sites.log_evidence + float(model.log_prior_density())
            outcome = _judged(
                outcome, sites, history.objective[-1] if history.objective else -np.inf, energy
            )
        if (
            outcome.status == CONVERGED
            and isinstance(model, PEP)
            and not model._has_exact_gradient()
        ):
            outcome = Outcome(
                EARLY, f"{outcome.reason} The gradient treats moments of the sites as matched."
            )
        outcome = _with_jitter(outcome, model)
        history.close(restored, energy)
    if outcome.status == FAILED or interrupted():
        warn(outcome.reason)
    return FitResult(
        *outcome,
        iterations=history.iterations,
        recorded=tuple(history.recorded),
        objective=tuple(history.objective),
        held_out={name: tuple(values) for name, values in history.held_out.items()},
        sites=sites,
        seconds=history.seconds,
    )


def check_optimizer(optimizer: Any) -> None:
    """Check that this is the name of an optimizer; the error names the nearest one."""
    if not (isinstance(optimizer, str) and optimizer in ("lbfgs", "adam")):
        found = (
            repr(optimizer)
            if isinstance(optimizer, str)
            else f"an object, {type(optimizer).__name__}"
        )
        nearest = "adam" if "adam" in found.lower() else "lbfgs"
        raise ValueError(
            f'optimizer must be "lbfgs", "adam" or None, got {found}: give optimizer="{nearest}".'
        )


def _checked(
    model: GPModel,
    data: Any,
    workers: Workers | None,
    optimizer: str | None,
    batch_size: int | None,
) -> tuple[str, Batch | None, Iterator[Batch] | None]:
    """Return optimizer and given rows; for a dataset, its first batch and an iterator over all batches."""
    own, name, is_dataset = (
        objectives.has_own_data(model),
        type(model).__name__,
        isinstance(data, tf.data.Dataset),
    )
    if own and data is not None:
        raise ValueError(f"data must be None: {name} stores its data.")
    if data is None and not own:
        raise ValueError(f"data must be given: {name} does not store data.")
    if is_dataset and workers is not None:
        raise ValueError(
            "data must be arrays, this worker's rows, if several workers train, got a dataset."
        )
    if optimizer is None:
        optimizer = "lbfgs" if own else "adam"
    check_optimizer(optimizer)
    if optimizer == "lbfgs" and getattr(model, "minibatch_is_block", False):
        raise ValueError(f'optimizer must be "adam" for {name}, whose minibatches are its blocks.')
    if optimizer == "lbfgs" and is_dataset:
        raise ValueError(f'optimizer must be "adam" with a dataset, got {optimizer!r}.')
    for is_refused, reason in (
        (optimizer == "lbfgs", f' with optimizer="{optimizer}"'),
        (own and not isinstance(model, PEP), f", since {name} needs all rows"),
        (is_dataset, " with a dataset, whose batches are the minibatches"),
    ):
        if is_refused and batch_size is not None:
            raise ValueError(f"batch_size must be None{reason}, got {batch_size}.")
    if not is_dataset:
        return optimizer, None if own else rows_for(model, data), None
    batches = dataset_batches(model, data)
    first = next(batches)
    return optimizer, first, chain([first], batches)


def _objective(
    model: GPModel,
    rows: Batch | None,
    workers: Workers | None,
    optimizer: str,
    batch_size: int | None,
    seed: int,
) -> Objective:
    if isinstance(model, PEP):
        if optimizer == "lbfgs":
            return objectives.ConvergedSitesObjective(model)
        if batch_size is None:
            return SitesObjective(model)
        _check_batch_size(batch_size, int(model.num_data))
        return objectives.SweptMinibatchObjective(model, batch_size, seed)
    if rows is None:
        return Objective(model)
    X, Y = rows
    N, mean = len(X), None
    if workers is not None:
        # Each worker's estimate is weighted by its share of the rows.
        N = int(workers.gather(len(X)).sum())
        mean = compiled(lambda values: workers.sums([len(X) / N * value for value in values]))
    size = len(X) if optimizer == "lbfgs" else batch_size or min(len(X), 500)
    _check_batch_size(size, len(X))
    num_data = getattr(model, "num_data", None)
    num_data = None if num_data is None else int(tf.convert_to_tensor(num_data))
    if num_data != N and not (num_data is None and size == N):
        raise ValueError(f"num_data of the model must be {N}, the rows of data, got {num_data}.")
    if optimizer == "lbfgs":
        tensors = tuple(map(tf.constant, rows))
        return Objective(model, lambda step: tensors, mean)
    fixed = bool(getattr(model, "minibatch_is_block", False))  # rows of a block must stay together
    minibatches = Minibatches(len(X), size, fixed=fixed, seed=seed)

    def minibatch(step: int) -> Batch:
        indices = minibatches.rows(step)
        return X[indices], Y[indices]

    return objectives.MinibatchObjective(model, minibatch, mean)


def _phases(
    model: GPModel, variables: list[tf.Variable], train_inducing: bool | None
) -> list[list[tf.Variable]]:
    """Return the variables trained in each phase: all but the inducing variable's, and then, if wanted, all."""
    of_points = set(
        map(id, getattr(getattr(model, "inducing_variable", None), "trainable_variables", ()))
    )
    variables = [each for each in variables if each.numpy().size > 0]
    others = [each for each in variables if id(each) not in of_points]
    if not (train_inducing or (train_inducing is None and not isinstance(model, PEP))):
        return [others]
    return [others, variables] if 0 < len(others) < len(variables) else [variables]


def _num_rows(model: GPModel, rows: Batch | None) -> int:
    """Return the number of rows of all workers; 1 for a model that does not state its data."""
    data, number = (
        getattr(model, "data", None) if rows is None else rows,
        getattr(model, "num_data", None),
    )
    if number is None:
        number = tf.shape(data[1])[0] if isinstance(data, tuple) else 1
    return int(tf.convert_to_tensor(number))


def _check_batch_size(batch_size: int, num_rows: int) -> None:
    if batch_size > num_rows:
        raise ValueError(
            f"batch_size must be at most the number of rows, {num_rows}, got {batch_size}."
        )


def _progress_bar(steps: int, *, shown: bool) -> AbstractContextManager[Any]:
    """Return a bar, or a context without one: even a disabled `tqdm` makes a lock between processes."""
    if not shown or sys.stderr is None:
        return nullcontext()
    return tqdm(total=steps, unit="it", mininterval=0.5)


@contextmanager
def _reporting_lost_workers(workers: Workers | None) -> Iterator[None]:
    """Raise a `RuntimeError` if a collective operation fails because a worker has stopped."""
    try:
        yield
    except _LOST_WORKERS as error:
        if workers is None:
            raise
        raise RuntimeError(
            f"a worker has stopped, or a collective operation has failed on worker {workers.index}. Stop all "
            f"{workers.count} workers and restart them: training resumes from the checkpoint, if one was given."
        ) from error


def _with_jitter(outcome: Outcome, model: GPModel) -> Outcome:
    """Add a raised jitter to the reason; also print it if it changes standard deviations of f noticeably."""
    if not isinstance(model, InducingVariableGP):
        return outcome
    raised, variance = model._raised_jitter()
    if raised == 0.0:
        return outcome
    found = f"Kuu was not positive definite; its jitter was raised to {raised:.0e}."
    if raised > _NOTICED * variance and sys.stderr is not None:
        print(f"gpflow_pep: {found}", file=sys.stderr)
    return Outcome(outcome.status, f"{outcome.reason} {found}")


def _judged(outcome: Outcome, sites: SitesStatus, before: float, after: float) -> Outcome:
    """Return the outcome at converged sites, given the objectives `before` and `after` their convergence."""
    status, reason = outcome.status, outcome.reason
    # A larger drop than loose sites cause.
    if status == CONVERGED and after < before - 1e-2 * (1.0 + abs(before)):
        status, found = FAILED, f"at converged sites the objective is {after:.6g}, not {before:.6g}"
        reason += f" The sites had not converged in training: {found}. Try a larger max_sweeps."
    if not sites.converged:
        status = FAILED if status == CONVERGED else status
        ended = f"the change is {sites.change:.1e} after {sites.sweeps} sweeps"
        reason += f" The sites have not converged: {ended}. Try a smaller alpha."
    return Outcome(status, reason)
