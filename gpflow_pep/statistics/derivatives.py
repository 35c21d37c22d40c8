"""The engine's adjoints are written out for first derivatives; a second one stops here rather than come out wrong."""

from typing import Any

import tensorflow as tf


def first_only(*derivatives: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    `derivatives` themselves, which cannot be differentiated again.

    :raises NotImplementedError: when a tape or ``tf.gradients`` tries to (at trace time, in a compiled function).
    """
    return tuple(_first_only(derivative) for derivative in derivatives)


@tf.custom_gradient
def _first_only(derivative: tf.Tensor) -> Any:
    def gradient(_: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError(
            "gpflow_pep differentiates its objectives once. For second derivatives take finite differences of the "
            "gradient, or gpflow.models.SGPR."
        )

    return tf.identity(derivative), gradient
