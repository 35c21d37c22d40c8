"""The training ingredient: train a model with `gpflow_pep.fit`, with logs in its course."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian
from gpflow.models import SVGP, GPModel

from experiments.datasets import Dataset
from experiments.recording.experiment import ingredient_of
from experiments.recording.scores import objective_per_point
from gpflow_pep import BTSVGP
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.models.structured_svgp import StructuredSVGP
from gpflow_pep.models.tied import TiedFactors
from gpflow_pep.training import check_optimizer, fit, uninterrupted

training = ingredient_of("training")

_MINIBATCH_MODELS = (SVGP, StructuredSVGP, TiedFactors)

Log = Callable[[int, float], None]
"""Write logs, given the iteration and the seconds of training."""


@dataclass(frozen=True)
class Training:
    """Result of a training."""

    objective_per_point: float
    """The model's log evidence, or a bound on it, in nats, over N; at converged sites if they converge."""

    iterations: int
    """Iterations of L-BFGS, or steps of Adam."""

    seconds: float
    """Wall time with tracing of the graph, without logs."""

    converged: bool
    """True if the optimizer reports convergence (Adam never does) and the sites have converged."""

    message: str
    """Reason why it stopped."""

    sweeps: int | None
    """Sweeps of the last update of the sites; None if the model has no sites."""

    sites_change: float | None
    """Largest change of a marginal by another sweep, in its standard deviations."""

    at_limit: bool
    """True if it ended at the last iteration."""

    def with_sizes(self, dataset: Dataset) -> dict[str, Any]:
        """Return the entries with numbers of rows and inputs, for the result of a run."""
        N, D = dataset.X_train.shape
        return {**asdict(self), "N": N, "N_test": len(dataset.X_test), "D": D}


@training.config
def _config() -> None:
    # lbfgs (all rows) or adam; SVGP, TSVGP and BTSVGP in regression always use adam
    optimizer = "lbfgs"

    # iterations, for L-BFGS at most; 0: no training
    maxiter = 500

    # Adam's learning rate
    learning_rate = 0.01

    # rows of a minibatch, for adam; None: 500, but all rows for models with sites
    batch_size = None

    # iterations between entries in the logs
    log_interval = 10


@training.capture
def batches_of(
    model: GPModel, num_data: int, batch_size: int | None, _seed: int
) -> Minibatches | None:
    """
    Return the minibatches of the configuration; None for models that train on all rows.

    They are fixed if they are blocks of the model's bound, else shuffled every epoch.
    """
    if not isinstance(model, _MINIBATCH_MODELS):
        return None
    return Minibatches(
        num_data, min(batch_size or 500, num_data), fixed=isinstance(model, BTSVGP), seed=_seed
    )


@training.capture
def train(
    model: GPModel,
    data: RegressionData,
    log: Log,
    progress: bool,
    optimizer: str,
    maxiter: int,
    learning_rate: float,
    batch_size: int | None,
    log_interval: int,
    _seed: int,
) -> Training:
    """
    Maximize the objective over the trainable variables; if training cannot continue, the message has the reason.

    :param log: called at the start, after every `log_interval` iterations and at the end.
    :raises ValueError: if an entry of the configuration is invalid.
    :raises tf.errors.InvalidArgumentError, FloatingPointError: if the objective cannot be computed at the start.
    """
    check_optimizer(optimizer)
    batches = batches_of(model, len(data[0]))
    if batches is not None and isinstance(model.likelihood, Gaussian):
        optimizer = "adam"
    if batch_size is not None and optimizer != "adam":
        raise ValueError(
            f"batch_size is {batch_size}; with optimizer={optimizer} only None is accepted."
        )
    log(0, 0.0)
    if maxiter == 0:
        value = objective_per_point(model, data, batches)
        return Training(value, 0, 0.0, False, "Not trained: maxiter is 0.", None, None, True)
    began, last = time.perf_counter(), 0

    def report(iteration: int, _: float) -> None:
        nonlocal began, last
        seconds = time.perf_counter() - began
        # The end is logged below.
        if iteration // log_interval > last // log_interval and iteration < maxiter:
            log(iteration, seconds)
        last = iteration
        began = time.perf_counter() - seconds

    size = batch_size if batches is None else batches.size
    result = uninterrupted(
        fit(
            model,
            None if batches is None else data,
            optimizer=optimizer,
            max_iterations=maxiter,
            learning_rate=learning_rate,
            natural_step=None,
            train_inducing=True,  # if they are trainable
            batch_size=size if optimizer == "adam" else None,
            interval=1,
            seed=_seed if batches is None else batches.seed,
            callback=report,
            progress=progress,
        )
    )
    seconds = time.perf_counter() - began
    log(result.iterations, seconds)
    sites = result.sites
    return Training(
        objective_per_point=(
            objective_per_point(model, data, batches)
            if sites is None
            else result.objective[-1] / len(data[0])
        ),
        iterations=result.iterations,
        seconds=seconds,
        converged=result.converged,
        message=result.reason,
        sweeps=None if sites is None else sites.sweeps,
        sites_change=None if sites is None else sites.change,
        at_limit=result.iterations >= maxiter,
    )
