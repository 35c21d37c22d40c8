"""The runs of a protocol: combinations of settings, and the records of their results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from experiments.cells.cell import Cell, Result

if TYPE_CHECKING:
    from experiments.papers.pictures import Picture
    from experiments.papers.tables import Table

Label = Any
"""A value on an axis: a string, a number or None."""

Axis = Sequence[Label] | Mapping[Any, Any]
"""Values of the entry of this name; or labels, each with the entries that it changes."""


@dataclass(frozen=True)
class Job:
    """A run of a protocol, and its place on the axes."""

    labels: dict[str, Label]
    """Value on each axis."""

    cell: Cell
    """The run."""

    def changed(self, updates: Mapping[str, Any]) -> "Job":
        """Return the job with other entries of the configuration."""
        labels = {name: updates.get(name, value) for name, value in self.labels.items()}
        return Job(labels, Cell(self.cell.experiment, self.cell.updates | dict(updates)))


Jobs = list[Job]

QUIET = {"log_interval": 10**5, "max_jitter": 1e-3}
"""Entries of runs without logs in their course, and with the jitter that a matrix needs."""


@dataclass(frozen=True)
class Record:
    """The result of a job."""

    labels: dict[str, Label]
    """Value on each axis."""

    result: Result
    """Result of the run."""

    key: str = ""
    """Key of the run's cell, by which it is stored."""

    def __getitem__(self, name: str) -> Any:
        """
        Return a label or an entry of the result.

        :raises ValueError: if there is neither.
        """
        if name in self.labels:
            return self.labels[name]
        if name not in self.result:
            raise ValueError(
                f"The record {self.key} of the run {self.labels} has no {name}: delete the file of "
                "this name in the folder cells of the runs, or the line with this key in "
                "runs.csv, to repeat the run."
            )
        return self.result[name]


Records = Sequence[Record]

Shown = Iterator["Table | Picture | None"]
"""Tables and figures of a protocol; None is a figure of runs none of which is on this machine."""


def in_course(
    records: Records, axis: str, course: Callable[[Record], Mapping[str, Any]]
) -> list[Record]:
    """
    Return a record for each place of the records' courses.

    :param axis: entry of the course that becomes a label.
    :param course: returns lists of equal length by name.
    """
    found = []
    for record in records:
        values = course(record)
        for place, label in enumerate(values[axis]):
            entries = {name: of[place] for name, of in values.items() if name != axis}
            found.append(Record(record.labels | {axis: label}, entries))
    return found


def grid(experiment: str, common: Mapping[str, Any], **axes: Axis) -> Jobs:
    """
    Return a job for each combination of values.

    :param experiment: name of the module in `experiments`.
    :param common: entries of the configuration that all runs share.
    """
    changes = [
        values if isinstance(values, Mapping) else {value: {name: value} for value in values}
        for name, values in axes.items()
    ]
    jobs = []
    for values in product(*changes):
        updates = {"seed": 0, **common}
        for value, of_axis in zip(values, changes, strict=True):
            updates |= of_axis[value]
        jobs.append(Job(dict(zip(axes, values, strict=True)), Cell(experiment, updates)))
    return jobs


def repeats(number: int, *entries: str) -> Axis:
    """Return an axis of repeats: each is numbered from 0, by the value of these entries."""
    return {label: dict.fromkeys(entries, label) for label in range(number)}


def matched(
    records: Records, axis: str, first: Label, second: Label
) -> list[tuple[Record, Record]]:
    """Return the pairs of records with these values on an axis, all else equal."""
    others = [name for name in records[0].labels if name != axis]
    pairs = []
    for group in grouped(records, *others).values():
        found = {record.labels[axis]: record for record in group}
        if first in found and second in found:
            pairs.append((found[first], found[second]))
    return pairs


def by_label(records: Records, name: str) -> dict[Label, list[Record]]:
    """Group records by one label, in their order; a missing label is None."""
    return {label: group for (label,), group in grouped(records, name).items()}


def grouped(records: Records, *names: str) -> dict[tuple[Label, ...], list[Record]]:
    """Group records by their labels, in their order; a missing label is None."""
    groups: dict[tuple[Label, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record.labels.get(name) for name in names), []).append(record)
    return groups
