"""What is known of a data set before any file of it is read."""

from dataclasses import dataclass
from typing import Literal

from experiments.datasets.files import PublishedFile
from experiments.datasets.sources import Source

Task = Literal["regression", "classification", "multiclass", "streaming"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set before any file of it is read."""

    name: str
    """Name that ``load`` accepts."""

    task: Task
    """Whether numbers, labels of two classes, labels of more, or numbers that arrive in an order are predicted."""

    N: int
    """Rows, training and test part together."""

    D: int
    """Input columns."""

    target: str
    """What the target column measures, with its unit and its place in the published table, counted from 0."""

    classes: tuple[str, ...]
    """Names of the classes: the target k means ``classes[k]``. Empty where numbers are predicted."""

    num_splits: int
    """``load`` accepts the splits 0 ... num_splits - 1."""

    splits_published: bool
    """True where the splits were published with the data, False where they are drawn here from the split's number."""

    license: str
    """License of the place the files come from."""

    notes: str
    """What a user of the set should know."""

    files: tuple[PublishedFile, ...]
    """The files read; none for a set that comes with an installed library."""


@dataclass(frozen=True)
class Entry:
    """A data set of the catalog: its description and its reader."""

    info: DatasetInfo
    source: Source


def regression_entry(name: str, source: Source, N: int, D: int, target: str, license: str, notes: str = "") -> Entry:
    """Entry of a set whose targets are numbers."""
    return _entry("regression", name, source, N, D, target, (), license, notes)


def streaming_entry(name: str, source: Source, N: int, D: int, target: str, license: str, notes: str = "") -> Entry:
    """Entry of a set whose targets are numbers, and whose rows have an order; test rows lie between training rows."""
    return _entry("streaming", name, source, N, D, target, (), license, notes)


def binary_entry(
    name: str, source: Source, N: int, D: int, target: str, classes: tuple[str, str], license: str, notes: str = ""
) -> Entry:
    """Entry of a set whose targets are labels 0 and 1."""
    return _entry("classification", name, source, N, D, target, classes, license, notes)


def multiclass_entry(
    name: str, source: Source, N: int, D: int, target: str, classes: tuple[str, ...], license: str, notes: str = ""
) -> Entry:
    """Entry of a set whose targets are labels 0, 1, ..., C - 1, of more than two classes."""
    return _entry("multiclass", name, source, N, D, target, classes, license, notes)


def _entry(
    task: Task,
    name: str,
    source: Source,
    N: int,
    D: int,
    target: str,
    classes: tuple[str, ...],
    license: str,
    notes: str,
) -> Entry:
    info = DatasetInfo(
        name=name,
        task=task,
        N=N,
        D=D,
        target=target,
        classes=classes,
        num_splits=source.num_splits,
        splits_published=source.splits_published,
        license=license,
        notes=notes,
        files=source.files,
    )
    return Entry(info, source)
