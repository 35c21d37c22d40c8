"""
Train one GP regression model, sparse or exact, on one split of a data set and score its
predictions.

    python -m experiments.regression with dataset=boston split=3 model=PEPR alpha=0.5 M=100
    python -m experiments.regression print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The run is recorded in runs/,
with logs for TensorBoard: tensorboard --logdir runs. `experiments.papers` runs the protocols of the
papers.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from typing import Any

from sacred.run import Run
from scipy.stats import gmean

from experiments.ingredients.data import data, load
from experiments.ingredients.model import build, gp, objective_kind
from experiments.ingredients.training import batches_of, train, training
from experiments.recording.experiment import RecordedExperiment
from experiments.recording.predictions import regression_arrays, save
from experiments.recording.scalars import scalar_log
from experiments.recording.scores import (
    hyperparameters,
    noise_sd,
    objective_per_point,
    prediction_scores,
    scale,
)

ex = RecordedExperiment("regression", ingredients=[data, gp, training])


@ex.config
def _config() -> None:
    # show a progress bar
    progress = True


@ex.automain
def regression(gp: dict[str, Any], progress: bool, _run: Run) -> dict[str, Any]:
    """
    Train, log, score; the result has objectives in nats per training point, scores in the targets'
    unit, and the geometric mean of the lengthscales.
    """
    dataset = load()
    data = (dataset.X_train, dataset.Y_train)
    model = build(*data)
    batches = batches_of(model, len(data[0]))

    with scalar_log(_run) as write:

        def log(iteration: int, seconds: float) -> None:
            values = {
                "objective_per_point": objective_per_point(model, data, batches),
                "noise_sd": noise_sd(model),
                "seconds": seconds,
            }
            write(iteration, values)
            write(iteration, prediction_scores(model, dataset), "test/")
            write(iteration, hyperparameters(model), "parameters/")

        status = train(model, data, log, progress)

    save(_run, regression_arrays(model, dataset))
    return {
        "objective_kind": objective_kind(gp["model"]),
        **prediction_scores(model, dataset),
        "noise_sd": noise_sd(model),
        "scale": scale(model),
        "kernel_variance": float(model.kernel.variance.numpy()),
        "lengthscale": float(gmean(model.kernel.lengthscales.numpy())),
        **status.with_sizes(dataset),
    }
