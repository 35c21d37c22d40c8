"""The streaming experiment: every model learns from batches, what happened is on disk, and comparisons show it."""

import json

import gpflow
import numpy as np
import pytest
from quick import some_slow

from experiments import exactness
from experiments.ingredients.learner import MODELS, learner_title
from experiments.recording.experiment import run_directory
from experiments.recording.predictions import FILE
from experiments.streaming import ex

TINY = {
    "dataset": "periodic", "max_train": 100, "first": 40, "batch_size": 25, "M": 6, "window": 60, "maxiter": 2,
    "first_maxiter": 3, "seed": 1, "progress": False,
}  # fmt: skip
COURSE = [40, 65, 90, 100]


@pytest.fixture
def run_tiny(runs):
    def run(**updates):
        options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
        return ex.run(config_updates=TINY | updates, options=options)

    return run


def arrays_of(run):
    with np.load(run_directory(run) / FILE) as file:
        return dict(file)


@pytest.mark.parametrize("model", some_slow(MODELS, quick=["STREAM"]))
def test_every_model_learns_and_is_scored_and_recorded(run_tiny, model):
    run = run_tiny(model=model)
    course = [100] if model == "BATCH" else COURSE

    names = (
        "rmse",
        "log_likelihood",
        "mean_rmse",
        "mean_log_likelihood",
        "seconds",
        "seconds_first",
    )
    assert all(np.isfinite(run.result[name]) for name in names)
    # The last one has not been passed.
    assert (run.result["N"], run.result["N_test"], run.result["D"]) == (
        100,
        99,
        1,
    )
    assert run.result["batches"] == len(course) and (run.result["seconds_batch"] is None) == (
        model == "BATCH"
    )
    # Bytes: a window has 60 rows of two numbers; SVGP has q(u), Z and four hyperparameters, each with two averages;
    # a stream Z, R, η and a number of the old posterior, Z, alpha and three hyperparameters.
    sizes = {
        "GPR": 120,
        "SGPR": 120,
        "SVGP": 3 * (6 + 21 + 6 + 3),
        "STREAM": 6 + 36 + 6 + 1 + 6 + 1 + 3,
    }
    if model in sizes:
        assert run.result["carried"] == 8 * sizes[model]

    metrics = json.loads((run_directory(run) / "metrics.json").read_text())
    assert metrics["passed/rmse"]["steps"] == metrics["objective"]["steps"] == course
    assert "parameters/kernel.lengthscales/0" in metrics and list(
        (run_directory(run) / "tensorboard").glob("events.*")
    )
    arrays = arrays_of(run)
    np.testing.assert_array_equal(arrays["seen"], course)
    assert (np.diff(arrays["seconds"]) > 0.0).all()
    # In the end all have been passed.
    assert arrays["rmse"][-1] == pytest.approx(run.result["rmse"], rel=1e-12)
    assert arrays["Z"].shape == (len(course), 0 if model == "GPR" else 6, 1)
    assert arrays["x_mean"].shape == arrays["x_variance"].shape == (len(course), 300, 1)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (
            {"model": "PEPR"},
            "model is 'PEPR'; accepted are STREAM, STREAM-SVGP, BATCH, GPR, SGPR, SVGP",
        ),
        (
            {"dataset": "breast-cancer", "model": "GPR"},
            "model is 'GPR'; accepted are STREAM, STREAM-SVGP, BATCH",
        ),
        ({"dataset": "diabetes"}, "dataset 'diabetes' is for regression"),
        ({"order": "sideways"}, "order is 'sideways'; accepted are forward, backward, shuffled"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"optimizer": "sgd"}, "optimizer must be .*lbfgs.* got 'sgd'"),
        ({"M": 41}, "M is 41"),
        ({"max_train": 0}, "max_train must be None or at least 1"),
    ],
)
def test_bad_configuration_names_the_entry(run_tiny, updates, message):
    with pytest.raises(ValueError, match=message):
        run_tiny(**updates)


def test_titles():
    config = {"model": "STREAM", "alpha": 0.0, "window": 7}
    assert learner_title(config) == "streaming VFE"
    assert learner_title(config | {"alpha": 0.5, "model": "BATCH"}) == "all at once, PEP α=0.5"
    assert learner_title(config | {"model": "GPR"}) == "GPR, last 7"


# --- training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", some_slow([0.0, 0.5], quick=[0.5]))
def test_streams_are_exact(alpha):
    X, Y = exactness.noisy_function(60)
    exact = gpflow.models.GPR((X, Y), exactness.kernel(), noise_variance=exactness._NOISE)
    found = exactness.difference(exact, X, Y, X, alpha, 3)
    # The jitter of 1e-6 on Kuu, times 60 rows over noise 0.05 and the objective; means change by jitter K⁻¹ times rows.
    assert found["objective"] < 1e-4 and found["mean"] < 5e-3 and found["variance"] < 1e-3
