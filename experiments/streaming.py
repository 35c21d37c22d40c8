"""
Learn from data that arrive in batches, and score the predictions after each batch.

    python -m experiments.streaming with dataset=pseudo-periodic model=STREAM alpha=0.5 M=100
    python -m experiments.streaming print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The run is recorded in runs/,
with logs for TensorBoard: tensorboard --logdir runs. `experiments.papers` runs the protocols of the
papers.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from sacred.run import Run
from tqdm import tqdm

from experiments import datasets
from experiments.ingredients.learner import (
    begin,
    build_learner,
    learner_gp,
    learner_title,
    stream_training,
)
from experiments.ingredients.stream import Batches, load_stream, stream_data
from experiments.learners.learner import Learner
from experiments.recording.experiment import RecordedExperiment
from experiments.recording.memory import peak_of
from experiments.recording.predictions import save
from experiments.recording.scalars import scalar_log
from experiments.recording.scores import hyperparameters
from gpflow_pep.data import metrics

_BAR_INTERVAL = 0.5  # seconds; a file keeps every state of the bar
_GRID = 300  # points of a drawn posterior
_SQUARE = 60  # points along either of two inputs

ex = RecordedExperiment("streaming", ingredients=[stream_data, learner_gp, stream_training])


@ex.config
def _config() -> None:
    # show a progress bar
    progress = True


def _scores(learner: Learner, X: Any, Y: Any, labels: bool) -> dict[str, float]:
    """Return the RMSE (labels: the error) and the mean log likelihood."""
    mean, variance = learner.predict(X)
    if labels:
        density = np.where(Y == 1.0, mean, 1.0 - mean)
        return {
            "error": float(np.mean((mean > 0.5) != Y)),
            "log_likelihood": float(np.mean(np.log(density))),
        }
    return {"rmse": metrics.rmse(Y, mean), "log_likelihood": -metrics.nlpd(Y, mean, variance)}


class _Course:
    """Scores and posteriors in the course of a stream."""

    def __init__(self, batches: Batches, labels: bool):
        self._batches, self._labels = batches, labels
        self.scores: dict[str, list[float]] = defaultdict(list)
        self._frames: dict[str, list[Any]] = defaultdict(list)
        self._grid: dict[str, Any] = {}
        D = batches.dataset.X_train.shape[1]
        if D == 1:
            self._grid["x"] = np.linspace(-0.5, 10.5, _GRID)[:, None]  # [300, 1]
        elif D == 2 and labels:
            side = np.linspace(-0.5, 10.5, _SQUARE)
            self._grid["x"] = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)  # [3600, 2]

    def score(self, learner: Learner, num_seen: int, seconds: float) -> dict[str, float]:
        """
        Score the test rows that the training rows have passed, for labels all; keep the posterior
        on the grid.
        """
        dataset = self._batches.dataset
        shown = self._batches.passed(num_seen) | self._labels
        scores = _scores(learner, dataset.X_test[shown], dataset.Y_test[shown], self._labels)
        for name, value in {"seen": float(num_seen), "seconds": seconds, **scores}.items():
            self.scores[name].append(value)
        self._frames["Z"].append(learner.inducing_points)
        for places in self._grid.values():
            mean, variance = learner.predict(places)
            self._frames["x_mean"].append(mean)
            self._frames["x_variance"].append(variance)
        return scores

    def arrays(self) -> dict[str, Any]:
        """Return the arrays for the figures, stacked over time."""
        courses = {**self.scores, **self._frames}
        return {name: np.stack(values) for name, values in courses.items()} | self._grid


@ex.automain
def streaming(gp: dict[str, Any], progress: bool, _run: Run) -> dict[str, Any]:
    """
    Learn, log, score; the result has scores in the targets' unit, at the end and in their course,
    hyperparameters of standardized targets at the end, seconds without scoring, and the peak of
    memory beyond the memory before learning, in MB (Linux).
    """
    batches = load_stream()
    dataset = batches.dataset
    labels = datasets.describe(dataset.name).task == "classification"
    learner = build_learner(batches, labels)
    others = () if gp["model"] == "BATCH" else batches.others
    course, N = _Course(batches, labels), len(dataset.X_train)
    seconds: list[float] = []

    def timed(learn: Callable[..., None], *arguments: Any) -> None:
        began = time.perf_counter()
        learn(*arguments)
        seconds.append(time.perf_counter() - began)

    def learn() -> None:
        timed(begin, learner)
        with (
            scalar_log(_run) as write,
            tqdm(
                others,
                learner_title(gp),
                unit="batch",
                mininterval=_BAR_INTERVAL,
                disable=not progress,
            ) as bar,
        ):

            def score(num_seen: int) -> None:
                scores = course.score(learner, num_seen, sum(seconds))
                write(num_seen, scores, "passed/")
                write(num_seen, hyperparameters(learner.model), "parameters/")
                write(num_seen, {"objective": learner.objective()})
                bar.set_postfix_str(
                    ", ".join(f"{name} {value:.3f}" for name, value in scores.items()),
                    refresh=False,
                )

            score(N if gp["model"] == "BATCH" else batches.first.stop)
            for rows in bar:
                timed(learner.absorb, dataset.X_train[rows], dataset.Y_train[rows])
                score(rows.stop)

    _, peak = peak_of(learn)
    save(_run, course.arrays())
    scores = _scores(learner, dataset.X_test, dataset.Y_test, labels)
    return {
        **scores,
        **{f"mean_{name}": float(np.mean(course.scores[name])) for name in scores},
        "course": dict(course.scores),
        "hyperparameters": hyperparameters(learner.model),
        "seconds": sum(seconds[1:]),
        "seconds_first": seconds[0],
        "seconds_batch": float(np.median(seconds[1:])) if others else None,
        "carried": learner.carried,
        "peak": peak,
        "N": N,
        "N_test": len(dataset.X_test),
        "D": dataset.X_train.shape[1],
        "batches": 1 + len(others),
    }
