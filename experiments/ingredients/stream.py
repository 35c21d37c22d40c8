"""The data ingredient of streaming: data set, order of arrival and sizes of batches."""

# ruff: noqa: F841  (the local variables of a Sacred config function are the configuration)

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments import datasets
from experiments.datasets import Dataset
from experiments.ingredients.data import check_task
from experiments.recording.experiment import ingredient_of

stream_data = ingredient_of("data")

ORDERS = ("forward", "backward", "shuffled")
_RANGE = 10.0  # inputs are scaled to [0, 10]


@dataclass(frozen=True)
class Batches:
    """A stream, cut into batches."""

    dataset: Dataset
    """All training rows in the order of arrival, and the test rows; inputs in [0, 10], targets standardized."""

    first: slice
    """Rows of the first batch."""

    others: tuple[slice, ...]
    """Rows of the batches after it."""

    def passed(self, num_seen: int) -> npt.NDArray[np.bool_]:
        """Return a mask [N_test] of the test rows that the first `num_seen` training rows have passed."""
        seen, x = self.dataset.X_train[:num_seen, 0], self.dataset.X_test[:, 0]
        return (x >= seen.min()) & (x <= seen.max())


@stream_data.config
def _config() -> None:
    # name of a data set: one of experiments.datasets.names(task="streaming"), or of task "classification"
    dataset = "toy-stream"

    # number of the split into training and test rows, from 0
    split = 0

    # forward (by time, from west to east, or by the first input), backward, or shuffled
    order = "forward"

    # rows of the first batch
    first = 1000

    # rows of the batches after it
    batch_size = 300

    # number of training rows, the first in their order, with the test rows between them; None: all
    max_train = None

    # number of test rows, drawn with the seed; None: all
    max_test = None


@stream_data.capture
def load_stream(_config: dict[str, Any], _seed: int) -> Batches:
    """
    Load the batches of the configuration.

    :raises ValueError: if an entry of the configuration is invalid.
    """
    loaded = arriving(**_config, seed=_seed)
    N = len(loaded.X_train)
    first = _config["first"]
    size = _config["batch_size"]
    others = tuple(slice(start, min(start + size, N)) for start in range(first, N, size))
    return Batches(loaded, slice(0, min(first, N)), others)


def arriving(
    dataset: str,
    split: int,
    order: str,
    first: int,
    batch_size: int,
    max_train: int | None,
    max_test: int | None,
    seed: int,
) -> Dataset:
    """
    Return a data set with its training rows in the order of arrival.

    :raises ValueError: if an entry of the configuration is invalid.
    """
    check_task(dataset, "streaming", "classification")
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; accepted are {', '.join(ORDERS)}.")
    for entry, value in {
        "first must be": first,
        "batch_size must be": batch_size,
        "max_train must be None or": max_train,
        "max_test must be None or": max_test,
    }.items():
        if value is not None and value < 1:
            raise ValueError(f"{entry} at least 1, got {value}.")
    loaded = datasets.load(dataset, split)
    # Rows with equal inputs keep their order.
    loaded = loaded.trained_on(np.argsort(loaded.X_train[:, 0], kind="stable"))
    loaded = _scaled(_cut(loaded, max_train))
    if max_test is not None:
        drawn = np.random.RandomState(seed).permutation(len(loaded.X_test))[:max_test]
        loaded = replace(loaded, X_test=loaded.X_test[drawn], Y_test=loaded.Y_test[drawn])
    rows = np.arange(len(loaded.X_train))
    if order == "backward":
        rows = rows[::-1]
    elif order == "shuffled":
        rows = np.random.RandomState(seed).permutation(rows)
    return loaded.trained_on(rows)


def _cut(dataset: Dataset, max_train: int | None) -> Dataset:
    """Keep the first rows, and the test rows that they pass."""
    if max_train is None or max_train >= len(dataset.X_train):
        return dataset
    kept = dataset.trained_on(slice(max_train))
    passed = dataset.X_test[:, 0] <= kept.X_train[-1, 0]
    return replace(kept, X_test=dataset.X_test[passed], Y_test=dataset.Y_test[passed])


def _scaled(dataset: Dataset) -> Dataset:
    """Scale training inputs to [0, 10] in place of standardizing them."""
    low, high = dataset.X_train.min(axis=0), dataset.X_train.max(axis=0)
    scale = np.where(high > low, high - low, 1.0) / _RANGE
    return replace(
        dataset,
        X_train=(dataset.X_train - low) / scale,
        X_test=(dataset.X_test - low) / scale,
        x_mean=dataset.x_mean + low * dataset.x_scale,
        x_scale=dataset.x_scale * scale,
    )
