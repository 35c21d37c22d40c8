"""What runs of the experiments have on disk."""

import json

import numpy as np

from experiments.recording.experiment import run_directory
from experiments.recording.predictions import FILE

TINY = {"dataset": "diabetes", "M": 4, "max_train": 60, "maxiter": 3, "log_interval": 2, "seed": 1}
"""Settings of a regression that takes a moment."""


def read(directory, name):
    """Return the content of a file of a run."""
    return json.loads((directory / name).read_text())


def assert_recorded(run, scores, sizes):
    """
    Scores are finite, the data have these sizes [N, N_test, D], and TensorBoard has events. Return
    configuration, metrics and arrays.
    """
    assert all(np.isfinite(run.result[name]) for name in scores)
    assert (run.result["N"], run.result["N_test"], run.result["D"]) == sizes
    directory = run_directory(run)
    assert list((directory / "tensorboard").glob("events.*"))
    with np.load(directory / FILE) as file:
        return read(directory, "config.json"), read(directory, "metrics.json"), dict(file)
