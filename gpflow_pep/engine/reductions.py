"""Sums, maxima and decisions over the rows of all workers; with one process, over its own rows."""

import tensorflow as tf

from .workers import Workers


class Reductions:
    """Reduce what each worker has computed from its rows."""

    def __init__(self, workers: Workers | None):
        """
        :param workers: None: there is one process.
        """
        self._workers = workers

    def sum(self, value: tf.Tensor) -> tf.Tensor:
        """Add up sums of the workers; whole numbers of several workers have 64 bits."""
        if self._workers is not None and value.dtype.is_integer:
            value = tf.cast(value, tf.int64)
        return self.sums((value,))[0]

    def sums(self, values: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        """Add up several sums of the workers, of one type, in one operation."""
        return values if self._workers is None else self._workers.sum(values)

    def largest(self, value: tf.Tensor) -> tf.Tensor:
        """Return the maximum over the workers, []."""
        return value if self._workers is None else self._workers.largest(value)

    def smallest(self, value: tf.Tensor) -> tf.Tensor:
        """Return the minimum over the workers, []."""
        return value if self._workers is None else -self._workers.largest(-value)

    def any(self, condition: tf.Tensor) -> tf.Tensor:
        """Return whether a condition holds on any worker, []."""
        return condition if self._workers is None else self._workers.any(condition)

    def agreed(self, value: tf.Tensor) -> tf.Tensor:
        """Return the chief's value of what all workers compute, so that their decisions agree to the last digit."""
        return value if self._workers is None else self._workers.broadcast_from_chief([value])[0]

    def norm(self, values: tf.Tensor) -> tf.Tensor:
        """Return the Euclidean norm, over the workers, of values [N, ...]."""
        return tf.sqrt(self.sum(tf.reduce_sum(tf.square(values))))
