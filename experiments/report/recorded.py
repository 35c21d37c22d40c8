"""A recorded run of the regression experiment, read from its directory."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ingredients.model import title
from experiments.initialisation import Floats
from experiments.predictions import FILE


@dataclass(frozen=True)
class RecordedRun:
    """What tables and figures need of one completed run."""

    title: str
    """What to call the model."""

    config: dict[str, Any]
    """The run's configuration."""

    result: dict[str, Any]
    """What the experiment returned."""

    predictions: dict[str, Floats]
    """The arrays of ``predictions.npz``."""

    @property
    def is_bound(self) -> bool:
        """Whether the objective is a lower bound of the log evidence, not an approximation to it."""
        return bool(self.result["objective_kind"] == "lower bound")


def read_run(directory: Path) -> RecordedRun:
    """
    Read a completed run.

    :raises ValueError: where the run has not been completed.
    """
    entry = json.loads((directory / "run.json").read_text())
    if entry["status"] != "COMPLETED":
        raise ValueError(f"{directory} is of a run with status {entry['status']}; only a completed run has results.")
    config = json.loads((directory / "config.json").read_text())
    with np.load(directory / FILE) as arrays:
        return RecordedRun(title(config["gp"]), config, entry["result"], dict(arrays))
