"""The engine's adjoints are written out for first derivatives; a second one stops here rather than come out wrong."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .graphs import no_autograph


@no_autograph
def once_differentiable(*derivatives: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    `derivatives` themselves, which cannot be differentiated again.

    :raises NotImplementedError: when a tape or ``tf.gradients`` tries to (at trace time, in a compiled function).
    """
    return tuple(_first_only(*derivatives))


@tf.custom_gradient
def _first_only(*derivatives: tf.Tensor) -> Any:
    def gradient(*_: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError(
            "gpflow_pep differentiates its objectives once. For second derivatives take finite differences of the "
            "gradient, or gpflow.models.SGPR."
        )

    return derivatives, gradient


def derivatives(tape: tf.GradientTape, value: Any, sources: Sequence[Any], bar: Any = None) -> tuple[tf.Tensor, ...]:
    """
    Of `value`, tensors, in each of `sources`; zero where they do not depend on one.

    :param bar: the derivatives in `value`, tensors of its shapes; ones by default.
    """
    pulled = tape.gradient(value, sources, bar, tf.UnconnectedGradients.ZERO)
    return tuple(tf.convert_to_tensor(derivative) for derivative in pulled)
