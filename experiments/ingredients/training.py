"""The training ingredient: minimises a model's training loss and says how that ended."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import gpflow
from sacred import Ingredient

from experiments.optimisers import Report, Training, adam, lbfgs
from experiments.recording import SAVE_GIT_INFO

training = Ingredient("training", save_git_info=SAVE_GIT_INFO)


@training.config
def _config() -> None:
    # scipy (L-BFGS on the full data) or adam
    optimiser = "scipy"

    # iterations: L-BFGS does at most that many, Adam exactly
    maxiter = 500

    # Adam's learning rate
    learning_rate = 0.01

    # iterations from one entry in the logs to the next
    log_interval = 10


@training.capture
def train(model: gpflow.models.GPModel, report: Report, optimiser: str, maxiter: int, learning_rate: float) -> Training:
    """
    Minimise the training loss over the trainable variables, which are left at the last iterate.

    :param report: called after every iteration; see :data:`Report`.
    :raises FloatingPointError: where the loss is not finite.
    :raises tf.errors.InvalidArgumentError: where a matrix cannot be factorised.
    """
    loss, variables = model.training_loss_closure(compile=False), model.trainable_variables
    if optimiser == "scipy":
        return lbfgs(loss, variables, maxiter, report)
    if optimiser == "adam":
        return adam(loss, variables, maxiter, learning_rate, report)
    raise ValueError(f"optimiser is {optimiser!r}; accepted are scipy, adam.")


@training.capture
def is_logged(iteration: int, log_interval: int) -> bool:
    """Whether the logs get an entry after this iteration."""
    return iteration % log_interval == 0
