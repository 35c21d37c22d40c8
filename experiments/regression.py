"""
Train one sparse GP regression model on one split of a data set and score its predictions.

    python -m experiments.regression with dataset=boston split=3 model=PEPR alpha=0.5 M=100
    python -m experiments.regression print_config

Names without a prefix are those of the ingredients: alpha is gp.alpha. The run is recorded in runs/, with logs for
TensorBoard: tensorboard --logdir runs
"""

from typing import Any

from sacred.run import Run
from sacred.utils import apply_backspaces_and_linefeeds
from tqdm import tqdm

from experiments.ingredients import data, gp, training
from experiments.ingredients.data import load
from experiments.ingredients.model import LOWER_BOUNDS, build, title
from experiments.ingredients.training import is_logged, train
from experiments.predictions import save_predictions
from experiments.recording import SAVE_GIT_INFO, RecordedExperiment, run_directory
from experiments.scalars import ScalarLog
from experiments.scores import hyperparameters, noise_sd, objective_per_point, prediction_scores

_BAR_INTERVAL = 0.5  # seconds; where the output is no terminal, each state of the bar stays

ex = RecordedExperiment("regression", ingredients=[data, gp, training], save_git_info=SAVE_GIT_INFO)
# Of a progress bar, record the last state only. (Sacred declares the attribute as None.)
ex.captured_out_filter = apply_backspaces_and_linefeeds  # type: ignore[assignment]


@ex.automain
def regression(gp: dict[str, Any], training: dict[str, Any], _run: Run) -> dict[str, Any]:
    """Train, log, score; the result has objectives in nats per training point and scores in the targets' unit."""
    dataset = load()
    N, D = dataset.X_train.shape
    model = build(dataset.X_train, dataset.Y_train)
    directory = run_directory(_run)

    with (
        ScalarLog(_run, directory) as log,
        tqdm(total=training["maxiter"], desc=f"{title(gp):21}", unit="it", mininterval=_BAR_INTERVAL) as bar,
    ):

        def write(iteration: int) -> None:
            scores = prediction_scores(model, dataset)
            values = {"objective_per_point": objective_per_point(model, N), "noise_sd": noise_sd(model)}
            log.write(iteration, values | {f"test/{name}": score for name, score in scores.items()})
            log.write(iteration, {f"parameters/{name}": value for name, value in hyperparameters(model).items()})

        def report(iteration: int, loss: float) -> None:
            bar.set_postfix_str(f"{-loss / N:.4f} nats per point", refresh=False)
            bar.update()
            if is_logged(iteration):
                write(iteration)

        write(0)
        status = train(model, report)
        bar.total = status.iterations  # L-BFGS may stop before maxiter
        if not is_logged(status.iterations):
            write(status.iterations)

    if directory is not None:
        _run.add_artifact(save_predictions(model, dataset, directory))
    return {
        "objective_per_point": objective_per_point(model, N),
        "objective_kind": "lower bound" if gp["model"] in LOWER_BOUNDS else "approximate log evidence",
        **prediction_scores(model, dataset),
        "noise_sd": noise_sd(model),
        "seconds": status.seconds,
        "iterations": status.iterations,
        "converged": status.converged,
        "message": status.message,
        "N": N,
        "N_test": len(dataset.X_test),
        "D": D,
    }
