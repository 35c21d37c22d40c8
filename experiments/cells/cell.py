"""A cell of a sweep: one run of an experiment, and how it ended."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Result = dict[str, Any]
"""What a run of an experiment returned, and under "directory" where Sacred has recorded it."""

Status = Literal["completed", "failed", "killed"]


@dataclass(frozen=True)
class Cell:
    """A run of an experiment."""

    experiment: str
    """Name of the module in `experiments`."""

    updates: dict[str, Any] = field(default_factory=dict)
    """What its configuration changes."""

    settings: str | None = None
    """One of the experiment's named configurations."""

    @property
    def key(self) -> str:
        """The same for the same cell, whenever and wherever it is asked for."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def __str__(self) -> str:
        """Return what comes after ``python -m experiments.`` to run the cell by hand."""
        settings = [] if self.settings is None else [self.settings]
        return " ".join([self.experiment, "with", *settings, *(f"{name}={of}" for name, of in self.updates.items())])


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cell: Cell

    status: Status

    reason: str | None = None
    """Why it failed or was killed."""

    result: Result | None = None
    """What it returned; None unless it completed."""


def not_completed(outcomes: Sequence[Outcome]) -> str:
    """Lines that say which cells have no result, and why; none where all have one."""
    lines = [f"{outcome.status}: {outcome.cell}: {outcome.reason}" for outcome in outcomes if outcome.result is None]
    if not lines:
        return ""
    heading = f"{len(lines)} of {len(outcomes)} runs have no result; the same command tries these again, and no others:"
    return "\n".join([heading, *lines])
