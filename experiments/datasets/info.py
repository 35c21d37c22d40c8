"""Description of a data set, available without reading its files."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from experiments.datasets.files import PublishedFile
from experiments.datasets.sources import Source

Task = Literal["regression", "classification", "multiclass", "streaming"]


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set, available without reading its files."""

    name: str
    """Name that ``load`` accepts."""

    task: Task
    """Targets: numbers, labels of two classes, labels of more classes, or ordered numbers."""

    N: int
    """Rows, training and test part together."""

    D: int
    """Input columns."""

    target: str
    """Meaning of the target column, its unit and its index in the published table, from 0."""

    classes: tuple[str, ...]
    """Names of the classes: the target k means ``classes[k]``. Empty for numeric targets."""

    num_splits: int
    """``load`` accepts the splits 0 ... num_splits - 1."""

    splits_published: bool
    """True if the splits were published with the data, False if they are drawn here from the split's number."""

    license: str
    """License of the source of the files."""

    notes: str
    """Notes for users of the set."""

    files: tuple[PublishedFile, ...]
    """The files; none for a set that comes with an installed library."""


@dataclass(frozen=True)
class Entry:
    """A data set of the catalog: its description and its reader."""

    info: DatasetInfo
    source: Source


def _entry(
    task: Task,
    name: str,
    source: Source,
    *,
    N: int,
    D: int,
    target: str,
    license: str,
    classes: tuple[str, ...] = (),
    notes: str = "",
) -> Entry:
    """Return the entry of a set; targets are labels 0, 1, ... of the classes, if there are any."""
    splits: dict[str, Any] = {"num_splits": source.num_splits, "splits_published": source.splits_published}
    info: dict[str, Any] = {
        "name": name,
        "task": task,
        "N": N,
        "D": D,
        "target": target,
        "license": license,
        "notes": notes,
    }
    return Entry(DatasetInfo(**info, **splits, classes=classes, files=source.files), source)


regression_entry = partial(_entry, "regression")
binary_entry = partial(_entry, "classification")
multiclass_entry = partial(_entry, "multiclass")
streaming_entry = partial(_entry, "streaming")  # numbers in an order; test rows lie between training rows
