"""Sources of data sets: each reads one split of one set from one kind of publication.

All row and column numbers in the published files count from 0.
"""

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.datasets.files import PublishedFile, local_copy
from experiments.datasets.tables import Floats, Reader, as_labels, read_csv

Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


class SplitTable(NamedTuple):
    """All rows of a data set, and the indices of training and test rows."""

    X: Floats  # [N, D]
    Y: Floats  # [N, 1]
    train: Rows  # [N_train]
    test: Rows  # [N_test]


class Source:
    """Reads a numbered split of a data set from its files."""

    splits_published = True
    """True if the splits come with the data, False if they are drawn from the split's number."""

    num_splits: int = 1
    """``read`` accepts the splits 0 ... num_splits - 1."""

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """The published files; none for a set that comes with a library."""
        return tuple(dict.fromkeys(_files(vars(self).values())))

    def read(self, split: int) -> SplitTable:
        """Read the table and the rows of ``split``."""
        raise NotImplementedError


def _files(parts: Iterable[Any]) -> Iterator[PublishedFile]:
    """List the files among the parts, and among the arguments of readers."""
    for part in parts:
        if isinstance(part, PublishedFile):
            yield part
        elif isinstance(part, partial):
            yield from _files(part.args)


@dataclass(frozen=True)
class _Archived(Source):
    """
    One folder of a tar archive, whose members are read in memory: nothing is extracted to disk, nor
    unpickled.
    """

    archive: PublishedFile
    folder: str
    num_splits: int = 20

    def _members(self, *names: str) -> list[io.BytesIO]:
        with tarfile.open(local_copy(self.archive)) as archive:
            return [
                # Only a folder or a special file of the archive has no content.
                io.BytesIO(archive.extractfile(f"{self.folder}/{name}").read())  # type: ignore[union-attr]
                for name in names
            ]


@dataclass(frozen=True)
class ArchivedSplits(_Archived):
    """
    ``data.txt``, its feature and target columns, and two lists of rows per split.

    Features at the positions ``dropped`` in their list are left out. If the target names classes,
    the values ``classes`` become 0 and 1.
    """

    dropped: tuple[int, ...] = ()
    classes: tuple[float, float] | None = None

    def read(self, split: int) -> SplitTable:
        lists = ("features", "target", f"train_{split}", f"test_{split}")
        data, *indices = self._members(
            "data/data.txt", *(f"data/index_{name}.txt" for name in lists)
        )
        table = np.loadtxt(data)  # [N, columns]
        features, target, train, test = (
            np.loadtxt(each, dtype=np.intp, ndmin=1) for each in indices
        )  # [D], [1], [N_train], [N_test]
        Y = table[:, target]  # [N, 1]
        if self.classes is not None:
            Y = as_labels(Y, self.classes)
        return SplitTable(table[:, np.delete(features, self.dropped)], Y, train, test)


@dataclass(frozen=True)
class ArchivedArrays(_Archived):
    """
    ``data.npz``, inputs and class codes, and ``folds.npz``, lists of rows per split.

    The codes are 1, ..., C; the labels count from 0.
    """

    def read(self, split: int) -> SplitTable:
        data, folds = map(np.load, self._members("data.npz", "folds.npz"))
        Y = data["arr_1"].astype(np.float64)[:, None] - 1.0  # [N, 1]
        train, test = (folds[name][split].astype(np.intp) for name in ("arr_0", "arr_1"))
        return SplitTable(data["arr_0"], Y, train, test)


@dataclass(frozen=True)
class MaskedFolds(Source):
    """
    A comma-separated table with the target last, and a 0/1 mask: column k marks the test rows of
    split k.

    The columns ``dropped`` are not inputs.
    """

    table: PublishedFile
    mask: PublishedFile
    dropped: tuple[int, ...] = ()
    num_splits: int = 10

    def read(self, split: int) -> SplitTable:
        table = np.delete(read_csv(self.table), self.dropped, axis=1)  # [N, D + 1]
        return _masked(table, read_csv(self.mask)[:, split].astype(bool))


@dataclass(frozen=True)
class SeededSplits(Source):
    """
    A table published as one set, target last; split k tests on the last tenth of the permutation
    drawn with seed k.

    Nine tenths train, as in the published sets with 20 splits. The permutation comes from
    ``numpy.random.RandomState``, whose stream numpy has frozen: the same rows with every version
    and on every machine.
    """

    read_table: Reader
    num_splits: int = 20
    splits_published = False

    def read(self, split: int) -> SplitTable:
        table = self.read_table()  # [N, D + 1]
        return SplitTable(*_target_last(table), *self._rows(len(table), split))

    def _rows(self, N: int, split: int) -> tuple[Rows, Rows]:
        train, test = np.split(np.random.RandomState(split).permutation(N), [round(0.9 * N)])
        return train, test


@dataclass(frozen=True)
class SeededFolds(SeededSplits):
    """
    A table published as one set, target last; split k tests on the k-th tenth of one permutation,
    seed 0.

    The folds test every row once; their sizes differ by at most one.
    """

    num_splits: int = 10

    def _rows(self, N: int, split: int) -> tuple[Rows, Rows]:
        folds = np.array_split(np.random.RandomState(0).permutation(N), self.num_splits)
        return np.concatenate([fold for k, fold in enumerate(folds) if k != split]), folds[split]


@dataclass(frozen=True)
class TrainAndTest(Source):
    """Two tables, target last, published as the training and the test part: the only split."""

    read_train: Reader
    read_test: Reader

    def read(self, split: int) -> SplitTable:
        train, test = self.read_train(), self.read_test()  # [N_train, D + 1], [N_test, D + 1]
        return _masked(np.vstack([train, test]), np.repeat([False, True], [len(train), len(test)]))


@dataclass(frozen=True)
class MaskedRows(Source):
    """A table, target last, and a rule that masks its test rows: the only split."""

    read_table: Reader
    is_test: Callable[[Floats], Mask]

    def read(self, split: int) -> SplitTable:
        table = self.read_table()  # [N, D + 1]
        return _masked(table, self.is_test(table))


@dataclass(frozen=True)
class Draws(Source):
    """
    Tables drawn at random, target last: split k is draw k, with its own training and test rows.
    """

    draw: Callable[[int], Floats]
    is_test: Callable[[Floats], Mask]
    num_splits: int
    splits_published = False

    def read(self, split: int) -> SplitTable:
        return MaskedRows(partial(self.draw, split), self.is_test).read(0)


def _masked(table: Floats, is_test: Mask) -> SplitTable:
    return SplitTable(*_target_last(table), np.flatnonzero(~is_test), np.flatnonzero(is_test))


def _target_last(table: Floats) -> tuple[Floats, Floats]:
    return table[:, :-1], table[:, -1:]  # [N, D], [N, 1]
