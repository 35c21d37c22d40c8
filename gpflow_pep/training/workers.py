"""Training by several workers: they must run the same training, and are told when one of them has stopped."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ..runtime.distribution import Workers
from ..runtime.tracing import compiled
from ..saving.run_identity import fingerprint
from .declared import declared_by

_PER_WORKER = frozenset({"data", "blocks or old posterior"})  # entries of a run's identity that workers need not share
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)


class Share:
    """A worker's share in the rows of a minibatch model."""

    def __init__(self, workers: Workers, num_rows: int):
        self._workers = workers
        self.num_data = int(workers.gather(num_rows).sum())
        """Rows of all workers."""
        self._weight = num_rows / self.num_data

    def mean(self, values: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Return the mean of the workers' losses and derivatives, each of which estimates that of all rows."""
        mean: tuple[tf.Tensor, ...] = self._mean(list(values))
        return mean

    @compiled
    def _mean(self, values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        return self._workers.sums([self._weight * value for value in values])


def workers_of(model: Any) -> Workers | None:
    """
    Return the workers that have the model's rows, or rows given to `fit`; None if this process has them all.

    :raises ValueError: in the scope of several workers, if the model has data of its own that are not divided.
    """
    if hasattr(model, "_workers"):
        own: Workers | None = model._workers
        return own
    workers = Workers.of_strategy()
    if workers is not None and declared_by(model).has_own_data:
        raise ValueError(
            f"model must be one of this library in the scope of several workers: the data of {type(model).__name__} "
            "are not divided among them."
        )
    return workers


def check_same_run(workers: Workers, model: GPModel, run: Mapping[str, Any]) -> dict[str, Any]:
    """
    Check that all workers run the same training, from the same parameters; return its identity.

    :param run: the identity of this worker's run, with its own rows.
    :return: the same, with those of all workers.
    :raises ValueError: naming a worker and what it differs in.
    """
    start = fingerprint(*(variable.numpy() for variable in model.trainable_variables))
    compared = {name: value for name, value in run.items() if name not in _PER_WORKER}
    compared |= {"parameters at the start": start}
    if np.ndim(run["alpha"]):  # a power for each row or block
        del compared["alpha"]
    names = sorted(compared)
    everyone = workers.gather(*(_checksum(compared[name]) for name in names))
    for index, values in enumerate(everyone):
        differing = [name for name, one, other in zip(names, values, everyone[0], strict=True) if one != other]
        if differing:
            raise ValueError(
                f"all workers must run the same training, but worker {index} differs from worker 0 in "
                f"{', '.join(differing)}."
            )
    return {**run, **{name: workers.gather(_checksum(run[name])).tolist() for name in run if name not in compared}}


def check_same_start(workers: Workers | None, iterations: int, model: GPModel) -> None:
    """
    Check that all workers have resumed from the same checkpoint, if there is one.

    :raises ValueError: naming a worker that has not.
    """
    if workers is None:
        return
    everyone = workers.gather(iterations, fingerprint(*(variable.numpy() for variable in model.trainable_variables)))
    for index, values in enumerate(everyone):
        if (values != everyone[0]).any():
            raise ValueError(
                f"checkpoint must be the same file for all workers, but worker {index} resumes after {values[0]} "
                f"iterations and worker 0 after {everyone[0][0]}, or from other parameters: use a shared file system."
            )


def _checksum(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


@contextmanager
def reporting_lost_workers(workers: Workers | None) -> Iterator[None]:
    """
    Say that a worker has stopped where a collective operation fails; its own error is the cause.

    :raises RuntimeError: if one fails.
    """
    try:
        yield
    except _LOST as error:
        if workers is None:
            raise
        raise RuntimeError(
            f"a worker has stopped, or a collective operation has failed on worker {workers.index}. Stop all "
            f"{workers.count} workers and restart them: training resumes from the checkpoint, if one was given."
        ) from error
