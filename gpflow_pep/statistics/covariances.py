"""Covariances of the inducing variables with each other and with rows of data.

Those of the squared exponential at inducing points, which most models use, are computed here: centred, so that they are
right far from the origin, and with what all rows share computed once. All others are GPflow's.
"""

from collections.abc import Callable

import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, SquaredExponential

Covariance = Callable[..., tf.Tensor]


def inducing_covariance(inducing_variable: InducingVariables, kernel: Kernel, jitter: float) -> tf.Tensor:
    """Covariance Kuu [M, M] of the inducing variables, with `jitter` on its diagonal."""
    if _is_squared_exponential(inducing_variable, kernel):
        Z = tf.convert_to_tensor(inducing_variable.Z)
        covariance = kernel(Z - _centre(Z))
        return covariance + jitter * tf.eye(tf.shape(Z)[0], dtype=covariance.dtype)
    return Kuu(inducing_variable, kernel, jitter=jitter)


def prior_covariance(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Covariance Kff [..., n, n] of rows X [..., n, D], centred as their covariance with the inducing variables is."""
    if _is_squared_exponential(inducing_variable, kernel):
        return kernel(X - _centre(tf.convert_to_tensor(inducing_variable.Z)))
    return kernel(X)


def covariance_with_rows(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """A function of rows X [n, D] and of the tensors returned beside it that computes Kuf [M, n]."""
    if _is_squared_exponential(inducing_variable, kernel):
        return _squared_exponential(kernel, tf.convert_to_tensor(inducing_variable.Z))
    return lambda X: Kuf(inducing_variable, kernel, X), ()


def _is_squared_exponential(inducing_variable: InducingVariables, kernel: Kernel) -> bool:
    """Not for derived classes, which may have a covariance of their own."""
    return type(kernel) is SquaredExponential and type(inducing_variable) is InducingPoints


def _centre(Z: tf.Tensor) -> tf.Tensor:
    """Where the squared exponential's inputs are moved to the origin from, [D]; it does not depend on the origin."""
    return tf.stop_gradient(tf.reduce_mean(Z, axis=0))


def _squared_exponential(kernel: SquaredExponential, Z: tf.Tensor) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """
    In units of lengthscales log k(z, x) = log variance - |z|^2/2 + z'x - |x|^2/2 is one product of
    [z, log variance - |z|^2/2, 1] with [x, 1, -|x|^2/2], so that exp is all that remains to be done elementwise.
    """
    centre = _centre(Z)
    z, _ = kernel.slice(Z - centre, None)
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    z = z / lengthscales  # [M, D]
    constant = tf.math.log(kernel.variance) - 0.5 * tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)  # [M, 1]
    left = tf.concat([z, constant, tf.ones_like(constant)], axis=-1)  # [M, D + 2]

    def covariance(X: tf.Tensor, left: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        if X.shape[-1] not in (None, Z.shape[-1]):
            raise ValueError(f"X must have {Z.shape[-1]} columns, as the inducing points, got {X.shape[-1]}.")
        X = tf.ensure_shape(X, [None, Z.shape[-1]])  # one column would be broadcast
        x, _ = kernel.slice(X - centre, None)
        x = x / lengthscales  # [n, D]
        square = -0.5 * tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)  # [n, 1]
        right = tf.concat([x, tf.ones_like(square), square], axis=-1)  # [n, D + 2]
        return tf.exp(tf.matmul(left, right, transpose_b=True))  # [M, n]

    return covariance, (left, lengthscales)
