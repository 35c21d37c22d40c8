"""
Train one GP classifier on one split of a data set and score its predictions.

    python -m experiments.classification with dataset=banana model=PEP alpha=0.5 M=50
    python -m experiments.classification print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The run is recorded in runs/, with logs for
TensorBoard: tensorboard --logdir runs. Settings of the papers; further settings may follow:

    python -m experiments.classification with U3 dataset=pima split=3 M=50 alpha=0.5
    python -m experiments.classification with U4 M=200
    python -m experiments.classification with U6
    python -m experiments.classification with Q1 dataset=qp-sonar split=3 model=QP
    python -m experiments.classification with M1 dataset=wine split=3 M=8 alpha=1
    python -m experiments.classification with M4 model=APEP
    python -m experiments.classification with M5 model=APEP
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import logging
from copy import deepcopy
from typing import Any

from gpflow.models import GPModel
from sacred.run import Run
from sacred.utils import apply_backspaces_and_linefeeds
from tqdm import tqdm

from experiments import datasets
from experiments.ingredients.classifier import build_classifier, classifier_title, gp, is_lower_bound
from experiments.ingredients.data import labeled_data, load_labeled
from experiments.ingredients.site_training import logs_between, site_training, train_classifier
from experiments.recording.experiment import SAVE_GIT_INFO, RecordedExperiment, run_directory
from experiments.recording.predictions import inducing_points, save_probabilities
from experiments.recording.scalars import ScalarLog
from experiments.recording.scores import classification_scores, hyperparameters, loo_nlpd

_BAR_INTERVAL = 0.5  # seconds; a file keeps every state of the bar

ex = RecordedExperiment("classification", ingredients=[labeled_data, gp, site_training], save_git_info=SAVE_GIT_INFO)
# Record only the last state of a progress bar. (Sacred declares the attribute as None.)
ex.captured_out_filter = apply_backspaces_and_linefeeds  # type: ignore[assignment]


@ex.config
def _config() -> None:
    # show a progress bar
    progress = True


@ex.named_config
def U3() -> None:
    """Unifying PEP, six binary sets: minibatches of sites and Adam, without waiting for convergence."""
    data = {"dataset": "pima"}
    gp = {"model": "PEP", "M": 50}
    training = {"optimizer": "adam", "batch_size": 50, "maxiter": 2000, "learning_rate": 0.01, "log_interval": 100}


@ex.named_config
def U4() -> None:
    """Unifying PEP, even and odd digits of MNIST: the same with larger minibatches, pixels as they are."""
    data = {"dataset": "mnist-even-odd", "standardize": False}
    gp = {"model": "PEP", "M": 100}
    training = {"optimizer": "adam", "batch_size": 500, "maxiter": 6000, "learning_rate": 0.01, "log_interval": 240}


@ex.named_config
def U6() -> None:
    """Unifying PEP, ionosphere with an inducing point at every input and alpha = 1: EP for GP classification."""
    data = {"dataset": "iono"}
    gp = {"model": "PEP", "alpha": 1.0, "M": None, "max_jitter": 1e-2}


@ex.named_config
def Q1() -> None:
    """Quantile propagation: a dense GP, at most 10 inner sweeps and 40 iterations; compare model=PEP and QP."""
    data = {"dataset": "qp-ionosphere"}
    gp = {"model": "QP", "alpha": 1.0, "M": None, "max_jitter": 1e-2, "max_sweeps": 10}
    training = {"maxiter": 40}


@ex.named_config
def M1() -> None:
    """Multi-class: M is 5 % of the training rows, here of glass."""
    data = {"dataset": "glass"}
    gp = {"model": "PEP", "M": 10, "max_jitter": 1e-2}
    training = {"maxiter": 50, "log_interval": 1000}


@ex.named_config
def M4() -> None:
    """Multi-class: the ten digits of MNIST by minibatches of Adam, which trains q(u) too; pixels as they are."""
    data = {"dataset": "mnist", "standardize": False}
    gp = {"model": "ARPEP", "M": 200}
    training = {"optimizer": "adam", "batch_size": 200, "natural_step": None, "maxiter": 20_000, "log_interval": 500}


@ex.named_config
def M5() -> None:
    """Multi-class: delays of flights, the same (the paper has two million rows)."""
    data = {"dataset": "flights"}
    gp = {"model": "ARPEP", "M": 200}
    training = {"optimizer": "adam", "batch_size": 200, "natural_step": None, "maxiter": 20_000, "log_interval": 500}


@ex.automain
def classification(
    gp: dict[str, Any], training: dict[str, Any], progress: bool, _run: Run, _log: logging.Logger
) -> dict[str, Any]:
    """Train, log, score; the result has the evidence in nats per training point."""
    dataset = load_labeled()
    N, D = dataset.X_train.shape
    model = build_classifier(dataset.X_train, dataset.Y_train, len(datasets.describe(dataset.name).classes))
    Z_start = inducing_points(model)
    directory = run_directory(_run)
    title = f"{classifier_title(gp):21}"

    with (
        ScalarLog(_run, directory) as log,
        tqdm(total=training["maxiter"], desc=title, unit="it", mininterval=_BAR_INTERVAL, disable=not progress) as bar,
    ):
        last = 0

        def write(iteration: int, seconds: float, model: GPModel = model) -> None:
            scores = classification_scores(model, dataset)
            log.write(iteration, {"seconds": seconds, **{f"test/{name}": score for name, score in scores.items()}})
            log.write(iteration, {f"parameters/{name}": value for name, value in hyperparameters(model).items()})

        def report(iteration: int, log_evidence: float, seconds: float) -> None:
            nonlocal last
            bar.set_postfix_str(f"{log_evidence / N:.4f} nats per point", refresh=False)
            bar.update(iteration - last)
            if logs_between(last, iteration) and iteration < training["maxiter"]:  # the end is written below
                log.write(iteration, {"objective_per_point": log_evidence / N})
                write(iteration, seconds)
            last = iteration

        write(0, 0.0, deepcopy(model))  # tracing and updates of sites are part of the measured time
        status = train_classifier(model, dataset, report)
        bar.update(status.iterations - last)
        bar.total = status.iterations  # L-BFGS may stop before maxiter
        log.write(status.iterations, {"objective_per_point": status.log_evidence / N})
        write(status.iterations, status.seconds)

    if status.iterations < training["maxiter"] and not status.converged:
        _log.warning(status.message)
    if directory is not None:
        _run.add_artifact(save_probabilities(model, dataset, Z_start, directory))
    return {
        "objective_per_point": status.log_evidence / N,
        "objective_kind": "lower bound" if is_lower_bound(gp) else "approximate log evidence",
        **classification_scores(model, dataset),
        "loo_nlpd": loo_nlpd(model),
        "seconds": status.seconds,
        "iterations": status.iterations,
        "converged": status.converged,
        "message": status.message,
        "sweeps": status.sweeps,
        "sites_change": status.sites_change,
        "N": N,
        "N_test": len(dataset.X_test),
        "D": D,
    }
