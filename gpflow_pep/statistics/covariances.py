"""Covariances of the inducing variables with rows of data, arranged so that what rows share is computed once."""

from collections.abc import Callable

import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, SquaredExponential

Covariance = Callable[..., tf.Tensor]


def covariance_with_rows(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """
    A function of rows X [n, D] and of the tensors returned beside it that computes Kuf [M, n].

    Any pair of inducing variable and kernel that GPflow's ``Kuf`` dispatches on; the squared exponential at inducing
    points, which most models use, has a form of its own.
    """
    if type(kernel) is SquaredExponential and type(inducing_variable) is InducingPoints:
        return _squared_exponential(kernel, tf.convert_to_tensor(inducing_variable.Z))
    return lambda X: Kuf(inducing_variable, kernel, X), ()


def _squared_exponential(kernel: SquaredExponential, Z: tf.Tensor) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """
    In units of lengthscales log k(z, x) = log variance - |z|^2/2 + z'x - |x|^2/2 is one product of
    [z, log variance - |z|^2/2, 1] with [x, 1, -|x|^2/2], so that exp is all that remains to be done elementwise. Both
    are centred at the mean of Z, which keeps the digits that inputs far from the origin would lose in |x|^2.
    """
    Z, _ = kernel.slice(Z, None)
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    centre = tf.stop_gradient(tf.reduce_mean(Z, axis=0))  # [D]
    z = (Z - centre) / lengthscales  # [M, D]
    constant = tf.math.log(kernel.variance) - 0.5 * tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)  # [M, 1]
    left = tf.concat([z, constant, tf.ones_like(constant)], axis=-1)  # [M, D + 2]

    def covariance(X: tf.Tensor, left: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        X, _ = kernel.slice(X, None)
        x = (X - centre) / lengthscales  # [n, D]
        square = -0.5 * tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)  # [n, 1]
        right = tf.concat([x, tf.ones_like(square), square], axis=-1)  # [n, D + 2]
        return tf.exp(tf.matmul(left, right, transpose_b=True))  # [M, n]

    return covariance, (left, lengthscales)
