"""Whether what was computed, or compiled, still belongs to the model as it is now."""

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter

from ..statistics import floating_variables


def parameter_values(alpha: tf.Variable, *parts: tf.Module) -> tf.Tensor:
    """A number for the parts' classes, alpha and the values of all the parts' parameters, in one vector."""
    classes = " ".join(type(part).__qualname__ for each in parts for part in (each, *each.submodules))
    number = tf.constant([zlib.crc32(classes.encode()) % 2**20], alpha.dtype)
    return tf.concat([number, *(tf.reshape(value, [-1]) for value in (alpha, *floating_variables(*parts)))], 0)


def differs(now: tf.Tensor, then: tf.Variable) -> tf.Tensor:
    """Whether two vectors differ, in length or any value, []; NaN differs from everything."""
    then = tf.convert_to_tensor(then)
    same_size = tf.equal(tf.size(now), tf.size(then))
    return ~tf.cond(same_size, lambda: tf.reduce_all(now == then), lambda: tf.constant(False))


class Structure:
    """Numbers the structures that a model has had, each a list of parts, parameters and variables."""

    def __init__(self) -> None:
        self._number, self._known = 0, [object()]

    def number(self, parts: Iterable[tf.Module]) -> int:
        """Of the present parts; another one where any of them, what it is made of or what is trained is another."""
        present = list(_made_of_all(parts, set()))
        if len(present) != len(self._known) or any(a is not b for a, b in zip(present, self._known, strict=True)):
            self._number, self._known = self._number + 1, present
        return self._number


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
