"""The classification experiment: every model trains, and what happened is on disk."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SquaredExponential
from matplotlib.image import imread
from numpy.testing import assert_allclose
from quick import partly_slow
from recorded_runs import assert_recorded

from experiments.datasets import Dataset
from experiments.ingredients.classifier import MODELS, classifier_title
from experiments.papers.pictures import panels
from experiments.recording.predictions import classification_arrays
from experiments.recording.scores import loo_nlpd
from experiments.report import decision, recorded
from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit

SCORES = ("objective_per_point", "error", "nlpd", "log_likelihood", "seconds")


def test_a_leave_one_out_score_that_there_is_not(monkeypatch):
    """The distribution without a site is not proper: None, and the reason is given."""
    X = np.linspace(-1.0, 1.0, 8)[:, None]
    model = PEPClassifier((X, (X > 0.0).astype(float)), SquaredExponential(), Probit(), X[::3])

    def improper(self):
        raise tf.errors.InvalidArgumentError(None, None, "a cavity is not proper")

    monkeypatch.setattr(PEPClassifier, "loo_log_predictive_density", improper)
    with pytest.warns(UserWarning, match="no leave-one-out score: a cavity is not proper"):
        assert loo_nlpd(model) is None


@partly_slow("model", MODELS, quick=["SVGP"])
def test_every_model_is_trained_scored_and_recorded(run_experiment, model):
    run = run_experiment("classification", model=model, samples=10)

    config, metrics, arrays = assert_recorded(run, SCORES, (40, 57, 30))
    assert run.result["objective_kind"] == (
        "lower bound" if model == "SVGP" else "approximate log evidence"
    )
    assert run.result["iterations"] == 2
    assert not run.result["converged"]
    assert "max_iterations" in run.result["message"]
    assert_allclose(run.result["log_likelihood"], -57 * run.result["nlpd"], rtol=1e-12)
    assert (
        (run.result["loo_nlpd"] is None)
        == (run.result["sweeps"] is None)
        == (model not in ("PEP", "QP"))
    )
    assert config["gp"]["model"] == model
    assert config["gp"]["train_inducing"]
    assert config["gp"]["max_sweeps"] == 1000
    assert metrics["test/error"]["steps"] == metrics["seconds"]["steps"] == [0, 1, 2]
    assert metrics["objective_per_point"]["steps"] == [2]
    if model != "MCMC":  # which is sampled after the last entry
        assert_allclose(metrics["test/nlpd"]["values"][-1], run.result["nlpd"], rtol=1e-12)
    assert "parameters/kernel.variance" in metrics
    # Two iterations do not come to the points.
    assert arrays["Z"].shape == arrays["Z_start"].shape == (4, 30)
    probability = arrays["probability"]
    assert probability.shape == (57, 1) and ((probability > 0.0) & (probability < 1.0)).all()


def test_titles():
    config = {"model": "QP", "alpha": 1.0, "M": None}
    assert classifier_title(config) == "QP α=1, dense"
    assert classifier_title(config | {"model": "SVGP", "M": 5}) == "SVGP"


# --- tables and figures ---------------------------------------------------------------------------


@pytest.fixture
def plane():
    """A set with two inputs, so that decisions are drawn."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    Y = (X[:, :1] > 0.0).astype(float)
    units = {"x_mean": 2.0 * np.ones(2), "x_scale": np.ones(2)}
    return Dataset("plane", X, Y, X[:3], Y[:3], **units, y_mean=np.zeros(1), y_scale=np.ones(1))


def test_grid_of_three_classes(plane):
    model = SimpleNamespace(
        inducing_variable=InducingPoints(plane.X_train[:4]),
        predict_y=lambda X: (tf.nn.softmax(tf.constant(np.c_[X, X[:, :1] + X[:, 1:]])), None),
    )
    arrays = classification_arrays(model, plane, plane.X_train[:4])
    assert arrays["probability"].shape == (3, 3) and arrays["x_probability"].shape == (120, 120, 3)
    point = np.array([[arrays["x1"][7], arrays["x2"][11]]])
    assert_allclose(arrays["x_probability"][11, 7], model.predict_y(point)[0][0], rtol=1e-12)


@pytest.fixture
def decisions(plane):
    model = SimpleNamespace(
        inducing_variable=InducingPoints(
            100.0 * plane.X_train[:4]
        ),  # all but a few have left the figure
        predict_y=lambda X: (tf.sigmoid(tf.constant(X)[:, :1]), None),
    )
    arrays = classification_arrays(model, plane, plane.X_train[:4])
    config = {
        "data": {"dataset": "plane", "split": 0, "standardize": True}, "gp": {"M": 4}, "training": {"maxiter": 7},
    }  # fmt: skip
    return [recorded.RecordedRun(title, config, arrays) for title in ("first", "second", "third")]


def test_figures_of_two_inputs(decisions, plane, tmp_path):
    figure, axes = panels(3, shared=True)
    for here, run in zip(axes, decisions, strict=True):
        decision.draw_decision(here, run, plane)
    decision.add_legend(figure, 2, 6)
    figure.savefig(tmp_path / "panels.png", dpi=150)
    assert imread(tmp_path / "panels.png").std() > 0.01
    assert [here.get_title() for here in axes] == [run.title for run in decisions]
    assert [here.get_ylabel() for here in axes] == ["input 2", "", ""]
