"""Description of a data set, available without reading its files."""

from dataclasses import dataclass
from typing import Literal

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

    num_splits: int
    """``load`` accepts the splits 0 ... num_splits - 1."""

    splits_published: bool
    """
    True if the splits were published with the data, False if they are drawn here from the split's
    number.
    """

    files: tuple[PublishedFile, ...]
    """The files; none for a set that comes with an installed library."""

    N: int
    """Rows, training and test part together."""

    D: int
    """Input columns."""

    target: str
    """Meaning of the target column, its unit and its index in the published table, from 0."""

    classes: tuple[str, ...]
    """Names of the classes: the target k means ``classes[k]``. Empty for numeric targets."""

    license: str
    """License of the source of the files."""

    notes: str
    """Notes for users of the set."""

    source: Source
    """Reader of the files."""
