"""The retracing key of compiled steps: it changes when a part or a setting of the model is replaced."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MethodType
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from .tracing import forget

_PLAIN = (bool, int, float, str, np.generic)


class StructureCounter:
    """
    Count the structures (parts, parameters, variables, settings) that a model has had. The count is the retracing key.
    """

    def __init__(self) -> None:
        self._key, self._known = 0, [object()]

    @property
    def last_key(self) -> int:
        """The key of the last structure seen."""
        return self._key

    def key(self, parts: Iterable[tf.Module], settings: Iterable[Any]) -> int:
        """
        Return the key of the current structure. It changes when a part, a component of a part or a setting is
        replaced, or when a parameter becomes trainable or fixed.
        """
        present = [*settings, *_components_of_all(parts, set())]
        if len(present) != len(self._known) or any(map(_is_another, present, self._known)):
            self._key, self._known = self._key + 1, present
        return self._key


class CompiledSteps:
    """
    A model with compiled steps that take :meth:`_retracing_key`: when it changes they are traced again, and earlier
    traces are dropped, since no key is used twice.
    """

    kernel: Kernel
    likelihood: Likelihood
    inducing_variable: InducingVariables
    mean_function: MeanFunction

    @cached_property
    def _retracing(self) -> StructureCounter:
        return StructureCounter()

    def _retracing_key(self) -> int:
        """A number that changes when a part, a parameter or a setting of the model is replaced by another one."""
        before = self._retracing.last_key
        key = self._retracing.key(self._parts(), self._settings())
        if key != before:
            forget(self)
        return key

    def _parts(self) -> tuple[tf.Module, ...]:
        """Modules that the posterior depends on, other than data and alpha."""
        return self.kernel, self.likelihood, self.inducing_variable, self.mean_function

    def _settings(self) -> tuple[Any, ...]:
        """Settings that compiled steps depend on, other than variables and those of the parts."""
        return (default_jitter(),)


def _settings(part: tf.Module) -> Iterator[tuple[str, Any]]:
    """Settings of a module that are neither modules nor tensors."""
    if isinstance(part, Kernel):
        dims = part.active_dims
        yield "active_dims", str(dims) if isinstance(dims, slice) else str(np.asarray(dims).tolist())
    for name, value in vars(part).items():
        if name.startswith("_"):  # private, and TensorFlow counts things there
            continue
        if isinstance(value, _PLAIN):
            yield name, value
        elif isinstance(value, np.ndarray):
            yield name, (value.shape, value.tobytes())
        elif callable(value) and not isinstance(value, tf.Module):
            yield name, value


def _is_another(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):  # a setting; its value may be any callable
        return len(a) != len(b) or any(map(_is_another, a, b))
    return a is not b and not (isinstance(a, (*_PLAIN, bytes, MethodType)) and type(a) is type(b) and a == b)


def _components(whole: Any, seen: set[int]) -> Iterator[Any]:
    """Modules, parameters and variables in a module, with their settings; faster than TensorFlow's own."""
    if id(whole) in seen:
        return
    seen.add(id(whole))
    if isinstance(whole, Parameter):
        yield from (whole, whole.trainable, whole.prior)  # nothing else of a parameter can change
    elif isinstance(whole, tf.Variable):
        yield from (whole, whole.trainable)
    elif isinstance(whole, tf.Module):
        yield whole
        yield from _settings(whole)
        yield from _components_of_all(vars(whole).values(), seen)
    elif isinstance(whole, Mapping):
        yield from _components_of_all(whole.values(), seen)
    elif isinstance(whole, list | tuple):
        yield from _components_of_all(whole, seen)


def _components_of_all(parts: Iterable[Any], seen: set[int]) -> Iterator[Any]:
    for part in parts:
        yield from _components(part, seen)
