"""One split of a data set as arrays, standardized by its training part."""

import difflib
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from experiments.datasets.catalog import ENTRIES
from experiments.datasets.info import DatasetInfo, Task
from experiments.datasets.sources import SplitTable
from experiments.datasets.tables import Floats


@dataclass(frozen=True, eq=False)
class Dataset:
    """
    One split of a data set, float64.

    Published values are ``X * x_scale + x_mean`` and ``Y * y_scale + y_mean``, standardized or not.
    """

    name: str
    """Name of the data set."""

    X_train: Floats
    """Training inputs [N_train, D]."""

    Y_train: Floats
    """Training targets [N_train, 1]; labels 0.0, 1.0, ... of classes."""

    X_test: Floats
    """Test inputs [N_test, D]."""

    Y_test: Floats
    """Test targets [N_test, 1]; labels 0.0, 1.0, ... of classes."""

    x_mean: Floats
    """Subtracted from each input column [D], in published units."""

    x_scale: Floats
    """Divisor of each centered input column [D], in published units."""

    y_mean: Floats
    """Subtracted from the targets [1], in published units; 0 for labels."""

    y_scale: Floats
    """
    Divisor of the centered targets [1], in published units; 1 for labels. RMSE times this is in
    published units.
    """

    def published_x(self, X: Floats) -> Floats:
        """Return inputs [..., D] in published units."""
        return X * self.x_scale + self.x_mean

    def published_y(self, Y: Floats) -> Floats:
        """Return targets [..., 1] in published units."""
        return Y * self.y_scale + self.y_mean

    def trained_on(self, rows: Any) -> "Dataset":
        """Return the data set with these of its training rows, in this order."""
        return replace(self, X_train=self.X_train[rows], Y_train=self.Y_train[rows])

    def trained_on_some(self, most: int) -> "Dataset":
        """Return the data set with at most so many of its training rows, drawn at random."""
        rows = np.random.default_rng(0).permutation(len(self.X_train))
        return self.trained_on(rows[:most])

    def trained_on_all(self) -> "Dataset":
        """Return the data set with the test rows among its training rows, too."""
        X = np.concatenate([self.X_train, self.X_test])
        return replace(self, X_train=X, Y_train=np.concatenate([self.Y_train, self.Y_test]))


def names(*, task: Task | None = None) -> tuple[str, ...]:
    """
    Return the names of the data sets.

    :param task: "regression", "classification" (two classes), "multiclass" (more) or "streaming"
        (regression, with rows in an order): only the sets of this task. None: all.
    :return: the names.
    :raises ValueError: if there is no such task.
    """
    if task is not None and task not in get_args(Task):
        raise ValueError(f"task is {task!r}; accepted are {', '.join(get_args(Task))} and None.")
    return tuple(name for name, info in ENTRIES.items() if task in (None, info.task))


def describe(name: str) -> DatasetInfo:
    """
    Describe a data set without reading its files: size, target, number of splits, license, files.

    :param name: one of ``names()``.
    :return: the description.
    :raises ValueError: if there is no such data set.
    """
    if name not in ENTRIES:
        similar = difflib.get_close_matches(str(name), ENTRIES, n=1)
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        raise ValueError(f"name is {name!r}; accepted are {', '.join(ENTRIES)}.{hint}")
    return ENTRIES[name]


def load(name: str, split: int = 0, *, standardize: bool = True) -> Dataset:
    """
    Load one split of a data set; download its files when first needed.

    Published splits are used as they are. Sets published without splits have splits drawn here. If
    there are 20, split k trains on the first 90 % of ``numpy.random.RandomState(k).permutation(N)``
    and tests on the rest; if there are 10, split k tests on part k of
    ``numpy.array_split(numpy.random.RandomState(0).permutation(N), 10)`` and trains on the rest.
    ``describe(name).num_splits`` is the number.

    >>> data = datasets.load("diabetes", split=3)
    >>> data.X_train.shape, data.X_test.shape
    ((398, 10), (44, 10))

    Labels of classes are never standardized: they are 0.0, 1.0, ..., C - 1.

    :param name: one of ``names()``.
    :param split: number of the split, from 0 to ``describe(name).num_splits - 1``.
    :param standardize: subtract from every input column and from numeric targets the training
        part's mean and divide by its standard deviation (divided by N, not N - 1); a column that is
        constant in the training part is divided by 1. False leaves the published values.
    :return: training and test part, and the means and scales.
    :raises ValueError: if there is no such data set or no such split.
    :raises ChecksumError: if a file differs from the published file.
    :raises ConnectionError: if a file cannot be downloaded.
    """
    info = describe(name)
    if not isinstance(split, (int, np.integer)) or not 0 <= split < info.num_splits:
        raise ValueError(
            f"split is {split!r}; {name} accepts whole numbers from 0 to {info.num_splits - 1}."
        )
    return divided(name, info.source.read(int(split)), standardize=standardize)


def divided(name: str, table: SplitTable, *, standardize: bool = True) -> Dataset:
    """Divide the rows of a data set into training and test part, and standardize them."""
    X, Y, train, test = table
    x_mean, x_scale = _moments(X[train], standardize)
    y_mean, y_scale = _moments(Y[train], standardize and not describe(name).classes)
    X = (X - x_mean) / x_scale  # [N, D]
    Y = (Y - y_mean) / y_scale  # [N, 1]
    return Dataset(name, X[train], Y[train], X[test], Y[test], x_mean, x_scale, y_mean, y_scale)


def _moments(columns: Floats, standardize: bool) -> tuple[Floats, Floats]:
    """
    Return mean and standard deviation of each column; 1 if the deviation is rounding only.

    :param standardize: False: mean 0 and deviation 1.
    """
    if not standardize:
        return np.zeros(columns.shape[1]), np.ones(columns.shape[1])
    constant = np.ptp(columns, axis=0) == 0.0
    return columns.mean(axis=0), np.where(constant, 1.0, columns.std(axis=0))
