"""The training ingredient of classification: models with sites, and those with a q(u) of their own."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
from sacred import Ingredient

from experiments.ingredients.svgp import ExternalModel, objective, train_svgp
from experiments.recording.experiment import SAVE_GIT_INFO
from gpflow_pep import PEP
from gpflow_pep.datasets import Dataset
from gpflow_pep.training import OPTIMIZERS, fit

site_training = Ingredient("training", save_git_info=SAVE_GIT_INFO)

Report = Callable[[int, float, float], None]
"""
Called after iterations with their number, from 1, the last log evidence and the seconds of training so far; for models
with sites in minibatch training once an epoch.
"""


@dataclass(frozen=True)
class SiteTraining:
    """How a training ended."""

    log_evidence: float
    """The model's log evidence, at converged sites if they did, in nats."""

    iterations: int
    """Iterations of L-BFGS, or steps of Adam."""

    seconds: float
    """Wall time, tracing of the graph included, the reports not."""

    converged: bool
    """Whether the optimizer says that it has converged (Adam never does) and the sites have."""

    message: str
    """Why it stopped."""

    sweeps: int | None
    """Sweeps of the last update of the sites; None: the model has none."""

    sites_change: float | None
    """The largest change of a marginal, in its standard deviations, that another sweep would have made."""


@site_training.config
def _config() -> None:
    # lbfgs (on all rows) or adam; adam with a batch_size updates the sites of a minibatch once a step, and a q(u) by
    # one natural gradient
    optimizer = "lbfgs"

    # iterations: L-BFGS does at most that many, Adam exactly
    maxiter = 200

    # Adam's learning rate
    learning_rate = 0.01

    # rows of a minibatch, for adam; None: all rows
    batch_size = None

    # adam: the step of the natural gradient of q(u); None: q(u) is trained by Adam with everything else
    natural_step = 0.1

    # iterations from one entry in the logs to the next
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
    Learn hyperparameters and q(u). A model with sites that cannot go on stops, and its message says why.

    :raises ValueError: naming the entry of the configuration that cannot be used.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer is {optimizer!r}; accepted are {', '.join(OPTIMIZERS)}.")
    if batch_size is not None and optimizer != "adam":
        raise ValueError(f"batch_size is {batch_size}; with optimizer={optimizer} only None is accepted.")
    watch = _Stopwatch(report)
    if not isinstance(model, PEP):
        options = {"maxiter": maxiter, "learning_rate": learning_rate, "batch_size": batch_size, "seed": _seed}
        return _without_sites(model, dataset, watch, optimizer=optimizer, natural_step=natural_step, **options)
    result = fit(
        model,
        optimizer=optimizer,
        max_iterations=maxiter,
        learning_rate=learning_rate,
        batch_size=batch_size,
        report=watch,
    )
    assert result.sites is not None  # a PEP's
    return SiteTraining(
        log_evidence=result.objective[-1],
        iterations=result.iterations,
        seconds=watch.seconds(),
        converged=result.converged,
        message=result.reason,
        sweeps=result.sites.sweeps,
        sites_change=result.sites.change,
    )


def _without_sites(model: ExternalModel, dataset: Dataset, watch: "_Stopwatch", **options: Any) -> SiteTraining:
    data = (dataset.X_train, dataset.Y_train)
    ended = train_svgp(model, data, lambda iteration, loss: watch(iteration, -loss), **options)
    seconds = watch.seconds()
    return SiteTraining(
        log_evidence=objective(model, data),
        iterations=ended.iterations,
        seconds=seconds,
        converged=ended.converged,
        message=ended.message,
        sweeps=None,
        sites_change=None,
    )


class _Stopwatch:
    """Passes reports on, and counts the time without them."""

    def __init__(self, report: Report):
        self._report = report
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Since it was made."""
        return time.perf_counter() - self._began

    def __call__(self, iteration: int, log_evidence: float) -> None:
        """Report, and stop the time meanwhile."""
        seconds = self.seconds()
        self._report(iteration, log_evidence, seconds)
        self._began = time.perf_counter() - seconds


@site_training.capture
def logs_between(last: int, iteration: int, log_interval: int) -> bool:
    """Whether the logs get an entry after this iteration, when `last` was the one reported before it."""
    return iteration // log_interval > last // log_interval
