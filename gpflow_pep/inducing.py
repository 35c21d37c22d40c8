"""Choosing inducing points among rows: greedily, where the conditional variance is largest (Burt et al. 2020)."""

import tensorflow as tf
from gpflow.kernels import Kernel

_SMALLEST = 1e-12  # of a conditional variance, relative to the largest variance: below it a row is a copy


def greedy_conditional_variance(
    kernel: Kernel, X: tf.Tensor, count: int | tf.Tensor, *, first: int | tf.Tensor, among: int | tf.Tensor
) -> tf.Tensor:
    """
    Indices of `count` rows, each the one of largest variance given those before it, [count]; no row twice.

    A pivoted Cholesky factorisation, O(n count²) time and O(n count) memory. Of equal variances the first row wins.

    :param kernel: a kernel of one output.
    :param X: candidates [n, D].
    :param first: so many are chosen first, among
    :param among: the first so many rows; the others among all.
    """
    n = tf.shape(X)[0]
    variances = kernel(X, full_cov=False)
    position = tf.range(n)
    root = tf.zeros([count, n], X.dtype)
    chosen = tf.zeros([count], tf.int32)

    def step(
        number: tf.Tensor, root: tf.Tensor, left: tf.Tensor, chosen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        eligible = (number >= first) | (position < among)
        pivot = tf.argmax(tf.where(eligible, left, -tf.ones_like(left)), output_type=tf.int32)
        given = tf.linalg.matvec(root, root[:, pivot], transpose_a=True)
        scale = tf.sqrt(tf.maximum(left[pivot], _SMALLEST * tf.reduce_max(variances)))
        row = (kernel(X[pivot : pivot + 1], X)[0] - given) / scale
        # What has been chosen is behind everything else, also behind rows that nothing is left of.
        left = tf.where(
            position == pivot, -0.5 * tf.ones_like(left), tf.where(left < 0.0, left, tf.nn.relu(left - row**2))
        )
        return (
            number + 1,
            tf.tensor_scatter_nd_update(root, [[number]], row[None]),
            left,
            tf.tensor_scatter_nd_update(chosen, [[number]], pivot[None]),
        )

    *_, chosen = tf.while_loop(
        lambda number, *_: number < count, step, (tf.constant(0), root, variances, chosen), parallel_iterations=1
    )
    return chosen
