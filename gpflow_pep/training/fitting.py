"""One function that trains every model."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel
from tqdm import tqdm

from ..data.minibatches import Minibatches
from ..ep import SitesStatus
from ..models import PEP
from ..models.sparse import InducingVariableGP
from ..runtime import UnreadableData, Workers, compiled, reason_of, sync_trainable, warn
from ..saving.arrays_file import FilePath
from ..saving.run_identity import run_identity
from . import objectives
from .adam import Adam
from .checkpoints import Checkpoints, check_same_run, check_same_start
from .dataset_batches import Batch, check_data, dataset_batches, rows_for
from .history import HeldOut, History, keeping_data, recorded_interruption
from .lbfgs import LBFGS
from .monitor import closed_writer, folder_of, monitor
from .objectives import FAILURES, Objective, SitesObjective
from .options import Callback, FitOptions
from .result import CONVERGED, EARLY, FAILED, INTERRUPTED, LIMIT, FitResult, Outcome
from .subsets import Subsets, stages

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
    n_restarts: int | None = 0,
    batch_size: int | None = None,
    held_out: RegressionData | None = None,
    patience: int | None = None,
    interval: int | None = None,
    checkpoint: FilePath | None = None,
    checkpoint_seconds: float = 10.0,
    tensorboard: FilePath | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool = False,
    jit_compile: bool = False,
) -> FitResult:
    """
    Train a model of this library or of GPflow: maximize its objective over its trainable variables.

    ===============================  ===============================================================
    models with data                 L-BFGS (`PEPR`, `TSGPR`, `BTSGPR`, `StreamingSGPR`, GPflow's
                                     `SGPR`, ...)
    :class:`PEP` and its subclasses  L-BFGS at converged sites; Adam at converged sites, or on
                                     minibatches whose sites are updated once per step (Bui, Yan and
                                     Turner 2017, sec. 3.9)
    minibatch models                 Adam, with natural gradients of q(u) if the likelihood is
                                     Gaussian and q_sqrt full (`TSVGP`, `BTSVGP`, `PEPSVGP`, `APEP`,
                                     GPflow's `SVGP`, ...)
    ===============================  ===============================================================

    The optimizers work in coordinates that do not depend on units: logarithms of positive
    parameters, inducing points over the standard deviations of their columns (see
    :class:`gpflow_pep.training.Scipy`). L-BFGS trains in phases:

    1. It compares starts: the present parameters, and trainable lengthscales at 1, 0.3 and 0.1
       times a column's standard deviation times the square root of the number of columns. Streams
       start at the present parameters.
    2. From the best start it trains all but the inducing points. If the inputs then explain
       nothing, models without sites go on with all parameters, or from the next start.
    3. It trains all parameters, if `train_inducing`.

    Adam resets lengthscales that differ from these starts by more than a factor of 100.

    If a matrix cannot be factorized or a value is not finite, training stops and restores the last
    good parameters; a warning and the result give the reason. Ctrl-C ends training after the
    current evaluation, writes the checkpoint and returns the result so far with the status
    "interrupted"; the same call resumes. A second Ctrl-C, or the first with several workers, raises
    `KeyboardInterrupt`. Models with sites update them at the end until they converge.

    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> result = fit(PEPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10]), max_iterations=5)
    >>> result.status, result.iterations, result.objective[-1] > result.objective[0]
    ('limit', 5, True)

    :param data: for minibatch models only: X [N, D] and Y [N, P]; or a `tf.data.Dataset` of
        minibatches (X [n, D], Y [n, P]). A finite dataset is read repeatedly and must have
        `num_data` rows in each pass (the last batch may be dropped); an infinite dataset is not
        counted. `fit` does not shuffle it: use ``rows.unbatch().shuffle(10_000).batch(500)``, or
        ``rows.shuffle(100)`` for models of fixed blocks.
    :param optimizer: "lbfgs" (SciPy, all rows) or "adam"; None: as above.
    :param max_iterations: the largest number of L-BFGS iterations (default 2000) or Adam steps
        (default 5000).
    :param learning_rate: the learning rate of Adam.
    :param natural_step: step size of natural gradients, in (0, 1], if they are used; None: Adam
        trains q(u), too.
    :param train_inducing: whether trainable inducing variables are trained. None: yes, except for
        :class:`PEP` and its subclasses: it takes ten times the iterations and seldom improves
        predictions of well spread points (k-means).
    :param tolerance: L-BFGS has converged after 20 iterations that together gained less than this,
        in nats per row; with at most 50 trained numbers the last phase also after 5 that gained
        less than a fortieth of it, or a quarter with sites (with several latent functions up to
        150 numbers). By default held-out densities are about 0.01 nats per row below those after
        600 iterations; 1e-6 ends at an optimum to several digits.
    :param first_rows: the number of rows on which L-BFGS trains first, a random subset; for models
        of this library that store X and Y as arrays. Each further subset has ten times as many
        rows, and training continues from the end of the one before, with a few iterations on all
        rows at last. This saves time if rows are many: 10,000 mostly find the hyperparameters. It
        has no effect if there are fewer than twice `first_rows` rows. Records, patience and
        callback see the objective of the present rows, ``model.data``; the last record has all
        rows. None: train on all rows.
    :param n_restarts: the number of further starts from which L-BFGS trains all but the inducing
        points; the best objective is kept. Lengthscales of as many starts are drawn. At most 100.
        None: no starts are compared; the search begins at the present parameters. With Adam it
        must be 0.
    :param batch_size: rows per minibatch (Adam), on each worker; None: all rows, or 500 for
        minibatch models.
    :param held_out: X and Y of held-out rows, scored at every record.
    :param patience: stop after this many consecutive records without a better held-out score, and
        restore the parameters of the best score. Without `held_out`, stop after this many records
        without a better objective; L-BFGS then ends at its best parameters, Adam at its last
        parameters. None: no early stopping.
    :param interval: iterations between records (of objective and scores, in TensorBoard and, if
        due, in a checkpoint). Default: 1, or 100 with minibatches; with minibatches and sites it is
        rounded up to whole epochs.
    :param checkpoint: a file to write and, if it exists, to resume from: Adam continues exactly,
        L-BFGS restarts from its best parameters. A finished run returns its result again, with a
        reason that begins with "Nothing was trained", unless `max_iterations` is larger (best by a
        multiple of `interval`, or by whole epochs for a model with sites). A checkpoint of a
        different model, data or public settings is rejected; functions and classes are compared by
        name. With a dataset the resumed run begins a new pass, and only types and shapes of the
        data are compared.
    :param checkpoint_seconds: the minimum number of seconds between checkpoints; ``math.inf``:
        write only at the end.
    :param tensorboard: a directory for TensorBoard: objective, parameters, scores; for D <= 2 plots
        of predictions.
    :param seed: seed for the order of minibatches, the starts of `n_restarts` and the subsets of
        `first_rows`.
    :param callback: called at every record with the iteration, from 1, and the objective in nats.
        If it raises `StopIteration`, training ends with the status "stopped early", and the same
        call resumes. It must not replace the data of the model.
    :param progress: show a progress bar.
    :param jit_compile: whether XLA compiles objective and gradient. If they are not finite, they
        are evaluated again without XLA, because compiled code cannot raise errors.
    :raises ValueError: naming the invalid argument or, after restoring the last good parameters,
        the invalid batch.
    :raises tf.errors.InvalidArgumentError, FloatingPointError: if the first evaluation of the
        objective fails.
    :raises NotImplementedError: if XLA cannot compile the objective.
    """
    options = FitOptions(
        optimizer=optimizer,
        max_iterations=max_iterations,
        learning_rate=learning_rate,
        natural_step=natural_step,
        train_inducing=train_inducing,
        tolerance=tolerance,
        first_rows=first_rows,
        n_restarts=n_restarts,
        batch_size=batch_size,
        held_out=held_out,
        patience=patience,
        interval=interval,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
        seed=seed,
        callback=callback,
        progress=progress,
        jit_compile=jit_compile,
    )
    return train(model, options, data)


def train(
    model: GPModel, options: FitOptions, data: RegressionData | tf.data.Dataset | None = None
) -> FitResult:
    """Train a model as :func:`fit` does, with these options."""
    workers = objectives.workers_of(model)
    check_data(model, data, workers)
    is_dataset = isinstance(data, tf.data.Dataset)
    options = options.checked(model, is_dataset=is_dataset)
    if options.jit_compile and workers.count > 1:
        raise ValueError("jit_compile must be False if several workers train, got True.")
    sync_trainable(model.variables)
    rows, objective = _rows_and_objective(model, data, workers, options)
    objective.training_step.jit_compile = options.jit_compile
    phases = _phases(model, objective.variables, options.train_inducing)
    interval = options.interval or objective.default_interval
    interval = -(-interval // objective.interval) * objective.interval  # rounded up to a multiple
    options = replace(options, interval=interval, callback=keeping_data(options.callback, model))
    scores = None
    if options.held_out is not None:
        scores = HeldOut(model, options.held_out)
    checkpoints = _checkpoints(model, data if is_dataset else rows, workers, options)
    folder = folder_of(options.tensorboard, workers)
    with (
        _reporting_lost_workers(workers),
        objectives.without_warnings(model),
        objectives.restored(model, "mixed_precision"),
        recorded_interruption(enabled=workers.count == 1) as interrupted,
        _progress_bar(options) as progress_bar,
        closed_writer(folder),
    ):
        history = History(
            options=options,
            variables=objective.variables,
            interval=interval,
            progress_bar=progress_bar,
            scores=scores,
            checkpoints=checkpoints,
            interrupted=interrupted,
        )
        if folder is not None:
            history.monitor = monitor(model, history, folder, rows or model.data)
        outcome = Outcome(CONVERGED, "Nothing is trainable.")
        if phases[-1]:
            minimize = _minimizer(objective, history, phases, _num_rows(model, rows))
            outcome = _trained(minimize, objective, history, workers)
        restored = sites = energy = None
        if outcome.status == EARLY and not history.stopped_by_callback:
            restored = history.restore_best()
        if isinstance(objective, SitesObjective):
            sites = objective.converge()
            energy = sites.log_evidence + float(model.log_prior_density())
            before = history.objective[-1] if history.objective else energy
            outcome = _judged(outcome, sites, before, energy)
            if outcome.status == CONVERGED and not objective.model._has_exact_gradient():
                reason = f"{outcome.reason} The gradient is approximate: the optimum is, too."
                outcome = Outcome(EARLY, reason)
        outcome = _with_jitter(outcome, model)
        history.close(restored, energy)
    if outcome.status == FAILED or interrupted():
        warn(outcome.reason)
    return history.result(outcome, sites)


def _rows_and_objective(
    model: GPModel, data: object, workers: Workers, options: FitOptions
) -> tuple[Batch | None, Objective]:
    """Return the rows, if they are given (of a dataset, the first batch), and the objective."""
    if data is None:
        return None, _own_objective(model, options)
    if not isinstance(data, tf.data.Dataset):
        rows = rows_for(model, data)
        return rows, _objective_of_rows(model, rows, workers, options)
    later = dataset_batches(model, data)
    first = next(later)
    batches = chain([first], later)
    return first, objectives.MinibatchObjective(model, lambda step: next(batches))


def _own_objective(model: GPModel, options: FitOptions) -> Objective:
    """Return the objective of a model with its own data."""
    if not isinstance(model, PEP):
        return Objective(model)
    if options.optimizer == "lbfgs":
        return objectives.ConvergedSitesObjective(model)
    if options.batch_size is None:
        return SitesObjective(model)
    _check_batch_size(options.batch_size, int(model.num_data))
    return objectives.SweptMinibatchObjective(model, options.batch_size, options.seed)


def _objective_of_rows(
    model: GPModel, rows: Batch, workers: Workers, options: FitOptions
) -> Objective:
    """Return the objective of this worker's X and Y, on all rows or on minibatches."""
    X, Y = rows
    N = int(workers.gather(len(X)).sum())
    mean = None
    if workers.count > 1:
        # Each worker's estimate is weighted by its share of the rows.
        mean = compiled(lambda values: workers.sums([len(X) / N * value for value in values]))
    size = len(X)
    if options.optimizer == "adam":
        size = options.batch_size or min(len(X), 500)
    _check_batch_size(size, len(X))
    num_data = getattr(model, "num_data", None)
    if num_data is not None:
        num_data = int(tf.convert_to_tensor(num_data))
    if num_data != N and not (num_data is None and size == N):
        raise ValueError(f"num_data of the model must be {N}, the rows of data, got {num_data}.")
    if options.optimizer == "lbfgs":
        tensors = tuple(map(tf.constant, rows))
        return Objective(model, lambda step: tensors, mean)
    fixed = bool(getattr(model, "minibatch_is_block", False))  # rows of a block must stay together
    minibatches = Minibatches(len(X), size, fixed=fixed, seed=options.seed)

    def minibatch(step: int) -> Batch:
        indices = minibatches.rows(step)
        return X[indices], Y[indices]

    return objectives.MinibatchObjective(model, minibatch, mean)


def _check_batch_size(batch_size: int, num_rows: int) -> None:
    if batch_size > num_rows:
        raise ValueError(
            f"batch_size must be at most the number of rows, {num_rows}, got {batch_size}."
        )


def _num_rows(model: GPModel, rows: Batch | None) -> int:
    """Return the number of rows of all workers; 1 for a model that does not state its data."""
    data = rows or getattr(model, "data", None)
    number = getattr(model, "num_data", None)
    if number is None and isinstance(data, tuple):
        number = tf.shape(data[1])[0]
    return int(tf.convert_to_tensor(1 if number is None else number))


def _phases(
    model: GPModel, variables: list[tf.Variable], train_inducing: bool | None
) -> list[list[tf.Variable]]:
    """Return the variables of each phase: all but the inducing variable's, then all."""
    inducing_variable = getattr(model, "inducing_variable", None)
    of_points = {id(each) for each in getattr(inducing_variable, "trainable_variables", ())}
    variables = [each for each in variables if each.numpy().size > 0]
    others = [each for each in variables if id(each) not in of_points]
    if train_inducing is None:
        train_inducing = not isinstance(model, PEP)
    if not train_inducing:
        return [others]
    if 0 < len(others) < len(variables):
        return [others, variables]
    return [variables]


def _checkpoints(
    model: GPModel, data: Batch | tf.data.Dataset | None, workers: Workers, options: FitOptions
) -> Checkpoints | None:
    """Return the checkpoints, if there are any; check that all workers run the same training."""
    if options.checkpoint is None and workers.count == 1:
        return None
    run = run_identity(model, data) | options.identity()
    if workers.count > 1:
        run = check_same_run(workers, model, run)
    if options.checkpoint is None:
        return None
    return Checkpoints(options.checkpoint, run, options.checkpoint_seconds, writes=workers.is_chief)


def _minimizer(
    objective: Objective, history: History, phases: list[list[tf.Variable]], num_rows: int
) -> Adam | LBFGS | Subsets:
    """Return the optimizer; for many rows, the one that begins on subsets of them."""
    if history.options.optimizer == "adam":
        return Adam(objective, history, phases[-1])
    numbers = stages(history.options.first_rows, num_rows)
    minimize = LBFGS(objective, history, phases, numbers[0])
    if len(numbers) == 1:
        return minimize
    return Subsets(minimize, history, objective.model, numbers)


def _trained(
    minimize: Adam | LBFGS | Subsets, objective: Objective, history: History, workers: Workers
) -> Outcome:
    """Train from the checkpoint, if there is one. A finished run goes on only to a larger limit."""
    ended = history.resume(minimize.state)
    if workers.count > 1:
        check_same_start(workers, history.iterations, objective.model)
    steps = history.options.steps
    if history.iterations > steps:
        status, reason = ended or (LIMIT, "")
        done = f"the checkpoint has {history.iterations} iterations, max_iterations={steps}."
        return Outcome(status, f"Nothing was trained: {done} {reason}".rstrip())
    if ended is not None and (ended.status != LIMIT or history.is_over):
        reason = f"Nothing was trained: the run in the checkpoint has ended. {ended.reason}"
        return Outcome(ended.status, reason)
    try:
        outcome = minimize()
    except FAILURES as error:
        minimize.restore()
        objective.reset()
        if not isinstance(error, UnreadableData):
            objective.check_data()
        if history.iterations == 0 or error is history.callback_error:
            raise
        if isinstance(minimize, Adam):
            history.discard_last()
        reason = f"Stopped, and the last good parameters restored: {reason_of(error)}"
        outcome = Outcome(FAILED, reason)
    except BaseException:
        minimize.restore()
        raise
    resumes = outcome.status in (FAILED, INTERRUPTED) or history.stopped_by_callback
    history.save(None if resumes else outcome)
    return outcome


def _progress_bar(options: FitOptions) -> AbstractContextManager[object]:
    """Return a bar or an empty context: even a disabled `tqdm` makes a lock between processes."""
    if not options.progress or sys.stderr is None:
        return nullcontext()
    return tqdm(total=options.steps, unit="it", mininterval=0.5)


@contextmanager
def _reporting_lost_workers(workers: Workers) -> Iterator[None]:
    """Raise a `RuntimeError` if a collective operation fails because a worker has stopped."""
    try:
        yield
    except _LOST_WORKERS as error:
        if workers.count == 1:
            raise
        raise RuntimeError(
            "a worker has stopped, or a collective operation has failed on worker "
            f"{workers.index}. Stop all {workers.count} workers and restart them: training resumes "
            "from the checkpoint, if one was given."
        ) from error


def _with_jitter(outcome: Outcome, model: GPModel) -> Outcome:
    """Add a raised jitter to the reason; print it if it changes predictions noticeably."""
    if not isinstance(model, InducingVariableGP):
        return outcome
    raised, variance = model._raised_jitter()
    if raised == 0.0:
        return outcome
    found = f"Kuu was not positive definite; its jitter was raised to {raised:.0e}."
    if raised > _NOTICED * variance and sys.stderr is not None:
        print(f"gpflow_pep: {found}", file=sys.stderr)
    return Outcome(outcome.status, f"{outcome.reason} {found}")


def _judged(outcome: Outcome, sites: SitesStatus, before: float, energy: float) -> Outcome:
    """Return the outcome at converged sites; `before` is the objective before they converged."""
    status, reason = outcome
    # A larger drop than loose sites cause.
    if status == CONVERGED and energy < before - 1e-2 * (1.0 + abs(before)):
        status = FAILED
        reason += (
            " The sites had not converged in training: at converged sites the objective is "
            f"{energy:.6g}, not {before:.6g}. Try a larger max_sweeps."
        )
    if not sites.converged:
        if status == CONVERGED:
            status = FAILED
        reason += (
            f" The sites have not converged: the change is {sites.change:.1e} after "
            f"{sites.sweeps} sweeps. Try Softmax for several classes, more inducing points, or a "
            "smaller alpha."
        )
    return Outcome(status, reason)
