"""
Train one GP classifier on one split of a data set and score its predictions.

    python -m experiments.classification with dataset=banana model=PEP alpha=0.5 M=50
    python -m experiments.classification print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The run is recorded in runs/,
with logs for TensorBoard: tensorboard --logdir runs. `experiments.papers` runs the protocols of the
papers.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import logging
from copy import deepcopy
from typing import Any

from sacred.run import Run

from experiments import datasets
from experiments.ingredients.classifier import build_classifier, gp, is_lower_bound
from experiments.ingredients.data import labeled_data, load_labeled
from experiments.ingredients.monte_carlo import MonteCarlo
from experiments.ingredients.training import train, training
from experiments.recording.experiment import RecordedExperiment
from experiments.recording.predictions import classification_arrays, inducing_points, save
from experiments.recording.scalars import scalar_log
from experiments.recording.scores import classification_scores, hyperparameters, loo_nlpd

ex = RecordedExperiment("classification", ingredients=[labeled_data, gp, training])


@ex.config
def _config() -> None:
    # show a progress bar
    progress = True

    # MCMC: number of samples, after as many that adapt the size of a step
    samples = 200

    training = {"maxiter": 200}


@ex.automain
def classification(
    gp: dict[str, Any], progress: bool, samples: int, _run: Run, _log: logging.Logger, _seed: int
) -> dict[str, Any]:
    """Train, log, score; the result has the evidence in nats per training point."""
    dataset = load_labeled()
    data = (dataset.X_train, dataset.Y_train)
    model = build_classifier(*data, len(datasets.describe(dataset.name).classes))
    Z_start = inducing_points(model)

    with scalar_log(_run) as write:

        def log(iteration: int, seconds: float) -> None:
            # Tracing and first updates of sites are part of the measured time: they must not happen
            # here.
            scored = model if iteration else deepcopy(model)
            scores = classification_scores(scored, dataset)
            write(iteration, {"seconds": seconds})
            write(iteration, scores, "test/")
            write(iteration, hyperparameters(scored), "parameters/")

        status = train(model, data, log, progress)
        write(status.iterations, {"objective_per_point": status.objective_per_point})
    if isinstance(model, MonteCarlo):
        model.sample(samples, _seed)

    if not status.converged and not status.at_limit:
        _log.warning(status.message)
    save(_run, classification_arrays(model, dataset, Z_start))
    return {
        "objective_kind": "lower bound" if is_lower_bound(gp) else "approximate log evidence",
        **classification_scores(model, dataset),
        "loo_nlpd": loo_nlpd(model),
        **status.with_sizes(dataset),
    }
