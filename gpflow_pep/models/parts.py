"""
Parts of a model: attributes that are checked, together with the whole model, when they are
replaced.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from typing_extensions import override

from .. import validation
from ..runtime import atomic, store

_Value = TypeVar("_Value")


def checked_at_the_end(constructor: Callable[..., None]) -> Callable[..., None]:
    """
    Decorate a constructor: the outermost one, after which the model is complete, checks the model.
    """

    @wraps(constructor)
    def checked(self: Any, *args: object, **kwargs: object) -> None:
        constructor(self, *args, **kwargs)
        if type(self).__init__ is checked:
            self._check()
            self._is_constructed = True

    return checked


class Part(Generic[_Value]):
    """
    A part or setting of a model. Decorates a method that checks a value by itself, and returns it
    or converts it.

    A new value in a constructed model is checked with the other parts, by the model's method
    `_check`. If an error is raised, the model keeps the earlier value.
    """

    def __init__(self, converted: Callable[[Any, Any], _Value]):
        self._converted = converted
        self.__doc__ = converted.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    if TYPE_CHECKING:  # Python reads the value from the instance, without a method

        def __get__(self, model: object, owner: type) -> _Value: ...

    def __set__(self, model: Any, value: object) -> None:
        earlier = vars(model).get(self._name)
        variables = [earlier.unconstrained_variable] if isinstance(earlier, Parameter) else []
        try:
            with atomic([], variables):
                store(model, self._name, self._accepted(model, value))
                if model._is_constructed:
                    model._check()
        except BaseException:
            store(model, self._name, earlier)
            raise

    def _accepted(self, model: Any, value: object) -> Any:
        """Return the value to store."""
        return self._converted(model, value)


class ParameterPart(Part[_Value]):
    """
    A parameter of a model: numbers are assigned to it; another :class:`gpflow.Parameter` replaces
    it.
    """

    @override
    def _accepted(self, model: Any, value: Any) -> Any:
        parameter = vars(model).get(self._name)
        if isinstance(value, tf.Module) or not isinstance(parameter, Parameter):
            return super()._accepted(model, value)
        found = None if value is None else list(np.shape(value))
        if found is None or not parameter.shape.is_compatible_with(found):
            raise ValueError(
                f"{self._name} must keep the shape {parameter.shape.as_list()}, got {found}."
            )
        parameter.assign(super()._accepted(model, value))
        return parameter


class Power(property):
    """
    The power: a variable [], or one number per row or block if it was given so. Set it, or
    ``.assign`` to it: compiled functions use the new value without retracing.

    :raises ValueError: for values outside [0, 1] or a new shape. After ``.assign`` the next
        evaluation raises an error.
    """

    def __init__(self) -> None:
        super().__init__(lambda model: model._alpha, _assign_power, doc=type(self).__doc__)

    if TYPE_CHECKING:

        def __get__(self, model: object, owner: type | None = None) -> tf.Variable: ...


def _assign_power(model: Any, alpha: object) -> None:
    powers = model._checked_alpha(alpha)
    shape = model._alpha.shape
    if not shape.is_compatible_with(powers.shape):
        kept = "one number"
        if shape.rank:
            kept = "one number for each row or block"
        raise ValueError(
            f"alpha must stay {kept}, as in the constructor, got shape {list(powers.shape)}."
        )
    model._alpha.assign(powers)


def checked_scale(model: Any, scale: object) -> Parameter:
    """m of the structured conditional m D, a parameter; a number becomes a fixed one."""
    return validation.scale(scale)
