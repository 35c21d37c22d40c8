"""Training by several workers: they must run the same training, and are told when one of them has stopped."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ..engine import Workers
from ..identity import fingerprint

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)


_OF_ROWS = frozenset({"data", "blocks or old posterior"})  # entries of a run's identity that workers need not share


def workers_of(model: Any) -> Workers | None:
    """Return the workers that have the model's rows; None if this process has them all."""
    return getattr(model, "_workers", None)


def in_replica(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """Call a function in a replica of the strategy in whose scope this is: TensorFlow differentiates only there."""
    if not (tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()):
        return function(*arguments)
    strategy = tf.distribute.get_strategy()
    results = strategy.run(function, args=arguments)
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)


def check_same_run(workers: Workers | None, model: GPModel, run: Mapping[str, Any]) -> None:
    """
    Check that all workers run the same training, from the same parameters.

    :param run: the identity of this worker's.
    :raises ValueError: naming a worker and what it differs in.
    """
    if workers is None:
        return
    start = fingerprint(*(variable.numpy() for variable in model.trainable_variables))
    run = {**run, "parameters at the start": start}
    names = sorted(name for name in run if name not in _OF_ROWS and not (name == "alpha" and np.ndim(run[name])))
    everyone = workers.gather(*(zlib.crc32(json.dumps(run[name], sort_keys=True).encode()) for name in names))
    for index, values in enumerate(everyone):
        differing = [name for name, one, other in zip(names, values, everyone[0], strict=True) if one != other]
        if differing:
            raise ValueError(
                f"all workers must run the same training, but worker {index} differs from worker 0 in "
                f"{', '.join(differing)}."
            )


@contextmanager
def lost_worker_named(workers: Workers | None) -> Iterator[None]:
    """
    Say so if another worker has stopped.

    :raises RuntimeError: if one has not answered in time.
    """
    try:
        yield
    except _LOST as error:
        if workers is None:
            raise
        raise RuntimeError(
            f"a worker has stopped, or has not answered worker {workers.index} in time. End all {workers.count} "
            "workers and start them again: training goes on from its checkpoint, if there is one."
        ) from error
