"""Recovery from failures in training: restore the last good parameters and report the reason."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from ..checks import check, reason_of
from .history import History
from .objectives import FAILURES, Objective

NOT_FINITE = "the training loss or its derivatives are not finite."


@contextmanager
def restore_on_failure(objective: Objective, history: History, restore: Callable[[], None]) -> Iterator[list[str]]:
    """
    If an evaluation fails inside, restore the last good parameters and add the reason to the list yielded. Before the
    first step there are no good parameters: raise the error.

    :raises ValueError: if the data have changed.
    """
    reason: list[str] = []
    try:
        yield reason
    except FAILURES as error:
        restore()
        objective.reset()
        objective.check_data()
        if history.iterations == 0 or error is history.callback_error:
            raise
        reason.append(f"Stopped, and the last good parameters restored: {reason_of(error)}")
    except BaseException:
        restore()
        raise


def check_finite(*values: tf.Tensor) -> list[tf.Tensor]:
    """
    Check that all values are finite; in a graph, return the check as control dependencies.

    :raises tf.errors.InvalidArgumentError: if one is not finite.
    """
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
    return check(finite, NOT_FINITE)
