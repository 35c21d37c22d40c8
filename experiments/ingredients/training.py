"""The training ingredient: train a model with `gpflow_pep.fit`, and report how it ended."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from dataclasses import dataclass

import gpflow
from gpflow.base import RegressionData
from sacred import Ingredient

from experiments.ingredients.stopwatch import Report, Stopwatch
from experiments.recording.experiment import SAVE_GIT_INFO
from gpflow_pep import BTSVGP
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.models.structured_svgp import StructuredSVGP
from gpflow_pep.training import OPTIMIZERS, fit, uninterrupted
from gpflow_pep.training.objectives import TrainingStep

training = Ingredient("training", save_git_info=SAVE_GIT_INFO)

StochasticRegression = gpflow.models.SVGP | StructuredSVGP


@dataclass(frozen=True)
class Training:
    """Result of a training."""

    iterations: int
    """Iterations done."""

    seconds: float
    """Wall time, without tracing the objective and without the reports."""

    converged: bool
    """True if the optimizer reports convergence; Adam never does."""

    message: str
    """Reason why it stopped."""


@training.config
def _config() -> None:
    # lbfgs (on the full data) or adam; SVGP, TSVGP and BTSVGP always use adam
    optimizer = "lbfgs"

    # iterations, for L-BFGS at most
    maxiter = 500

    # Adam's learning rate
    learning_rate = 0.01

    # rows of a minibatch of SVGP, TSVGP and BTSVGP, at most; BTSVGP has fixed blocks
    batch_size = 500

    # iterations between entries in the logs
    log_interval = 10


@training.capture
def batches_of(model: gpflow.models.GPModel, num_data: int, seed: int, batch_size: int) -> Minibatches | None:
    """Return the minibatches of `train` for this seed; None if it trains on all rows at once."""
    return minibatches(model, num_data, batch_size, seed) if isinstance(model, StochasticRegression) else None


def minibatches(model: StochasticRegression, num_data: int, size: int, seed: int) -> Minibatches:
    """Return the minibatches of `fit`: fixed if they are blocks of the model's bound, else shuffled every epoch."""
    return Minibatches(num_data, min(size, num_data), fixed=isinstance(model, BTSVGP), seed=seed)


@training.capture
def train(
    model: gpflow.models.GPModel,
    data: RegressionData,
    batches: Minibatches | None,
    report: Report,
    seed: int,
    optimizer: str,
    maxiter: int,
    learning_rate: float,
) -> Training:
    """
    Maximize the objective over the trainable variables, which keep their best values (Adam: the last).

    :param batches: result of :func:`batches_of`.
    :param report: called after every iteration.
    :param seed: seed of the minibatches.
    :raises ValueError: if an entry of the configuration is invalid.
    :raises tf.errors.InvalidArgumentError, FloatingPointError: if the objective cannot be computed at the start.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer is {optimizer!r}; accepted are {', '.join(OPTIMIZERS)}.")
    if maxiter == 0:
        return Training(0, 0.0, False, "Not trained: maxiter is 0.")
    first = () if batches is None else tuple(part[batches.rows(0)] for part in data)
    TrainingStep(model)(*first)  # traces the functions of fit
    watch = Stopwatch(report)
    result = uninterrupted(
        fit(
            model,
            None if batches is None else data,
            optimizer=optimizer if batches is None else "adam",
            max_iterations=maxiter,
            learning_rate=learning_rate,
            natural_step=None,
            batch_size=None if batches is None else batches.size,
            interval=1,
            seed=seed,
            callback=watch,
        )
    )
    return Training(result.iterations, watch.seconds(), result.converged, result.reason)


@training.capture
def is_logged(iteration: int, log_interval: int) -> bool:
    """Return True if the logs get an entry after this iteration."""
    return iteration % log_interval == 0
