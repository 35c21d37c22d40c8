"""One function that trains every model."""

import os
import warnings

import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin, InternalDataTrainingLossMixin
from tqdm import tqdm

from .. import validation
from ..ep import SitesStatus
from ..identity import fingerprint
from ..minibatches import Minibatches
from ..models.pep import PEP
from .adam import Adam
from .checkpoints import Checkpoints
from .held_out import HeldOut
from .history import History, Report
from .lbfgs import lbfgs
from .monitor import monitor
from .objectives import (
    FAILURES,
    ConvergedSitesObjective,
    MinibatchObjective,
    Objective,
    SitesObjective,
    SweptMinibatchObjective,
    quiet,
    rows_for,
    settle,
)
from .result import CONVERGED, EARLY, FAILED, LIMIT, Ending, FitResult
from .run_identity import run_identity

OPTIMIZERS = ("lbfgs", "adam")
_ITERATIONS = {"lbfgs": 500, "adam": 5000}
_BATCH_SIZE = 500
_INTERVAL = 100  # steps of minibatch training between records
_MAX_LOSS = 1e-2  # of the objective, relative, when the sites converge after training

Data = tuple[AnyNDArray, AnyNDArray]


def fit(
    model: GPModel,
    data: RegressionData | None = None,
    *,
    optimizer: str | None = None,
    max_iterations: int | None = None,
    learning_rate: float = 0.01,
    natural_step: float | None = 0.1,
    batch_size: int | None = None,
    held_out: RegressionData | None = None,
    patience: int | None = None,
    interval: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 10.0,
    tensorboard: str | os.PathLike[str] | None = None,
    seed: int = 0,
    report: Report | None = None,
    progress: bool = False,
) -> FitResult:
    """
    Train a model of this library or of GPflow: its trainable variables are those that maximize its objective.

    =====================================  ==========================================================================
    models with data of their own          L-BFGS (`PEPR`, `TSGPR`, `BTSGPR`, `StreamingSGPR`, GPflow's `SGPR`, ...)
    :class:`PEP`, :class:`PEPClassifier`,  L-BFGS at converged sites; Adam at converged sites, or on minibatches whose
    :class:`StreamingPEP`                  sites are updated once a step (Bui, Yan and Turner 2017, sec. 3.9)
    models of minibatches                  Adam, with natural gradients of q(u) where the likelihood is Gaussian and
                                           q_sqrt full (`TSVGP`, `BTSVGP`, `PEPSVGP`, `APEP`, GPflow's `SVGP`, ...)
    =====================================  ==========================================================================

    Where a matrix cannot be factorized, or anything is not finite, training stops and the last good parameters come
    back; a warning and the result say why. In the end the sites of a model that has some are converged.

    :param data: X [N, D] and Y [N, P], of models of minibatches only.
    :param optimizer: "lbfgs" (SciPy, all rows) or "adam"; None: as above.
    :param max_iterations: iterations of L-BFGS, at most, 500 by default; steps of Adam, 5000 by default.
    :param learning_rate: Adam's.
    :param natural_step: of the natural gradients, where they apply, in (0, 1]; None: Adam trains q(u) too.
    :param batch_size: rows of a minibatch (Adam); None: all rows, or 500 of models of minibatches.
    :param held_out: X and Y of rows that are scored at every record.
    :param patience: stop after so many records in a row without a better score of the held-out rows, whose best
        parameters come back; or without a better objective. None: do not.
    :param interval: iterations from one record to the next: of objective and scores, in TensorBoard, and perhaps in a
        checkpoint. By default 1, in minibatch training 100, of a model with sites (rounded up to) an epoch.
    :param checkpoint: a file from which the same call goes on if it exists: with Adam as if nothing had happened, with
        L-BFGS from its best parameters. A call that had ended returns what it had returned, unless `max_iterations`
        is larger (whole records, or epochs of a model with sites, are best added). Another model, other data or
        settings are refused.
    :param checkpoint_seconds: the least time between two checkpoints, in seconds; ``math.inf`` writes one only at the
        end.
    :param tensorboard: a directory for TensorBoard: objective, parameters and scores, and for inputs of one or two
        dimensions pictures of predictions and inducing points.
    :param seed: of the order of minibatches.
    :param report: called at every record.
    :param progress: show a progress bar.
    :raises ValueError: naming the argument that cannot be used.
    :raises tf.errors.InvalidArgumentError, FloatingPointError: where nothing can be computed at the start.
    """
    arrays = _checked_data(model, data)
    batch_size = None if batch_size is None else validation.positive_integer(batch_size, "batch_size")
    optimizer = _checked_optimizer(model, optimizer, batch_size)
    steps = _ITERATIONS[optimizer] if max_iterations is None else max_iterations
    steps = validation.positive_integer(steps, "max_iterations")
    learning_rate = validation.positive_number(learning_rate, "learning_rate")
    natural_step = None if natural_step is None else validation.fraction(natural_step, "natural_step")
    seed = validation.seed(seed)
    checkpoint_seconds = validation.seconds(checkpoint_seconds, "checkpoint_seconds")
    patience = None if patience is None else validation.positive_integer(patience, "patience")
    objective = _objective(model, arrays, optimizer, batch_size, seed)
    interval = _checked_interval(objective, interval)
    scores = None if held_out is None else HeldOut(model, held_out)
    checkpoints = None
    if checkpoint is not None:
        run = {"optimizer": optimizer, "learning_rate": learning_rate, "natural_step": natural_step}
        run |= {"batch_size": batch_size, "seed": seed, "interval": interval, "patience": patience}
        run |= {"held_out": fingerprint(*map(np.asarray, held_out or ()))}
        checkpoints = Checkpoints(checkpoint, {**run, **run_identity(model, arrays)}, checkpoint_seconds)
    with quiet(model), tqdm(total=steps, unit="it", disable=not progress, mininterval=0.5) as bar:
        history = History(
            objective.variables,
            steps=steps,
            interval=interval,
            bar=bar,
            report=report,
            scores=scores,
            patience=patience,
            checkpoints=checkpoints,
        )
        if tensorboard is not None:
            shown = model.data if arrays is None else arrays
            names = [] if scores is None else scores.names
            history.watched = os.fspath(tensorboard)
            history.watch = monitor(model, tensorboard, history, interval=interval, data=shown, scores=names)
        adam = Adam(objective, learning_rate, natural_step) if optimizer == "adam" else None
        ending = history.resume(objective.state | ({} if adam is None else adam.state))
        if ending is None or (ending.status == LIMIT and not history.is_over):
            ending = lbfgs(objective, history, steps) if adam is None else adam(history)
            history.save(None if ending.status == FAILED else ending)
        if ending.status == EARLY:
            history.go_back_to_best()
        status = _settled(model)
    result = _result(history, ending, status)
    if result.status == FAILED:
        warnings.warn(result.reason, stacklevel=2)
    return result


def _objective(model: GPModel, data: Data | None, optimizer: str, batch_size: int | None, seed: int) -> Objective:
    if isinstance(model, PEP):
        if optimizer == "lbfgs":
            return ConvergedSitesObjective(model)
        return SitesObjective(model) if batch_size is None else SweptMinibatchObjective(model, batch_size, seed)
    if data is None:
        return Objective(model)
    N = len(data[0])
    size = N if optimizer == "lbfgs" else batch_size or min(N, _BATCH_SIZE)
    if size > N:
        raise ValueError(f"batch_size must be at most the number of rows, {N}, got {batch_size}.")
    num_data = getattr(model, "num_data", None)
    num_data = None if num_data is None else int(num_data)
    if num_data != N and not (num_data is None and size == N):
        raise ValueError(f"num_data of the model must be {N}, the rows of data, got {num_data}.")
    if optimizer == "lbfgs":
        return Objective(model, data)
    return MinibatchObjective(model, data, Minibatches(N, size, fixed=_in_blocks(model), seed=seed))


def _in_blocks(model: GPModel) -> bool:
    """Whether its minibatches are blocks that stay the same."""
    return bool(getattr(model, "minibatch_is_block", False))


def _checked_data(model: GPModel, data: RegressionData | None) -> Data | None:
    if isinstance(model, InternalDataTrainingLossMixin):
        if data is not None:
            raise ValueError(f"data must be None, since {type(model).__name__} has its own.")
        return None
    if not isinstance(model, ExternalDataTrainingLossMixin):
        raise ValueError(f"model must be one of gpflow_pep or GPflow with a training loss, got {type(model).__name__}.")
    if data is None:
        raise ValueError(f"data must be given, since {type(model).__name__} has none of its own.")
    return rows_for(model, data)


def _checked_optimizer(model: GPModel, optimizer: str | None, batch_size: int | None) -> str:
    external = isinstance(model, ExternalDataTrainingLossMixin)
    if optimizer is None:
        optimizer = "adam" if external else "lbfgs"
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {', '.join(map(repr, OPTIMIZERS))}, got {optimizer!r}.")
    if optimizer == "lbfgs" and _in_blocks(model):
        raise ValueError(f'optimizer must be "adam" for {type(model).__name__}, whose minibatches are its blocks.')
    if batch_size is not None:
        if optimizer != "adam":
            raise ValueError(f'batch_size must be None with optimizer="{optimizer}", got {batch_size!r}.')
        if not external and not isinstance(model, PEP):
            raise ValueError(f"batch_size must be None, since {type(model).__name__} needs all rows, got {batch_size}.")
    return optimizer


def _checked_interval(objective: Objective, interval: int | None) -> int:
    """A multiple of the objective's own."""
    if interval is None:
        return _INTERVAL if isinstance(objective, MinibatchObjective) else objective.interval
    return -(-validation.positive_integer(interval, "interval") // objective.interval) * objective.interval


def _settled(model: GPModel) -> SitesStatus | None:
    if not isinstance(model, PEP):
        return None
    try:
        return settle(model)
    except FAILURES:  # the sites of other hyperparameters may be of no use
        model.reset_sites()
        return settle(model)


def _result(history: History, ending: Ending, sites: SitesStatus | None) -> FitResult:
    objective, status, reason = list(history.objective), ending.status, ending.reason
    if sites is not None:
        before = objective[-1] if objective else -np.inf
        objective.append(sites.log_evidence)
        if status == CONVERGED and sites.log_evidence < before - _MAX_LOSS * (1.0 + abs(before)):
            status = FAILED
            reason += (
                f" That was at sites that had not converged: converged, they have an objective of "
                f"{sites.log_evidence:.6g}, not {before:.6g}. Try a larger max_sweeps."
            )
        if not sites.converged:
            status = FAILED if status == CONVERGED else status
            reason += f" The sites have not converged: the change is {sites.change:.1e} after {sites.sweeps} sweeps."
    held_out = {name: tuple(values) for name, values in history.held_out.items()}
    return FitResult(status, reason, history.iterations, tuple(objective), held_out, sites, history.seconds)
