"""The training ingredient: trains a model with `gpflow_pep.fit` and says how that ended."""

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
from gpflow_pep.training.objectives import training_step

training = Ingredient("training", save_git_info=SAVE_GIT_INFO)

StochasticRegression = gpflow.models.SVGP | StructuredSVGP


@dataclass(frozen=True)
class Training:
    """How a training ended."""

    iterations: int
    """Iterations done."""

    seconds: float
    """Wall time, without tracing the objective and without the reports."""

    converged: bool
    """Whether the optimizer says that it has converged; Adam never says so."""

    message: str
    """Why it stopped."""


@training.config
def _config() -> None:
    # lbfgs (on the full data) or adam; of SVGP, TSVGP and BTSVGP always adam
    optimizer = "lbfgs"

    # iterations: L-BFGS does at most that many, Adam exactly
    maxiter = 500

    # Adam's learning rate
    learning_rate = 0.01

    # rows of a minibatch of SVGP, TSVGP and BTSVGP, at most; those of BTSVGP are fixed blocks
    batch_size = 500

    # iterations from one entry in the logs to the next
    log_interval = 10


@training.capture
def batches_of(model: gpflow.models.GPModel, num_data: int, seed: int, batch_size: int) -> Minibatches | None:
    """Minibatches that `train` trains the model on, given the same seed; None where it trains on all rows at once."""
    return minibatches(model, num_data, batch_size, seed) if isinstance(model, StochasticRegression) else None


def minibatches(model: StochasticRegression, num_data: int, size: int, seed: int) -> Minibatches:
    """Those of `fit`: fixed where they are blocks of the model's bound, in a new order every epoch elsewhere."""
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
    Maximize the objective over the trainable variables, whose best values stay (Adam: the last).

    :param batches: what :func:`batches_of` says.
    :param report: called after every iteration.
    :param seed: that of the minibatches.
    :raises ValueError: naming the entry of the configuration that cannot be used.
    :raises tf.errors.InvalidArgumentError, FloatingPointError: where the objective cannot be computed at the start.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer is {optimizer!r}; accepted are {', '.join(OPTIMIZERS)}.")
    if maxiter == 0:
        return Training(0, 0.0, False, "Not trained: maxiter is 0.")
    first = () if batches is None else tuple(part[batches.rows(0)] for part in data)
    training_step(model)(*first)  # traces what fit then uses
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
    """Whether the logs get an entry after this iteration."""
    return iteration % log_interval == 0
