"""A cell of a sweep: one run of an experiment, and how it ended."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Result = dict[str, Any]
"""Result of a run of an experiment; "directory" is Sacred's record."""

Status = Literal["completed", "failed", "killed"]


@dataclass(frozen=True)
class Cell:
    """A run of an experiment."""

    experiment: str
    """Name of the module in `experiments`."""

    updates: dict[str, Any] = field(default_factory=dict)
    """Changed entries of the configuration."""

    @property
    def key(self) -> str:
        """Return a key of the cell that is the same in every process."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def __str__(self) -> str:
        """Return the rest of the command ``python -m experiments.`` that runs the cell by hand."""
        return " ".join(
            [self.experiment, "with", *(f"{name}={value}" for name, value in self.updates.items())]
        )


@dataclass(frozen=True)
class Outcome:
    """End of a cell."""

    cell: Cell

    status: Status

    reason: str | None = None
    """Reason why it failed or was killed."""

    result: Result | None = None
    """Result; None unless it completed."""


def not_completed(outcomes: Sequence[Outcome]) -> str:
    """List the cells without a result, and the reasons; empty if there are none."""
    lines = [
        f"{outcome.status}: {outcome.cell}: {outcome.reason}"
        for outcome in outcomes
        if outcome.result is None
    ]
    if not lines:
        return ""
    heading = (
        f"{len(lines)} of {len(outcomes)} runs have no result; the same command tries only these "
        "again:"
    )
    return "\n".join([heading, *lines])
