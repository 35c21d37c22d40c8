"""What goes wrong in training: the parameters come back, and the reason is told."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from .history import History
from .objectives import FAILURES, Objective

NOT_FINITE = "the training loss or its derivatives are not finite."


@contextmanager
def restoring(objective: Objective, history: History, restore: Callable[[], None]) -> Iterator[list[str]]:
    """
    Where anything fails inside, the last good parameters come back and the reason is in the list. Before the first step
    there is nothing to go on with, and the failure goes on.
    """
    reason: list[str] = []
    try:
        yield reason
    except FAILURES as error:
        restore()
        objective.reset()
        if history.iterations == 0:
            raise
        reason.append(f"Stopped, and the last good parameters restored: {reason_of(error)}")
    except BaseException:
        restore()
        raise


def reason_of(error: BaseException) -> str:
    """What an error says, without TensorFlow's account of where."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    if "natural_gradient_steps" in text:  # GPflow's own check, which says no more
        return "the natural gradient's step is not finite; try a smaller natural_step."
    found = re.search(r"assertion failed: \[(.*?)\]\s*(\n|$)", text, re.DOTALL)
    return found.group(1) if found else text


def check_finite(*values: tf.Tensor) -> list[tf.Operation]:
    """
    An error where one of them is not finite; compiled, of what has to wait for the operations returned.

    :raises tf.errors.InvalidArgumentError: eagerly at once.
    """
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
    checked = tf.debugging.Assert(finite, [NOT_FINITE])
    return [] if checked is None else [checked]
