"""
Derivatives that are written out: for first ones, and a second one stops here rather than come out wrong; and functions
that no tape records, since their derivatives are written out.
"""

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from .tracing import no_autograph


@no_autograph
def once_differentiable(*derivatives: tf.Tensor, of: Sequence[tf.Tensor] = ()) -> tuple[tf.Tensor, ...]:
    """
    `derivatives` themselves, which cannot be differentiated again.

    :param of: what they depend on, if tapes do not see it.
    :raises NotImplementedError: when a tape or ``tf.gradients`` tries to (at trace time, in a compiled function).
    """
    count = len(derivatives)

    @tf.custom_gradient
    def first_only(*tensors: tf.Tensor) -> Any:
        return tensors[:count], refuse

    def refuse(*_: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError(
            "gpflow_pep differentiates its objectives once. For second derivatives take finite differences of the "
            "gradient, or gpflow.models.SGPR."
        )

    return tuple(first_only(*derivatives, *of))


def derivatives(tape: tf.GradientTape, value: Any, sources: Sequence[Any], bar: Any = None) -> tuple[tf.Tensor, ...]:
    """
    Of `value`, tensors, in each of `sources`; zero where they do not depend on one.

    :param bar: the derivatives in `value`, tensors of its shapes; ones by default.
    """
    pulled = tape.gradient(value, sources, bar, tf.UnconnectedGradients.ZERO)
    return tuple(tf.convert_to_tensor(derivative) for derivative in pulled)


def unrecorded(compiled: Any, *args: Any) -> Any:
    """
    Call a compiled function that no tape of the caller is to record.

    It is traced before recording stops, since tapes in it do record; but in a thread of its own, to which the tapes of
    the caller do not belong. Where a persistent tape or two tapes recorded the trace, each function that is called in
    it would be differentiated several times over, which takes minutes.
    """
    concrete = _apart(lambda: compiled.get_concrete_function(*args))
    with record.stop_recording():
        return concrete(*args)


def _apart(function: Callable[[], Any]) -> Any:
    """Call a function in another thread if a tape may record in this one."""
    if not record.could_possibly_record() or tf.distribute.has_strategy():
        return function()
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    def call() -> Any:
        with nullcontext() if graph is None else graph.as_default():
            return function()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, call).result()
