"""Runs of the regression experiment that take a moment, recorded in a folder of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sacred.run import Run

from experiments.regression import ex

TINY = {"dataset": "diabetes", "M": 4, "max_train": 60, "maxiter": 3, "log_interval": 2, "seed": 1}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def run_tiny(runs: Path) -> Callable[..., Run]:
    def run(**updates: Any) -> Run:
        options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
        return ex.run(config_updates=TINY | updates, options=options)

    return run
