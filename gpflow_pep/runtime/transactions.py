"""All-or-nothing changes of models, and assignments to several variables."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


@contextmanager
def atomic(objects: Iterable[object], variables: Iterable[tf.Variable]) -> Iterator[None]:
    """
    Undo changes of attributes of `objects` and of `variables` that do not complete, because of
    Ctrl-C, say.
    """
    attributes = [(each, dict(vars(each))) for each in objects]
    # References to the values, no copies.
    values = [(variable, variable.read_value()) for variable in variables]
    try:
        yield
    except BaseException:
        for each, before in attributes:
            for name in vars(each).keys() - before.keys():
                delattr(each, name)
            for name, value in before.items():
                if vars(each).get(name) is not value:
                    store(each, name, value)
        for variable, earlier in values:
            variable.assign(earlier)
        raise


def assign_all(variables: Iterable[Any], values: Iterable[object]) -> None:
    """Assign a value to each variable."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def store(owner: object, name: str, value: object) -> None:
    """
    Set an attribute without the checks of its class, which may compare earlier parts with later
    ones.
    """
    vars(owner)[name] = value
    if isinstance(owner, tf.Module):
        # TensorFlow's list of what a checkpoint holds.
        owner._delete_tracking(name)
        if hasattr(value, "_trackable_children"):
            owner._track_trackable(value, name)
