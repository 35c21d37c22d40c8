"""Runs of the regression experiment that take a moment, recorded in a folder of their own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sacred.run import Run

from experiments.protocols import repeated
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


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated runs are done in a thread, not in a process, which would have to import TensorFlow."""
    monkeypatch.setattr(repeated, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))
