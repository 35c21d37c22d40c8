"""
Train one GP regression model, sparse or exact, on one split of a data set and score its predictions.

    python -m experiments.regression with dataset=boston split=3 model=PEPR alpha=0.5 M=100
    python -m experiments.regression print_config

Names without a prefix belong to an ingredient: alpha is gp.alpha. The run is recorded in runs/, with logs for
TensorBoard: tensorboard --logdir runs. Settings of `experiments.structured`; further settings may follow:

    python -m experiments.regression with S1 model=TSGPR
    python -m experiments.regression with S2 model=BTSGPR block_size=100
    python -m experiments.regression with S3 dataset=power model=TSVGP split=3
    python -m experiments.regression with S4 dataset=boston model=TPEP alpha=0.8 split=3
"""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from typing import Any

from sacred.run import Run
from sacred.utils import apply_backspaces_and_linefeeds
from tqdm import tqdm

from experiments.ingredients.data import data, load
from experiments.ingredients.model import build, gp, objective_kind, title
from experiments.ingredients.training import batches_of, is_logged, train, training
from experiments.recording.experiment import SAVE_GIT_INFO, RecordedExperiment, run_directory
from experiments.recording.predictions import save_predictions
from experiments.recording.scalars import ScalarLog
from experiments.recording.scores import hyperparameters, noise_sd, objective_per_point, prediction_scores, scale

_BAR_INTERVAL = 0.5  # seconds; a file keeps every state of the bar

ex = RecordedExperiment("regression", ingredients=[data, gp, training], save_git_info=SAVE_GIT_INFO)
# Record only the last state of a progress bar. (Sacred declares the attribute as None.)
ex.captured_out_filter = apply_backspaces_and_linefeeds  # type: ignore[assignment]


@ex.config
def _config() -> None:
    # show a progress bar
    progress = True


@ex.named_config
def S1() -> None:
    """Structured approximations, Snelson's toy function with five inducing points."""
    data = {"dataset": "snelson"}
    gp = {"M": 5}
    training = {"maxiter": 300, "log_interval": 1}


@ex.named_config
def S2() -> None:
    """Structured approximations, kin40k: 5000 training rows, L-BFGS; blocks of BT-SGPR are random."""
    data = {"dataset": "kin40k", "max_train": 5000}
    gp = {"M": 256, "blocks": "order", "max_jitter": 1e-3}
    training = {"maxiter": 1000, "log_interval": 100}


@ex.named_config
def S3() -> None:
    """Structured approximations, medium sets: minibatches of Adam, for BT-SVGP as blocks; 300 epochs."""
    data = {"dataset": "kin8nm"}
    gp = {"model": "SVGP", "M": 256}
    training = {"learning_rate": 0.005, "batch_size": 500, "maxiter": 4500, "log_interval": 450}


@ex.named_config
def S4() -> None:
    """Structured approximations, small sets: power EP, to be compared with a learned scale (model=TPEP)."""
    data = {"dataset": "yacht"}
    gp = {"M": 20, "max_jitter": 1e-3}
    training = {"maxiter": 500, "log_interval": 500}


@ex.automain
def regression(gp: dict[str, Any], training: dict[str, Any], progress: bool, _run: Run, _seed: int) -> dict[str, Any]:
    """Train, log, score; the result has objectives in nats per training point and scores in the targets' unit."""
    dataset = load()
    N, D = dataset.X_train.shape
    data = (dataset.X_train, dataset.Y_train)
    model = build(*data)
    batches = batches_of(model, N, _seed)
    directory, caption = run_directory(_run), f"{title(gp):21}"

    with (
        ScalarLog(_run, directory) as log,
        tqdm(
            total=training["maxiter"], desc=caption, unit="it", mininterval=_BAR_INTERVAL, disable=not progress
        ) as bar,
    ):

        def write(iteration: int) -> None:
            scores = prediction_scores(model, dataset)
            values = {"objective_per_point": objective_per_point(model, data, batches), "noise_sd": noise_sd(model)}
            log.write(iteration, values | {f"test/{name}": score for name, score in scores.items()})
            log.write(iteration, {f"parameters/{name}": value for name, value in hyperparameters(model).items()})

        def report(iteration: int, objective: float, seconds: float) -> None:
            bar.set_postfix_str(f"{objective / N:.4f} nats per point", refresh=False)
            bar.update()
            if is_logged(iteration):
                write(iteration)

        write(0)
        status = train(model, data, batches, report, _seed)
        bar.total = status.iterations  # L-BFGS may stop before maxiter
        if not is_logged(status.iterations):
            write(status.iterations)

    if directory is not None:
        _run.add_artifact(save_predictions(model, dataset, directory))
    return {
        "objective_per_point": objective_per_point(model, data, batches),
        "objective_kind": objective_kind(gp["model"]),
        **prediction_scores(model, dataset),
        "noise_sd": noise_sd(model),
        "scale": scale(model),
        "seconds": status.seconds,
        "iterations": status.iterations,
        "converged": status.converged,
        "message": status.message,
        "N": N,
        "N_test": len(dataset.X_test),
        "D": D,
    }
