"""
A recorded run of the regression, the classification or the streaming experiment, read from its
directory.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.datasets import Floats
from experiments.ingredients.classifier import classifier_title
from experiments.ingredients.learner import learner_title
from experiments.ingredients.model import title
from experiments.protocols.records import read_json
from experiments.recording.predictions import FILE

_TITLES = {"regression": title, "classification": classifier_title, "streaming": learner_title}


@dataclass(frozen=True)
class RecordedRun:
    """A completed run, for tables and figures."""

    title: str
    """Name of the model."""

    config: dict[str, Any]
    """The run's configuration."""

    predictions: dict[str, Floats]
    """The arrays of ``predictions.npz``."""


def read_run(directory: Path) -> RecordedRun:
    """
    Read a completed run.

    :raises ValueError: if the run has not completed, or its files are damaged.
    """
    entry = read_json(directory / "run.json")
    if entry.get("status") != "COMPLETED":
        raise ValueError(
            f"{directory} is of a run with status {entry.get('status')}; only a completed run has "
            "results."
        )
    config = read_json(directory / "config.json")
    try:
        name = _TITLES[entry["experiment"]["name"]](config["gp"])
        with np.load(directory / FILE) as arrays:
            return RecordedRun(name, config, dict(arrays))
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{directory} is not the record of a run: {error!r}.") from error
