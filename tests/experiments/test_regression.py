"""The regression experiment: every model trains, and what happened is on disk."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from events import tags
from quick import partly_slow
from recorded_runs import assert_recorded, read
from sacred.utils import ConfigAddedError

from experiments import regression
from experiments.ingredients.model import MODELS, _block_labels
from experiments.recording.experiment import run_directory
from experiments.regression import ex
from gpflow_pep.training.objectives import TrainingStep

BOUNDS = ("SGPR", "TSGPR", "BTSGPR", "SVGP", "TSVGP", "BTSVGP")
STOCHASTIC = ("SVGP", "TSVGP", "BTSVGP")
SCORES = ("objective_per_point", "rmse", "nlpd", "smse", "smll", "noise_sd", "seconds")


@pytest.fixture
def run_tiny(run_experiment):
    return partial(run_experiment, "regression")


@partly_slow("model", MODELS, quick=["GPR", "PEPR"])
def test_every_model_is_trained_scored_and_recorded(run_tiny, model):
    run = run_tiny(model=model, block_size=20 if model == "BTSGPR" else None)

    config, metrics, arrays = assert_recorded(run, SCORES, (60, 44, 10))
    kind = "lower bound" if model in BOUNDS else "approximate log evidence"
    assert run.result["objective_kind"] == ("log evidence" if model == "GPR" else kind)
    assert run.result["iterations"] == 3 and not run.result["converged"]
    reached = "Adam" if model in STOCHASTIC else "max_iterations was reached"
    assert reached in run.result["message"]
    assert (run.result["scale"] is None) == (model not in ("PEPR", "TPEP"))
    assert config["gp"]["model"] == model and config["gp"]["M"] == 4 and config["seed"] == 1
    assert config["data"]["dataset"] == "diabetes" and config["training"]["maxiter"] == 3
    entry = read(run_directory(run), "run.json")
    assert entry["status"] == "COMPLETED" and entry["result"]["rmse"] == run.result["rmse"]
    assert metrics["test/rmse"]["steps"] == metrics["objective_per_point"]["steps"] == [0, 2, 3]
    assert metrics["test/rmse"]["values"][-1] == pytest.approx(run.result["rmse"], rel=1e-12)
    assert ("parameters/scale" in metrics) == (model == "TPEP")
    found = tags(run_directory(run) / "tensorboard")
    for tag in ("objective_per_point", "noise_sd", "test/nlpd", "parameters/kernel.lengthscales/9"):
        assert found[tag] == [0, 2, 3]
    assert arrays["Z"].shape == (0 if model == "GPR" else 4, 10)
    assert arrays["mean"].shape == arrays["variance"].shape == (44, 1)


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError("no noise"), "FAILED"), (KeyboardInterrupt(), "INTERRUPTED")],
    ids=lambda value: type(value).__name__,
)
def test_a_run_that_stops_is_recorded_with_its_metrics(run_tiny, runs, monkeypatch, error, status):
    monkeypatch.setattr(regression, "noise_sd", Mock(side_effect=[1.0, error]))
    with pytest.raises(type(error)):
        run_tiny(log_interval=1)
    entry = read(runs / "1", "run.json")
    assert entry["status"] == status
    if status == "FAILED":
        assert "no noise" in "".join(entry["fail_trace"])
    assert read(runs / "1", "metrics.json")["noise_sd"]["steps"] == [0]
    assert list((runs / "1" / "tensorboard").glob("events.*"))


def test_failed_training_has_a_reason_and_scores(run_tiny, monkeypatch):
    """As where a matrix can no longer be factorized."""

    def failing(self, *rows):
        calls.append(None)
        if len(calls) > 40:  # the starts take some 25
            raise tf.errors.InvalidArgumentError(
                None, None, "Cholesky decomposition was not successful: Kuu"
            )
        return evaluate(self, *rows)

    calls: list[None] = []
    evaluate = TrainingStep.__call__
    monkeypatch.setattr(TrainingStep, "__call__", failing)
    with pytest.warns(UserWarning, match="not successful: Kuu"):
        result = run_tiny(maxiter=50).result
    assert not result["converged"]
    assert "not successful: Kuu" in result["message"]
    assert 0 < result["iterations"] < 50
    assert np.isfinite(result["rmse"])


def test_blocks_of_random_rows_among_all_rows(run_tiny):
    run = run_tiny(
        model="BTSGPR", block_size=50, blocks="random", include_test=True, max_train=None
    )
    assert (run.result["N"], run.result["N_test"]) == (442, 44)
    X = np.arange(20.0)[:, None]
    random, again, neighbors = (
        _block_labels(X, 5, blocks, 0) for blocks in ("random", "random", "neighbors")
    )
    assert random.tolist() == again.tolist() != neighbors.tolist()
    assert sorted(random) == sorted(neighbors)


def test_unknown_entry_is_refused(run_tiny):
    with pytest.raises(ConfigAddedError, match="alhpa"):
        run_tiny(alhpa=0.5)


def test_unobserved_run_writes_nothing(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "regression with M=4 maxiter=1 max_train=60 --unobserved --loglevel=ERROR"
    run = ex.run_commandline(command.split())
    assert np.isfinite(run.result["rmse"]) and not list(tmp_path.iterdir())


def test_configuration_is_printed_with_its_comments(capfd):
    ex.run_commandline(["regression", "print_config", "with", "alpha=0.75"])
    printed = capfd.readouterr().out
    assert "alpha = 0.75" in printed and "# number of inducing points" in printed
