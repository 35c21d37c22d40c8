"""The classification experiment: every model trains, and what happened is on disk."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SquaredExponential
from matplotlib.image import imread
from quick import some_slow
from sacred.utils import ConfigAddedError

from experiments import inducing_points, quantile_propagation, regression
from experiments.classification import ex
from experiments.datasets import Dataset
from experiments.ingredients.classifier import MODELS, classifier_title
from experiments.recording.experiment import run_directory
from experiments.recording.predictions import FILE, save_probabilities
from experiments.recording.scores import loo_nlpd
from experiments.report import decision, figure, recorded, table
from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit

TINY = {"dataset": "breast-cancer", "M": 4, "max_train": 40, "maxiter": 2, "log_interval": 1, "seed": 1}
SETTINGS = {
    "U3": "pima", "U4": "mnist-even-odd", "U6": "iono", "Q1": "qp-ionosphere", "M1": "glass", "M4": "mnist",
    "M5": "flights",
}  # fmt: skip
SCORES = ("objective_per_point", "error", "nlpd", "log_likelihood", "seconds")


def read(directory, name):
    return json.loads((directory / name).read_text())


@pytest.fixture
def run_tiny(runs):
    def run(*named, **updates):
        options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
        return ex.run(config_updates=TINY | updates, named_configs=named, options=options)

    return run


def test_a_leave_one_out_score_that_there_is_not(monkeypatch):
    """What a site leaves behind is not proper: None, and the reason is told."""
    X = np.linspace(-1.0, 1.0, 8)[:, None]
    model = PEPClassifier((X, (X > 0.0).astype(float)), SquaredExponential(), Probit(), X[::3].copy())

    def improper(self):
        raise tf.errors.InvalidArgumentError(None, None, "a cavity is not proper")

    monkeypatch.setattr(PEPClassifier, "loo_log_predictive_density", improper)
    with pytest.warns(UserWarning, match="no leave-one-out score: a cavity is not proper"):
        assert loo_nlpd(model) is None


@pytest.mark.parametrize("model", some_slow(MODELS, quick=["SVGP"]))
def test_every_model_is_trained_scored_and_recorded(run_tiny, model):
    run = run_tiny(model=model)

    assert all(np.isfinite(run.result[name]) for name in SCORES)
    assert run.result["objective_kind"] == ("lower bound" if model == "SVGP" else "approximate log evidence")
    assert run.result["iterations"] == 2 and not run.result["converged"] and "max_iterations" in run.result["message"]
    assert (run.result["N"], run.result["N_test"], run.result["D"]) == (40, 57, 30)
    assert run.result["log_likelihood"] == pytest.approx(-57 * run.result["nlpd"], rel=1e-12)
    assert (run.result["loo_nlpd"] is None) == (run.result["sweeps"] is None) == (model not in ("PEP", "QP"))

    directory = run_directory(run)
    config = read(directory, "config.json")
    assert config["gp"]["model"] == model and config["gp"]["train_inducing"] and config["gp"]["max_sweeps"] == 1000
    metrics = read(directory, "metrics.json")
    assert metrics["test/error"]["steps"] == metrics["seconds"]["steps"] == [0, 1, 2]
    assert metrics["objective_per_point"]["steps"] == [1, 2]
    assert metrics["test/nlpd"]["values"][-1] == pytest.approx(run.result["nlpd"], rel=1e-12)
    assert "parameters/kernel.variance" in metrics and list((directory / "tensorboard").glob("events.*"))
    with np.load(directory / FILE) as arrays:
        Z, Z_start, probability = (arrays[name] for name in ("Z", "Z_start", "probability"))
    assert Z.shape == Z_start.shape == (4, 30)  # two iterations do not come to the points
    assert probability.shape == (57, 1) and ((probability > 0.0) & (probability < 1.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("model", some_slow(["PEP", "SVGP", "APEP"], quick=["SVGP"]))
def test_minibatches_of_adam(run_tiny, model):
    run = run_tiny(model=model, optimizer="adam", batch_size=16, maxiter=4, log_interval=3)
    assert run.result["iterations"] == 4 and "max_iterations=4 was reached." in run.result["message"]
    steps = read(run_directory(run), "metrics.json")["objective_per_point"]["steps"]
    assert steps == [3, 4]  # 40 rows are three minibatches: PEP reports after each epoch, the others after each step


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"model": "SGPR"}, "model is 'SGPR'; accepted are PEP, QP, SVGP"),
        ({"likelihood": "cauchit"}, "likelihood is 'cauchit'; accepted are probit, logit"),
        ({"kernel": "Linear"}, "kernel is 'Linear'"),
        pytest.param({"optimizer": "scipy"}, "optimizer is 'scipy'; accepted are lbfgs, adam", marks=pytest.mark.slow),
        ({"batch_size": 10}, "batch_size is 10; with optimizer=lbfgs"),
        ({"dataset": "diabetes"}, "dataset 'diabetes' is for regression .* accepted for .* and multiclass are"),
        ({"M": 41}, "M is 41"),
        ({"alpha": 1.5}, "alpha"),
    ],
)
def test_bad_configuration_names_the_entry(run_tiny, updates, message):
    with pytest.raises(ValueError, match=message):
        run_tiny(**updates)


def test_regression_refuses_labels(runs):
    options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
    with pytest.raises(ValueError, match="dataset 'breast-cancer' is for classification"):
        regression.ex.run(config_updates={"dataset": "breast-cancer"}, options=options)


def test_unknown_entry_is_refused(run_tiny):
    with pytest.raises(ConfigAddedError, match="noise_variance"):
        run_tiny(noise_variance=0.5)


@pytest.mark.parametrize("named", SETTINGS)
def test_settings_of_the_papers(named, capfd):
    ex.run_commandline(["classification", "print_config", "with", named, "alpha=0.25"])
    printed = capfd.readouterr().out
    assert f"dataset = '{SETTINGS[named]}'" in printed and "alpha = 0.25" in printed and "# probit or logit" in printed
    assert f"train_inducing = {named not in ('U6', 'Q1')}" in printed


def test_titles():
    config = {"model": "QP", "alpha": 1.0, "M": None}
    assert classifier_title(config) == "QP α=1, dense"
    assert classifier_title(config | {"model": "SVGP", "M": 5}) == "SVGP"


# --- tables and figures ---------------------------------------------------------------------------------------------


@pytest.fixture
def plane():
    """A set with two inputs, so that decisions are drawn."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    Y = (X[:, :1] > 0.0).astype(float)
    zero, one = np.zeros(1), np.ones(1)
    return Dataset("plane", X, Y, X[:3], Y[:3], x_mean=2.0 * np.ones(2), x_scale=np.ones(2), y_mean=zero, y_scale=one)


def test_grid_of_three_classes(plane, tmp_path):
    model = SimpleNamespace(
        inducing_variable=InducingPoints(plane.X_train[:4]),
        predict_y=lambda X: (tf.nn.softmax(tf.constant(np.c_[X, X[:, :1] + X[:, 1:]])), None),
    )
    with np.load(save_probabilities(model, plane, plane.X_train[:4], tmp_path)) as file:
        arrays = dict(file)
    assert arrays["probability"].shape == (3, 3) and arrays["x_probability"].shape == (120, 120, 3)
    point = np.array([[arrays["x1"][7], arrays["x2"][11]]])
    np.testing.assert_allclose(arrays["x_probability"][11, 7], model.predict_y(point)[0].numpy()[0], rtol=1e-12)


@pytest.fixture
def decisions(plane, tmp_path):
    model = SimpleNamespace(
        inducing_variable=InducingPoints(100.0 * plane.X_train[:4]),  # all but a few have left the figure
        predict_y=lambda X: (tf.sigmoid(tf.constant(X)[:, :1]), None),
    )
    with np.load(save_probabilities(model, plane, plane.X_train[:4], tmp_path)) as file:
        arrays = dict(file)
    config = {
        "data": {"dataset": "plane", "split": 0, "standardize": True}, "gp": {"M": 4}, "training": {"maxiter": 7},
    }  # fmt: skip
    result = {
        "objective_per_point": -0.25, "error": 0.125, "nlpd": 0.5, "loo_nlpd": None, "N": 20, "N_test": 3, "D": 2,
        "iterations": 7, "seconds": 0.25, "objective_kind": "lower bound", "converged": False,
    }  # fmt: skip
    approximate = result | {"objective_kind": "approximate log evidence", "loo_nlpd": 0.75, "iterations": 5}
    return [
        recorded.RecordedRun("first", config, result, arrays, "classification"),
        recorded.RecordedRun("second", config, approximate, arrays, "classification"),
        recorded.RecordedRun("third", config, approximate | {"converged": True}, arrays, "classification"),
    ]


def test_table(decisions):
    assert table.table(decisions).splitlines() == [
        "method  log evidence   error    NLPD  LOO NLPD  iterations  seconds",
        "-------------------------------------------------------------------",
        "first      ≥ -0.2500  0.1250  0.5000         –          7+      0.2",
        "second     ≈ -0.2500  0.1250  0.5000    0.7500          5!      0.2",
        "third      ≈ -0.2500  0.1250  0.5000    0.7500          5       0.2",
    ]
    assert "an inducing point" not in table.heading(decisions) and "Error: fraction" in table.units(decisions)


def test_grid_has_the_second_input_along_its_rows(decisions):
    arrays = decisions[0].predictions
    probability = arrays["x_probability"]
    assert probability.shape == (120, 120) and (np.ptp(probability, axis=0) < 1e-12).all()
    np.testing.assert_allclose(probability[0], 1 / (1 + np.exp(-arrays["x1"])), rtol=1e-12)


def test_figures_of_two_inputs(decisions, plane, tmp_path):
    figure.draw(decisions, plane, tmp_path / "figure.png")
    height, width, _ = imread(tmp_path / "figure.png").shape
    assert width == 1650 and height == pytest.approx(150 * (0.5 + 1.3 + 3 * 0.32 + 3.4), abs=1)
    decision.draw_panels(decisions, plane, tmp_path / "panels.png")
    assert imread(tmp_path / "panels.png").shape[1] == pytest.approx(150 * 3 * 3.6, abs=1)


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quantile_propagation_command(runs, capfd):
    command = ["--sets", "qp-iris-12", "--folds", "1", "--maxiter", "1", "--runs", str(runs)]
    quantile_propagation.main(command)
    lines = capfd.readouterr().out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("set "))
    headings, row = lines[start], lines[start + 2]
    assert len(headings) == len(row) and row.startswith("qp-iris-12")
    assert row.split()[-2:] == ["2/2", "0/2"] and "–" in row
    models = [read(runs / str(number), "config.json")["gp"]["model"] for number in range(1, 3)]
    assert models == ["PEP", "QP"]
    with np.load(runs / "1" / FILE) as arrays:
        assert arrays["Z"].shape == (90, 4) and np.array_equal(arrays["Z"], arrays["Z_start"])  # dense: all inputs


def test_quantile_propagation_over_folds():
    """Means and standard errors of what the runs gave, in percent and nats; QP - EP fold by fold."""
    ep, qp = (
        [
            {"error": 0.1 * fold, "log_likelihood": shift - fold, "seconds": 3.0, "iterations": 40, "converged": False}
            for fold in range(3)
        ]
        for shift in (-1.0, -0.75)
    )
    line = quantile_propagation._line("qp-iris-12", ep, [*qp[:2], qp[2] | {"iterations": 7}], 40)
    means = [*2 * ["10.00 ± 5.77"], "–", "-2.00 ± 0.58", "-1.75 ± 0.58", "–", "0.25 ± 0.00"]  # 10 / sqrt 3
    assert [column.replace("−", "-") for column in line] == ["qp-iris-12", *means, "3", "5/6", "1/6"]


def test_quantile_propagation_refuses_other_sets(runs):
    with pytest.raises(SystemExit, match="dataset 'diabetes' is for regression"):
        quantile_propagation.main(["--sets", "diabetes", "--runs", str(runs)])
    assert not runs.exists()


needs_data = (
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("GPFLOW_PEP_DATA"), reason="needs the banana data: set GPFLOW_PEP_DATA"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("banana", marks=needs_data), "three-classes"])
def test_inducing_points_command(name, runs, capfd, in_this_process):
    inducing_points.main(["--set", name, "--alphas", "0.5", "--M", "4", "--maxiter", "1", "--runs", str(runs)])
    assert "PEP α=0.5" in capfd.readouterr().out
    assert imread(runs / f"inducing-points-{name}.png").shape[1] == pytest.approx(150 * 3.6, abs=1)
