"""How TensorFlow is to trace what users may call in functions of their own."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def unconverted(function: _Function) -> _Function:
    """
    A decorator: AutoGraph leaves the function, and all that it calls, as it is. Nothing here branches or loops in
    Python on the values of tensors, so that there is nothing to convert; and to find that out by reading the source of
    everything would take most of the time that tracing an objective takes.
    """
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))
