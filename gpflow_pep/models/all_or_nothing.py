"""Changes of a model that are made whole or not at all."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def all_or_nothing(modules: Iterable[tf.Module], variables: Iterable[tf.Variable]) -> Iterator[None]:
    """
    Put everything back where a change does not come to its end: by Ctrl-C between two assignments, say.

    :param modules: whose attributes may be replaced.
    :param variables: which may be assigned to.
    """
    attributes = [(module, dict(vars(module))) for module in modules]
    values = [(variable, variable.read_value()) for variable in variables]  # refers to the present values, no copies
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
