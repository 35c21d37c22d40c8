"""
Learn from data that arrive in batches, and score the predictions after each batch.

    python -m experiments.streaming with dataset=pseudo-periodic model=STREAM alpha=0.5 M=100
    python -m experiments.streaming print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The run is recorded in runs/, with logs for
TensorBoard: tensorboard --logdir runs. Settings of Bui, Nguyen and Turner (2017); further settings may follow:

    python -m experiments.streaming with T1 alpha=0.5 order=shuffled
    python -m experiments.streaming with T2 alpha=0.8
    python -m experiments.streaming with T3 dataset=audio-subband M=200 batch_size=500 model=SGPR
    python -m experiments.streaming with T4 M=600 batch_size=1000
    python -m experiments.streaming with T6 order=backward

`python -m experiments.stream_protocols` runs the comparisons.
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

import time
from typing import Any

import numpy as np
from sacred.run import Run
from sacred.utils import apply_backspaces_and_linefeeds
from tqdm import tqdm

from experiments import datasets
from experiments.ingredients.learner import begin, build_learner, learner_gp, learner_title, stream_training
from experiments.ingredients.stream import Batches, load_stream, stream_data
from experiments.learners.learner import Learner
from experiments.recording.experiment import SAVE_GIT_INFO, RecordedExperiment, run_directory
from experiments.recording.predictions import FILE
from experiments.recording.scalars import ScalarLog
from gpflow_pep.data import metrics

_BAR_INTERVAL = 0.5  # seconds; a file keeps every state of the bar
_GRID = 300  # points of a drawn posterior

ex = RecordedExperiment(
    "streaming", ingredients=[stream_data, learner_gp, stream_training], save_git_info=SAVE_GIT_INFO
)
# Record only the last state of a progress bar. (Sacred declares the attribute as None.)
ex.captured_out_filter = apply_backspaces_and_linefeeds  # type: ignore[assignment]


@ex.config
def _config() -> None:
    # show a progress bar
    progress = True

    # batches between scores; the last batch is always scored
    score_interval = 1


@ex.named_config
def T1() -> None:
    """A toy function in three parts, ten inducing points: compare alpha 0 and 0.5, order forward and shuffled."""
    data = {"dataset": "toy-stream", "first": 40, "batch_size": 40}
    gp = {"M": 10, "fraction_to_move": 0.3, "lengthscales": 0.8, "noise_variance": 0.01}
    training = {"first_maxiter": 500, "maxiter": 500}


@ex.named_config
def T2() -> None:
    """A periodic series: compare values of alpha."""
    data = {"dataset": "periodic", "first": 100, "batch_size": 50}
    gp = {"M": 60, "fraction_to_move": 0.2}
    training = {"first_maxiter": 200, "maxiter": 50}


@ex.named_config
def T3() -> None:
    """Time series: compare models, with M = 100 and 200, and batches of 300 and 500."""
    data = {"dataset": "pseudo-periodic", "first": 1000, "batch_size": 300}
    gp = {"M": 100, "window": 3000}


@ex.named_config
def T4() -> None:
    """Terrain: compare models, with M = 400 and batches of 750, M = 600 and batches of 1000."""
    data = {"dataset": "terrain-nn27", "first": 1000, "batch_size": 750}
    gp = {"M": 400, "window": 7500, "fraction_to_move": 0.1, "train_inducing": False}


@ex.named_config
def T6() -> None:
    """Banana in three batches: compare alpha 0.5 and 1, and the order of arrival."""
    data = {"dataset": "banana", "first": 134, "batch_size": 133}
    gp = {"M": 30, "alpha": 0.5, "fraction_to_move": 0.2, "lengthscales": 1.5}
    training = {"first_maxiter": 30, "maxiter": 30}


def _scores(learner: Learner, X: Any, Y: Any, labels: bool) -> dict[str, float]:
    """Return the RMSE (labels: the error) and the mean log likelihood."""
    mean, variance = learner.predict(X)
    if labels:
        density = np.where(Y == 1.0, mean, 1.0 - mean)
        return {"error": float(np.mean((mean > 0.5) != Y)), "log_likelihood": float(np.mean(np.log(density)))}
    return {"rmse": metrics.rmse(Y, mean), "log_likelihood": -metrics.nlpd(Y, mean, variance)}


class _Course:
    """Scores and posteriors in the course of a stream."""

    def __init__(self, batches: Batches, labels: bool):
        self._batches, self._labels = batches, labels
        self._scores: list[dict[str, float]] = []
        self._frames: dict[str, list[Any]] = {name: [] for name in ("Z", "x_mean", "x_variance")}
        X = batches.dataset.X_train
        self._grid = np.linspace(-0.5, 10.5, _GRID)[:, None] if X.shape[1] == 1 else None

    def score(self, learner: Learner, num_seen: int, seconds: float) -> dict[str, float]:
        """Score the test rows that the training rows have passed; keep the posterior if there is one input."""
        dataset, passed = self._batches.dataset, self._batches.passed(num_seen)
        scores = _scores(learner, dataset.X_test[passed], dataset.Y_test[passed], self._labels)
        self._scores.append({"seen": float(num_seen), "seconds": seconds, **scores})
        self._frames["Z"].append(learner.inducing_points)
        if self._grid is not None:
            mean, variance = learner.predict(self._grid)
            self._frames["x_mean"].append(mean)
            self._frames["x_variance"].append(variance)
        return scores

    def means(self) -> dict[str, float]:
        """Return the means of the scores over time."""
        return {
            name: float(np.mean([score[name] for score in self._scores]))
            for name in self._scores[0]
            if name not in ("seen", "seconds")
        }

    def arrays(self) -> dict[str, Any]:
        """Return the arrays for the figures, stacked over time."""
        arrays = {name: np.array([score[name] for score in self._scores]) for name in self._scores[0]}
        frames = {name: np.stack(parts) for name, parts in self._frames.items() if parts}
        grid = {} if self._grid is None else {"x": self._grid}
        return arrays | frames | grid


@ex.automain
def streaming(gp: dict[str, Any], progress: bool, score_interval: int, _run: Run) -> dict[str, Any]:
    """Learn, log, score; the result has scores in the targets' unit, and seconds without scoring."""
    batches = load_stream()
    name = batches.dataset.name
    labels = datasets.describe(name).task == "classification"
    learner = build_learner(batches, labels)
    others = () if gp["model"] == "BATCH" else batches.others
    course = _Course(batches, labels)
    directory = run_directory(_run)

    began = time.perf_counter()
    begin(learner)
    seconds = [time.perf_counter() - began]
    with (
        ScalarLog(_run, directory) as log,
        tqdm(others, f"{learner_title(gp):21}", unit="batch", mininterval=_BAR_INTERVAL, disable=not progress) as bar,
    ):

        def score(num_seen: int) -> None:
            scores = course.score(learner, num_seen, sum(seconds))
            log.write(num_seen, {f"passed/{name}": value for name, value in scores.items()})
            bar.set_postfix_str(", ".join(f"{name} {value:.3f}" for name, value in scores.items()), refresh=False)

        N = len(batches.dataset.X_train)
        score(N if gp["model"] == "BATCH" else batches.first.stop)
        for number, rows in enumerate(bar, 1):
            began = time.perf_counter()
            learner.absorb(batches.dataset.X_train[rows], batches.dataset.Y_train[rows])
            seconds.append(time.perf_counter() - began)
            if number % score_interval == 0 or number == len(others):
                score(rows.stop)

    if directory is not None:
        path = directory / FILE
        np.savez_compressed(path, **course.arrays())
        _run.add_artifact(str(path))
    final = _scores(learner, batches.dataset.X_test, batches.dataset.Y_test, labels)
    return {
        **final,
        **{f"mean_{name}": value for name, value in course.means().items()},
        "seconds": sum(seconds[1:]),
        "seconds_first": seconds[0],
        "seconds_batch": float(np.median(seconds[1:])) if others else None,
        "carried": learner.carried,
        "N": N,
        "N_test": len(batches.dataset.X_test),
        "D": batches.dataset.X_train.shape[1],
        "batches": 1 + len(others),
    }
