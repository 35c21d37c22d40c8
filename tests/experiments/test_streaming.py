"""
The streaming experiment: every model learns from batches, what happened is on disk, and comparisons
show it.
"""

import gpflow
import numpy as np
import pytest
from quick import partly_slow
from recorded_runs import assert_recorded

from experiments import exactness
from experiments.ingredients.learner import MODELS, learner_title
from experiments.ingredients.stream import arriving

COURSE = [40, 65, 90, 100]


@partly_slow("model", MODELS, quick=["STREAM"])
def test_every_model_learns_and_is_scored_and_recorded(run_experiment, model):
    run = run_experiment("streaming", model=model)
    course = [100] if model == "BATCH" else COURSE

    names = (
        "rmse",
        "log_likelihood",
        "mean_rmse",
        "mean_log_likelihood",
        "seconds",
        "seconds_first",
    )
    # The last one has not been passed.
    _, metrics, arrays = assert_recorded(run, names, (100, 99, 1))
    assert run.result["batches"] == len(course) and (run.result["seconds_batch"] is None) == (
        model == "BATCH"
    )
    # Bytes: a window has 60 rows of two numbers; SVGP has q(u), Z and four hyperparameters, each
    # with two averages; a stream Z, R, η and a number of the old posterior, Z, alpha, jitter and
    # three hyperparameters; vanilla VB also a factor of the old prior.
    sizes = {
        "GPR": 120,
        "SGPR": 120,
        "SVGP": 3 * (6 + 21 + 6 + 3),
        "STREAM": 6 + 36 + 6 + 1 + 6 + 2 + 3,
        "VANILLA": 6 + 36 + 6 + 1 + 6 + 2 + 3 + 36,
    }
    if model in sizes:
        assert run.result["carried"] == 8 * sizes[model]

    assert metrics["passed/rmse"]["steps"] == metrics["objective"]["steps"] == course
    assert "parameters/kernel.lengthscales/0" in metrics
    np.testing.assert_array_equal(arrays["seen"], course)
    assert run.result["course"]["rmse"] == arrays["rmse"].tolist()
    assert run.result["mean_rmse"] == np.mean(arrays["rmse"])
    assert (np.diff(arrays["seconds"]) > 0.0).all()
    # In the end all have been passed.
    assert arrays["rmse"][-1] == pytest.approx(run.result["rmse"], rel=1e-12)
    assert arrays["Z"].shape == (len(course), 0 if model == "GPR" else 6, 1)
    assert arrays["x_mean"].shape == arrays["x_variance"].shape == (len(course), 300, 1)


def test_titles():
    config = {"model": "STREAM", "alpha": 0.0, "window": 7}
    assert learner_title(config) == "streaming VFE"
    assert learner_title(config | {"alpha": 0.5, "model": "BATCH"}) == "all at once, PEP α=0.5"
    assert learner_title(config | {"model": "GPR"}) == "GPR, last 7"


# --- training -------------------------------------------------------------------------------------


@partly_slow("alpha", [0.0, 0.5], quick=[0.5])
def test_streams_are_exact(alpha):
    X, Y = exactness.noisy_function(60)
    exact = gpflow.models.GPR((X, Y), exactness.kernel(), noise_variance=exactness._NOISE)
    found = exactness.difference(exact, X, Y, X, alpha, 3)
    # The jitter of 1e-6 on Kuu, times 60 rows over noise 0.05 and the objective; means change by
    # jitter K⁻¹ times rows.
    assert found["objective"] < 1e-4 and found["mean"] < 5e-3 and found["variance"] < 1e-3


def test_test_rows_are_drawn_with_the_seed():
    rows = {"dataset": "gp-series", "split": 0, "order": "forward", "first": 40, "batch_size": 25}
    every, once, again, other = (
        arriving(**rows, max_train=None, max_test=size, seed=seed).X_test[:, 0]
        for size, seed in ((None, 0), (30, 0), (30, 0), (30, 1))
    )
    assert len(np.unique(once)) == 30 and np.isin(once, every).all()
    assert once.tolist() == again.tolist() != other.tolist()
