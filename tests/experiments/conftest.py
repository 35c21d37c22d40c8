"""Runs of the experiments that take a moment, recorded in a folder of their own."""

import pytest
from recorded_runs import TINY

from experiments import classification, labeling, regression, streaming


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


EXPERIMENTS = {
    "regression": (regression.ex, TINY),
    "classification": (
        classification.ex,
        {"dataset": "breast-cancer", "M": 4, "max_train": 40, "maxiter": 2, "log_interval": 1},
    ),
    "streaming": (
        streaming.ex,
        {
            "dataset": "gp-series",
            "max_train": 100,
            "first": 40,
            "batch_size": 25,
            "M": 6,
            "window": 60,
            "maxiter": 2,
            "first_maxiter": 3,
            "progress": False,
        },
    ),
    "labeling": (labeling.ex, {}),
}


@pytest.fixture
def run_experiment(runs):
    def run(name, **updates):
        experiment, tiny = EXPERIMENTS[name]
        options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
        return experiment.run(config_updates=tiny | {"seed": 1} | updates, options=options)

    return run
