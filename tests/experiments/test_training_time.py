"""Scores against the seconds of training: what is logged, q(u) trained by Adam, the objective, and the command."""

import json

import gpflow
import numpy as np
import pytest
from matplotlib.image import imread

from experiments import datasets, training_time
from experiments.classification import ex
from experiments.recording import scores as recorded_scores
from experiments.recording.experiment import run_directory


@pytest.mark.slow
def test_seconds_and_scores_are_logged_and_adam_trains_q(runs):
    updates = {"dataset": "breast-cancer", "model": "SVGP", "M": 4, "maxiter": 20, "log_interval": 10, "seed": 0}
    minibatches = {"optimizer": "adam", "batch_size": 50, "natural_step": None, "learning_rate": 0.05}
    run = ex.run(config_updates=updates | minibatches, options={"--file_storage": str(runs), "--loglevel": "ERROR"})
    seconds, scores = training_time._logged(run_directory(run))
    assert len(seconds) == 2 and 0.0 < seconds[0] < seconds[1] == run.result["seconds"]
    assert scores["nlpd"].shape == scores["error"].shape == (1, 2)
    assert scores["nlpd"][0, 1] == run.result["nlpd"]
    assert scores["nlpd"][0, 1] < scores["nlpd"][0, 0] < np.log(2.0)  # guessing costs log 2: q(u) is learnt


def test_objective_is_the_mean_of_its_parts(monkeypatch):
    X = np.random.default_rng(0).normal(size=(55, 2))
    Y = (X[:, :1] > 0.0).astype(float)
    kernel = gpflow.kernels.SquaredExponential()
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Bernoulli(), X[:4].copy(), num_data=55)
    whole = float(model.maximum_log_likelihood_objective((X, Y)))
    monkeypatch.setattr(recorded_scores, "_CHUNK", 20)  # the last part is smaller
    # A sum of 55 terms, in another order.
    assert recorded_scores.objective(model, (X, Y)) == pytest.approx(whole, rel=1e-13)


def test_command(monkeypatch, capsys, runs):
    asked = []

    def canned(cells, directory):
        metrics = {"seconds": [0.0, 1.0, 2.0], "test/error": [0.7, 0.5, 0.25], "test/nlpd": [1.1, 0.9, 0.5]}
        (directory / "metrics.json").write_text(json.dumps({name: {"values": of} for name, of in metrics.items()}))
        for cell in cells:
            asked.append((*(cell.updates[name] for name in ("model", "M", "dataset", "max_train")), cell.settings))
            result = {"error": 0.25, "nlpd": 0.5, "seconds": 2.0, "iterations": 2, "converged": False}
            yield result | {"directory": str(directory)}

    protocol = training_time._Protocol("iris", "M1", ("ARPEP", "SVGP"), {"M": [3], "maxiter": 2}, {})
    monkeypatch.setitem(training_time._PROTOCOLS, "M3", protocol)
    monkeypatch.setattr(training_time, "completed", canned)
    runs.mkdir()
    training_time.main(["--max-train", "40", "--M", "3", "5", "--runs", str(runs)])
    assert asked == [(method, M, "iris", 40, "M1") for M in (3, 5) for method in ("ARPEP", "SVGP")]
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for method, M, *_ in asked:
        assert [method, str(M), "0.250", "0.500", "2", "2", "1/1", "0/1"] in rows
    assert imread(runs / "training-time-iris.png").shape[1] == 1500


@pytest.mark.parametrize("protocol", ["M3", "M4", "M5"])
def test_protocols_name_sets_and_settings(protocol):
    found = training_time._PROTOCOLS[protocol]
    assert datasets.describe(found.dataset).task == "multiclass"
    assert found.named_config in ex.named_configs


def test_command_refuses(runs, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        training_time.main(["--protocol", "M6", "--runs", str(runs)])
    protocol = training_time._Protocol("iris", "M1", ("SVGP",), {"M": [3], "maxiter": 2}, {})
    monkeypatch.setitem(training_time._PROTOCOLS, "M3", protocol)
    with pytest.raises(SystemExit, match="split is 20"):
        training_time.main(["--split", "20", "--runs", str(runs)])
    with pytest.raises(SystemExit, match="2"):
        training_time.main(["--M", "41", "--max-train", "40", "--runs", str(runs)])
    assert "--M is 41, but there are only 40 training rows." in capsys.readouterr().err
    assert not runs.exists()
