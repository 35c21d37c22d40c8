"""Whether what was computed, or compiled, still belongs to the model as it is now."""

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter

from ..statistics import floating_variables

_PLAIN = (bool, int, float, str, np.generic)


def parameter_values(alpha: tf.Variable, *parts: tf.Module, settings: tuple[Any, ...]) -> tf.Tensor:
    """
    A number for the parts' classes, their settings in Python and those given, then alpha and the values of all the
    parts' parameters, in one vector.
    """
    described = [(type(part).__qualname__, *_settings(part)) for each in parts for part in (each, *each.submodules)]
    number = tf.constant([zlib.crc32(repr((described, settings)).encode()) % 2**20], alpha.dtype)
    return tf.concat([number, *(tf.reshape(value, [-1]) for value in (alpha, *floating_variables(*parts)))], 0)


def _settings(part: tf.Module) -> Iterator[tuple[str, Any]]:
    """What a module can be set to that is neither a module nor a tensor."""
    for name, value in vars(part).items():
        if name.startswith("_"):  # nobody's business, and TensorFlow counts things there
            continue
        if isinstance(value, _PLAIN):
            yield name, value
        elif callable(value) and not isinstance(value, tf.Module):
            yield name, getattr(value, "__qualname__", type(value).__qualname__)


def differs(now: tf.Tensor, then: tf.Variable) -> tf.Tensor:
    """Whether two vectors differ, in length or any value, []; NaN differs from everything."""
    then = tf.convert_to_tensor(then)
    same_size = tf.equal(tf.size(now), tf.size(then))
    return ~tf.cond(same_size, lambda: tf.reduce_all(now == then), lambda: tf.constant(False))


class Structure:
    """Numbers the structures that a model has had, each a list of parts, parameters and variables."""

    def __init__(self) -> None:
        self._number, self._known = 0, [object()]

    def number(self, parts: Iterable[tf.Module], settings: Iterable[Any]) -> int:
        """
        Of the present parts and settings; another one where any of them, what it is made of or what is trained is
        another.
        """
        present = [*settings, *_made_of_all(parts, set())]
        if len(present) != len(self._known) or any(map(_is_another, present, self._known)):
            self._number, self._known = self._number + 1, present
        return self._number


def _is_another(a: Any, b: Any) -> bool:
    return a is not b and not (isinstance(a, (*_PLAIN, tuple)) and type(a) is type(b) and a == b)


def _made_of(whole: Any, seen: set[int]) -> Iterator[Any]:
    """Modules, parameters and variables in a module, and what there is to know of them; quicker than TensorFlow's."""
    if id(whole) in seen:
        return
    seen.add(id(whole))
    if isinstance(whole, Parameter):
        yield from (whole, whole.trainable, whole.prior)  # the rest of a parameter stays
    elif isinstance(whole, tf.Variable):
        yield from (whole, whole.trainable)
    elif isinstance(whole, tf.Module):
        yield whole
        yield from _settings(whole)
        yield from _made_of_all(vars(whole).values(), seen)
    elif isinstance(whole, Mapping):
        yield from _made_of_all(whole.values(), seen)
    elif isinstance(whole, list | tuple):
        yield from _made_of_all(whole, seen)


def _made_of_all(parts: Iterable[Any], seen: set[int]) -> Iterator[Any]:
    for part in parts:
        yield from _made_of(part, seen)


def print_when(condition: tf.Tensor, message: str) -> None:
    """A message on standard error, in a compiled function."""

    def report() -> tf.Tensor:
        with tf.control_dependencies([tf.print("gpflow_pep:", message, output_stream=sys.stderr)]):
            return tf.constant(True)

    tf.cond(condition, report, lambda: tf.constant(False))
