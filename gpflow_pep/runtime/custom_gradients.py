"""
Hand-written gradients: first order only; a second derivative raises an error. Functions that no
tape records.
"""

import contextvars
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.python.eager import record

from .checks import asserted
from .tracing import may_be_recorded, no_autograph

# Several tensors, such as the results of a function.
Tensors: TypeAlias = tuple[tf.Tensor, ...]
# Differentiated in.
Sources: TypeAlias = Sequence[tf.Tensor | tf.Variable]
# The value of a function decorated by `tf.custom_gradient`, and the function of its gradient.
WithGradient: TypeAlias = tuple[tf.Tensor | Tensors, Callable[..., Sequence[tf.Tensor | None]]]
_ONCE = (
    "gpflow_pep differentiates its objectives once. For second derivatives take finite differences "
    "of the gradient, or gpflow.models.SGPR."
)


@no_autograph
def once_differentiable(*derivatives: tf.Tensor, of: Sequence[tf.Tensor] = ()) -> Tensors:
    """
    Return `derivatives`; differentiating them raises a NotImplementedError, or in a compiled
    function, where other results may need a second derivative, an InvalidArgumentError. They depend
    on tensors `of`, unseen by tapes.
    """
    count = len(derivatives)

    @tf.custom_gradient
    def first_only(*tensors: tf.Tensor) -> WithGradient:
        def refuse(*bars: tf.Tensor) -> list[tf.Tensor]:
            if tf.executing_eagerly():
                raise NotImplementedError(_ONCE)
            is_unused = tf.reduce_all([tf.reduce_all(bar == 0.0) for bar in bars])
            return [asserted(tf.zeros_like(tensor), is_unused, _ONCE) for tensor in tensors]

        return tensors[:count], refuse

    return tuple(first_only(*derivatives, *of))


@contextmanager
def watching(sources: Sources) -> Iterator[tf.GradientTape]:
    """Record operations on a tape that watches `sources` only."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        yield tape


def derivatives(
    tape: tf.GradientTape, value: object, sources: Sources, bar: object = None
) -> Tensors:
    """
    Return the gradient of tensors in each source, zero if unconnected; `bar`: upstream gradients, 1
    by default.
    """
    pulled = tape.gradient(value, sources, bar, tf.UnconnectedGradients.ZERO)
    return tuple(tf.convert_to_tensor(derivative) for derivative in pulled)


def unrecorded(method: Any, *args: object) -> Any:
    """
    Call a compiled method without recording it on the caller's tapes.

    In a graph its results are not differentiated, either: the derivatives of its loops would take a
    minute to trace. It is traced before recording stops, because tapes in it must record, and in a
    separate thread, in which the caller's tapes do not record. If a persistent tape or two tapes
    recorded the trace, each function called in it would be differentiated several times, which
    takes minutes.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    def trace() -> Any:
        with nullcontext() if graph is None else graph.as_default():
            return method.func.get_concrete_function(*args)

    if not may_be_recorded() or tf.distribute.has_strategy():
        concrete = method.func.get_concrete_function(*args)
    else:
        with ThreadPoolExecutor(1) as thread:
            concrete = thread.submit(contextvars.copy_context().run, trace).result()
    with record.stop_recording():
        results = concrete(*args)
    if graph is None:
        return results
    return tf.nest.map_structure(tf.stop_gradient, results)
