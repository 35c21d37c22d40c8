"""Copies and pickles of models with variables whose number of rows may change."""

from copy import deepcopy
from typing import Any, TypeVar

import tensorflow as tf

from .distribution import local_variable

_Model = TypeVar("_Model", bound="Copyable")
_State = tuple[dict[str, Any], list[tuple[tf.Variable, list[int | None]]]]


class Copyable:
    """Mixin: TensorFlow alone would fix the shapes of such variables in a copy."""

    def _resizable_variables(self) -> tuple[tf.Variable, ...]:
        """Return the variables whose number of rows may change."""
        return ()

    def __deepcopy__(self: _Model, memo: dict[int, Any]) -> _Model:
        """Copy the model and all that it holds."""
        memo |= {id(variable): _resizable(variable, variable.shape) for variable in self._resizable_variables()}
        clone = type(self).__new__(type(self))
        memo[id(self)] = clone
        attributes = dict(self.__dict__)  # at once: other threads may predict, and compile, meanwhile
        clone.__dict__.update({name: deepcopy(value, memo) for name, value in attributes.items()})
        return clone

    def __getstate__(self) -> _State:
        """Return all attributes, and the static shapes of resizable variables, which pickling would fix."""
        return dict(self.__dict__), [(variable, variable.shape.as_list()) for variable in self._resizable_variables()]

    def __setstate__(self, state: _State) -> None:
        attributes, resizable = state
        memo = {id(variable): _resizable(variable, shape) for variable, shape in resizable}
        self.__dict__.update({name: deepcopy(value, memo) for name, value in attributes.items()})


def _resizable(variable: tf.Variable, shape: Any) -> tf.Variable:
    """Copy a variable so that its number of rows may change."""
    return local_variable(variable.read_value(), trainable=False, shape=shape, dtype=variable.dtype)
