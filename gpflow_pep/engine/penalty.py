"""The penalty log det(I + k X) / k and its limit at k = 0, without cancellation.

Below a threshold on k X a power series is used, above it the closed form. At the threshold the
first neglected term of the series is at most as large as the rounding error of the closed form.
"""

import tensorflow as tf

from ..maths.linalg import cholesky, inverse_of_product, log_det
from ..runtime.custom_gradients import WithGradient, once_differentiable
from ..runtime.distribution import ONE_PROCESS, Workers

_SERIES_BELOW = 1e-3  # of k X, for matrices (four terms)
ADVICE = (
    "a larger noise variance, a larger jitter of Kuu, smaller blocks, or looking for repeated rows "
    "in a block"
)


def log1p_ratio(power: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute log(1 + power x) / power elementwise, x if power is 0; broadcasts."""
    z = power * x
    # Below 1e-30 log(1 + z) is z; a product that underflows must not become 0. A NaN in x stays,
    # also if power is 0.
    return tf.where(
        (power == 0.0) | (tf.abs(z) < 1e-30), x, tf.math.divide_no_nan(tf.math.log1p(z), power)
    )


def scale_terms(
    power: tf.Tensor, scale: tf.Tensor, count: tf.Tensor | float, workers: Workers = ONE_PROCESS
) -> tf.Tensor:
    """
    Compute the term of the structured conditional q(f|u), with covariance m D, in the evidence of
    T-PEP, [].

        Σ_n { log m - log(1 + α_n (m - 1))/α_n } / 2

    per latent function, for any likelihood: the power-EP term of p(f|u)/q(f|u) (Bui and Titsias
    2025, eqs 38 to 41).

    :param power: α of all rows [], or one for each row or block of this worker, [B].
    :param scale: m, [] or [B].
    :param count: number of rows per power and scale; rows of all workers if there is one of each.
    """

    @tf.custom_gradient
    def total(scale: tf.Tensor) -> WithGradient:
        mixed = (1.0 - power) + power * scale  # 1 + α (m - 1), without cancellation at small m
        logarithm = tf.math.divide_no_nan(tf.math.log(mixed), power)
        ratio = tf.where(mixed < 0.5, logarithm, log1p_ratio(power, scale - 1.0))
        terms = (0.5 * count) * (tf.math.log(scale) - ratio)
        slopes = (0.5 * count) * (1.0 - power) * (1.0 - scale) / (scale * mixed)
        if terms.shape.rank > 0:
            terms, slope = tf.unstack(
                workers.sum(tf.stack([tf.reduce_sum(terms), tf.reduce_sum(slopes)]))
            )
            slopes = slope if scale.shape.rank == 0 else slopes
        return terms, lambda bar: once_differentiable(bar * slopes)[0]

    return total(scale)


@tf.custom_gradient
def log_det_ratio(power: tf.Tensor, X: tf.Tensor) -> WithGradient:
    """
    Compute log det(I + power X) / power, [G], of symmetric X [G, b, b], power [] or [G]; the trace
    if power is 0.
    """
    X2 = tf.matmul(X, X)
    t1, t2, t3, t4 = tf.linalg.trace(X), _dot(X, X), _dot(X, X2), _dot(X2, X2)
    series = t1 - power * (t2 / 2.0 - power * (t3 / 3.0 - power * t4 / 4.0))
    factor = penalty_factor(power, X)
    direct = tf.math.divide_no_nan(log_det(factor), power)

    def gradient(bar: tf.Tensor) -> tuple[None, tf.Tensor]:
        return None, *once_differentiable(bar[:, None, None] * inverse_of_product(factor))

    return tf.where(
        (power == 0.0) | (power * tf.sqrt(t2) < _SERIES_BELOW), series, direct
    ), gradient


def factored_log_det_ratio(
    factor: tf.Tensor, power: tf.Tensor, trace: tf.Tensor, squares: tf.Tensor
) -> tf.Tensor:
    """
    Compute log det(I + power X) / power, [...], of symmetric X [..., b, b] from a factor of I +
    power X, its trace and tr X², `squares`, [...]; the trace if power is 0. The relative accuracy
    is 1e-10, with two terms of the series.
    """
    series = trace - 0.5 * power * squares
    direct = tf.math.divide_no_nan(log_det(factor), power)
    # The next term is the square of the bound, 1e-5; the rounding error of the logarithm is 1e-16
    # over it.
    return tf.where((power == 0.0) | (power * tf.sqrt(tf.nn.relu(squares)) < 1e-5), series, direct)


def _dot(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """tr(X Y) of symmetric matrices [G, b, b]: [G]."""
    return tf.reduce_sum(X * Y, axis=[-2, -1])


def penalty_factor(power: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Cholesky factor of I + power X with power [] or [G], [G, b, b]."""
    identity = tf.eye(tf.shape(X)[-1], dtype=X.dtype)
    return cholesky(
        identity + power[..., None, None] * X, name="a block of the penalty", advice=ADVICE
    )
