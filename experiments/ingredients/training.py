"""The training ingredient: minimizes a model's training loss and says how that ended."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import gpflow
from gpflow.base import RegressionData
from sacred import Ingredient

from experiments.ingredients.optimizers import Report, Training, adam, lbfgs
from experiments.ingredients.svgp import StochasticRegression, minibatches
from experiments.recording.experiment import SAVE_GIT_INFO
from gpflow_pep.minibatches import Minibatches

training = Ingredient("training", save_git_info=SAVE_GIT_INFO)


@training.config
def _config() -> None:
    # scipy (L-BFGS on the full data) or adam; of SVGP, TSVGP and BTSVGP always adam
    optimizer = "scipy"

    # iterations: L-BFGS does at most that many, Adam exactly
    maxiter = 500

    # Adam's learning rate
    learning_rate = 0.01

    # rows of a minibatch of SVGP, TSVGP and BTSVGP, at most; those of BTSVGP are fixed blocks
    batch_size = 500

    # iterations from one entry in the logs to the next
    log_interval = 10


@training.capture
def batches_of(model: gpflow.models.GPModel, num_data: int, batch_size: int, _seed: int) -> Minibatches | None:
    """Minibatches for the model, other ones after each call; None of a model that is trained on all rows at once."""
    return minibatches(model, num_data, batch_size, _seed) if isinstance(model, StochasticRegression) else None


@training.capture
def train(
    model: gpflow.models.GPModel,
    data: RegressionData,
    batches: Minibatches | None,
    report: Report,
    optimizer: str,
    maxiter: int,
    learning_rate: float,
) -> Training:
    """
    Minimize the training loss over the trainable variables, which are left at the last iterate.

    :param batches: what :func:`batches_of` says.
    :param report: called after every iteration; see :data:`Report`.
    :raises FloatingPointError: where the loss is not finite.
    :raises tf.errors.InvalidArgumentError: where a matrix cannot be factorized.
    """
    variables = model.trainable_variables
    if batches is not None:
        loss = model.training_loss_closure(iter(batches.dataset(data)), compile=False)
        return adam(loss, variables, maxiter, learning_rate, report)
    loss = model.training_loss_closure(compile=False)
    if optimizer == "scipy":
        return lbfgs(loss, variables, maxiter, report)
    if optimizer == "adam":
        return adam(loss, variables, maxiter, learning_rate, report)
    raise ValueError(f"optimizer is {optimizer!r}; accepted are scipy, adam.")


@training.capture
def is_logged(iteration: int, log_interval: int) -> bool:
    """Whether the logs get an entry after this iteration."""
    return iteration % log_interval == 0
