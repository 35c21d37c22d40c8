"""All-or-nothing changes of models."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def atomic(modules: Iterable[tf.Module], variables: Iterable[tf.Variable]) -> Iterator[None]:
    """Undo changes of attributes of `modules` and of `variables` that do not complete, because of Ctrl-C, say."""
    attributes = [(module, dict(vars(module))) for module in modules]
    values = [(variable, variable.read_value()) for variable in variables]  # references to the values, no copies
    try:
        yield
    except BaseException:
        for module, before in attributes:
            for name, value in before.items():
                if vars(module).get(name) is not value:
                    setattr(module, name, value)
        for variable, earlier in values:
            variable.assign(earlier)
        raise
