"""The training ingredient of classification, for models with sites and for minibatch models."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from dataclasses import dataclass

import gpflow
from gpflow.base import RegressionData
from sacred import Ingredient

from experiments.datasets import Dataset
from experiments.ingredients.adam import Adam
from experiments.ingredients.stopwatch import Report, Stopwatch
from experiments.recording.experiment import SAVE_GIT_INFO
from experiments.recording.scores import objective
from gpflow_pep import PEP
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.models.tied import TiedFactors
from gpflow_pep.training import OPTIMIZERS, fit, uninterrupted

site_training = Ingredient("training", save_git_info=SAVE_GIT_INFO)


@dataclass(frozen=True)
class SiteTraining:
    """Result of a training."""

    log_evidence: float
    """The model's log evidence in nats, at converged sites if they converge."""

    iterations: int
    """Iterations of L-BFGS, or steps of Adam."""

    seconds: float
    """Wall time with tracing of the graph, without the reports."""

    converged: bool
    """True if the optimizer reports convergence (Adam never does) and the sites have converged."""

    message: str
    """Reason why it stopped."""

    sweeps: int | None
    """Sweeps of the last update of the sites; None if the model has no sites."""

    sites_change: float | None
    """Largest change of a marginal by another sweep, in its standard deviations."""


@site_training.config
def _config() -> None:
    # lbfgs (all rows) or adam; with a batch_size each step updates a minibatch's sites, or q(u) by a natural gradient
    optimizer = "lbfgs"

    # iterations, for L-BFGS at most
    maxiter = 200

    # Adam's learning rate
    learning_rate = 0.01

    # rows of a minibatch, for adam; None: all rows
    batch_size = None

    # adam: the step of the natural gradient of q(u); None: q(u) is trained by Adam with everything else
    natural_step = 0.1

    # iterations between entries in the logs
    log_interval = 10


@site_training.capture
def train_classifier(
    model: gpflow.models.GPModel,
    dataset: Dataset,
    report: Report,
    optimizer: str,
    maxiter: int,
    learning_rate: float,
    batch_size: int | None,
    natural_step: float | None,
    _seed: int,
) -> SiteTraining:
    """
    Learn hyperparameters and q(u). If training cannot continue it stops, and its message has the reason.

    :raises ValueError: if an entry of the configuration is invalid.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer is {optimizer!r}; accepted are {', '.join(OPTIMIZERS)}.")
    if batch_size is not None and optimizer != "adam":
        raise ValueError(f"batch_size is {batch_size}; with optimizer={optimizer} only None is accepted.")
    watch, data, N = Stopwatch(report), (dataset.X_train, dataset.Y_train), len(dataset.X_train)
    sites, size = isinstance(model, PEP), min(batch_size or N, N)
    if optimizer == "adam" and natural_step is not None and not sites:
        batches = Minibatches(N, size, seed=_seed)
        _by_natural_gradients(model, data, batches, watch, maxiter, learning_rate, natural_step)
        seconds, message = watch.seconds(), f"Adam: max_iterations={maxiter} was reached."
        return SiteTraining(objective(model, data), maxiter, seconds, False, message, None, None)
    result = uninterrupted(
        fit(
            model,
            None if sites else data,
            optimizer=optimizer,
            max_iterations=maxiter,
            learning_rate=learning_rate,
            natural_step=None,
            train_inducing=True,  # if they are trainable
            batch_size=batch_size if sites or optimizer == "lbfgs" else size,
            interval=1,
            seed=_seed,
            callback=watch,
        )
    )
    seconds = watch.seconds()
    return SiteTraining(
        log_evidence=objective(model, data) if result.sites is None else result.objective[-1],
        iterations=result.iterations,
        seconds=seconds,
        converged=result.converged,
        message=result.reason,
        sweeps=None if result.sites is None else result.sites.sweeps,
        sites_change=None if result.sites is None else result.sites.change,
    )


def _by_natural_gradients(
    model: gpflow.models.SVGP | TiedFactors,
    data: RegressionData,
    batches: Minibatches,
    watch: Stopwatch,
    steps: int,
    learning_rate: float,
    natural_step: float,
) -> None:
    adam = Adam(model, learning_rate, natural_step)
    for step in range(steps):
        rows = batches.rows(step)
        watch(step + 1, -adam(*(part[rows] for part in data)))


@site_training.capture
def logs_between(last: int, iteration: int, log_interval: int) -> bool:
    """Return True if the logs get an entry after this iteration; `last` is the last reported iteration."""
    return iteration // log_interval > last // log_interval
