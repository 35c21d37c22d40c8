"""Demonstrations of each task: data set, sizes and methods. This module imports quickly."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.protocols.records import read_toml

Settings = dict[str, Any]
"""Entries of a configuration."""


@dataclass(frozen=True)
class Demonstration:
    """Demonstration of a task."""

    title: str
    """Title: task and models."""

    experiment: str
    """Name of the module in `experiments` that runs each method."""

    dataset: str
    """Default data set, which needs no network."""

    methods: list[Settings]
    """Configuration of each method."""

    example: Settings
    """Method that is suggested as a single run."""

    how_to_read: str
    """Explanation of the table."""

    settings: Settings
    """Settings that all runs share; ``block_size`` is for BTSGPR alone."""

    of_sets: dict[str, Settings] = field(default_factory=dict)
    """Other settings for particular data sets."""

    def configurations(
        self, dataset: str, *, split: int, short: bool
    ) -> tuple[Settings, list[Settings]]:
        """Return the common settings of the runs on a data set, and the settings of each run."""
        common = {
            "dataset": dataset,
            "split": split,
            "seed": 0,
            **self.settings,
            **self.of_sets.get(dataset, {}),
        }
        if short:
            common["maxiter"] = _SHORT_MAXITER
        blocks = {"BTSGPR": {"block_size": common.pop("block_size", None)}}
        return common, [method | blocks.get(method["model"], {}) for method in self.methods]


_SHORT_MAXITER = 5

DEMONSTRATIONS = {
    task: Demonstration(**entries)
    for task, entries in read_toml(Path(__file__).with_suffix(".toml")).items()
}
