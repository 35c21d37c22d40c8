"""Covariances of the inducing variables with each other and with rows of data.

Those of the squared exponential at inducing points, which most models use, are computed here: centred, so that they are
right far from the origin, and with what all rows share computed once. All others are GPflow's.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent, SquaredExponential

Covariance = Callable[..., tf.Tensor]
Part = tuple[InducingVariables, Kernel]


def independent_parts(inducing_variable: InducingVariables, kernel: Kernel) -> list[Part]:
    """
    The inducing variable and the kernel of each latent function, or one pair of them that all share.

    :raises ValueError: where the latent functions are not independent, or do not match in number.
    """
    kernels, variables = [kernel], [inducing_variable]
    if isinstance(kernel, SharedIndependent):
        kernels = [kernel.kernel]
    elif isinstance(kernel, SeparateIndependent):
        kernels = list(kernel.kernels)
    elif isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel must be one of a single output, SharedIndependent or SeparateIndependent, "
            f"got {type(kernel).__name__}."
        )
    if isinstance(inducing_variable, SharedIndependentInducingVariables):
        variables = [inducing_variable.inducing_variable]
    elif isinstance(inducing_variable, SeparateIndependentInducingVariables):
        variables = list(inducing_variable.inducing_variable_list)
    elif isinstance(inducing_variable, MultioutputInducingVariables):
        raise ValueError(
            "inducing_variable must be one that all latent functions share or SeparateIndependentInducingVariables, "
            f"got {type(inducing_variable).__name__}."
        )
    count = max(len(kernels), len(variables))
    if not {len(kernels), len(variables)} <= {1, count}:
        raise ValueError(f"kernel and inducing_variable must match, got {len(kernels)} and {len(variables)} of them.")
    return list(zip(_each(variables, count), _each(kernels, count), strict=True))


def _each(values: list[Any], count: int) -> list[Any]:
    return values * count if len(values) == 1 else values


def inducing_covariance(inducing_variable: InducingVariables, kernel: Kernel, jitter: float) -> tf.Tensor:
    """Covariance Kuu [M, M] or [C, M, M] of the inducing variables, with `jitter` on its diagonal."""
    return _stacked(_inducing_covariance(*part, jitter) for part in independent_parts(inducing_variable, kernel))


def _inducing_covariance(inducing_variable: InducingVariables, kernel: Kernel, jitter: float) -> tf.Tensor:
    if _is_squared_exponential(inducing_variable, kernel):
        Z = tf.convert_to_tensor(inducing_variable.Z)
        covariance, shared = _squared_exponential(kernel, Z, _centre(Z))
        variance = tf.exp(tf.math.log(kernel.variance))  # rounded as the other entries are
        return tf.linalg.set_diag(covariance(Z, *shared), tf.fill([tf.shape(Z)[0]], variance + jitter))
    return Kuu(inducing_variable, kernel, jitter=jitter)


def prior_covariance(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """
    Covariance Kff [..., n, n] of rows X [..., n, D], centred as their covariance with the inducing variables is; of
    separate latent functions [..., C, n, n].
    """
    return _stacked((_prior_covariance(*part, X) for part in independent_parts(inducing_variable, kernel)), axis=-3)


def _prior_covariance(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    if _is_squared_exponential(inducing_variable, kernel):
        covariance, shared = _squared_exponential(kernel, X, _centre(tf.convert_to_tensor(inducing_variable.Z)))
        return covariance(X, *shared)
    return kernel(X)


def prior_variances(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Variances of rows X [n, D], [n] or [C, n]."""
    return _stacked(part(X, full_cov=False) for _, part in independent_parts(inducing_variable, kernel))


def covariance_with_rows(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """A function of rows X [n, D] and of the tensors returned beside it that computes Kuf, [M, n] or [C, M, n]."""
    parts = [_covariance_with_rows(*part) for part in independent_parts(inducing_variable, kernel)]

    def covariance(X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        left = iter(inputs)
        return _stacked(each(X, *(next(left) for _ in own)) for each, own in parts)

    return covariance, tuple(value for _, own in parts for value in own)


def _covariance_with_rows(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    if _is_squared_exponential(inducing_variable, kernel):
        Z = tf.convert_to_tensor(inducing_variable.Z)
        return _squared_exponential(kernel, Z, _centre(Z))
    return lambda X: Kuf(inducing_variable, kernel, X), ()


class OldCovariances(NamedTuple):
    """Of inducing variables u at M points with old ones, a, at Ma points; separate ones lead, [C, ...]."""

    same: tf.Tensor
    """1 where a new point is that old one, otherwise 0, [M, Ma]."""
    Kba: tf.Tensor
    """[M, Ma], without jitter."""
    Kaa: tf.Tensor
    """[Ma, Ma], with it."""


def old_covariances(
    inducing_variable: InducingVariables, kernel: Kernel, Z_old: tf.Tensor, jitter: float
) -> OldCovariances:
    """
    Covariances with old inducing points.

    :param Z_old: [1 or C, Ma, D], the same for all latent functions or one for each.
    """
    Z_old = tf.convert_to_tensor(Z_old)
    parts = independent_parts(inducing_variable, kernel)
    found = [
        _old_covariances(*part, Z_old[number % Z_old.shape[0]], jitter) for number, part in enumerate(parts)
    ]  # (the remainder is 0 where they are the same)
    return OldCovariances(*(_stacked(values) for values in zip(*found, strict=True)))


def _old_covariances(
    inducing_variable: InducingVariables, kernel: Kernel, Z_old: tf.Tensor, jitter: float
) -> OldCovariances:
    Z = tf.convert_to_tensor(inducing_variable.Z)
    if _is_squared_exponential(inducing_variable, kernel):
        both, shared = _squared_exponential(kernel, tf.concat([Z, Z_old], axis=0), _centre(Z))
        Kba, Kaa = tf.split(both(Z_old, *shared), [tf.shape(Z)[0], tf.shape(Z_old)[0]])
    else:
        Kba, Kaa = kernel(Z, Z_old), kernel(Z_old)
    return OldCovariances(_same(Z, Z_old), Kba, Kaa + jitter * tf.eye(tf.shape(Z_old)[0], dtype=Z.dtype))


def _same(Z: tf.Tensor, Z_old: tf.Tensor) -> tf.Tensor:
    """Whether points are the same, [M, Ma]; of those that occur several times the first is the first, and so on."""
    with tf.device("CPU"):  # other devices have it for vectors only
        both = tf.concat([Z, Z_old], axis=0) + 0.0  # -0 is 0
        place = tf.raw_ops.UniqueV2(x=both, axis=[0]).idx  # the same for the same point
    new, old = tf.split(place, [tf.shape(Z)[0], tf.shape(Z_old)[0]])
    same = (new[:, None] == old) & (_occurrence(new)[:, None] == _occurrence(old))
    return tf.cast(same, Z.dtype)


def _occurrence(place: tf.Tensor) -> tf.Tensor:
    """How many before each one are the same, [n]."""
    return tf.reduce_sum(tf.linalg.band_part(tf.cast(place[:, None] == place, tf.int32), -1, 0), axis=-1)


def _stacked(values: Iterable[tf.Tensor], axis: int = 0) -> tf.Tensor:
    """One dimension more if there are several."""
    values = list(values)
    return tf.stack(values, axis) if len(values) > 1 else values[0]


def _is_squared_exponential(inducing_variable: InducingVariables, kernel: Kernel) -> bool:
    """Not for derived classes, which may have a covariance of their own."""
    return type(kernel) is SquaredExponential and type(inducing_variable) is InducingPoints


def _centre(Z: tf.Tensor) -> tf.Tensor:
    """Where the squared exponential's inputs are moved to the origin from, [D]; it does not depend on the origin."""
    return tf.stop_gradient(tf.reduce_mean(Z, axis=0))


def _squared_exponential(
    kernel: SquaredExponential, Z: tf.Tensor, centre: tf.Tensor
) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """
    Between Z [..., M, D] and rows [..., n, D], moved so that `centre` is at the origin.

    In units of lengthscales log k(z, x) = log variance - |z|^2/2 + z'x - |x|^2/2 is one product of
    [z, log variance - |z|^2/2, 1] with [x, 1, -|x|^2/2], so that exp is all that remains to be done elementwise.
    """
    z, _ = kernel.slice(Z - centre, None)
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    z = z / lengthscales  # [M, D]
    constant = tf.math.log(kernel.variance) - 0.5 * tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)  # [M, 1]
    left = tf.concat([z, constant, tf.ones_like(constant)], axis=-1)  # [M, D + 2]

    def covariance(X: tf.Tensor, left: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        if X.shape[-1] not in (None, Z.shape[-1]):
            raise ValueError(f"X must have {Z.shape[-1]} columns, as the inducing points, got {X.shape[-1]}.")
        X = tf.ensure_shape(X, [*X.shape[:-1], Z.shape[-1]])  # one column would be broadcast
        x, _ = kernel.slice(X - centre, None)
        x = x / lengthscales  # [n, D]
        square = -0.5 * tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)  # [n, 1]
        right = tf.concat([x, tf.ones_like(square), square], axis=-1)  # [n, D + 2]
        return tf.exp(tf.matmul(left, right, transpose_b=True))  # [M, n]

    return covariance, (left, lengthscales)
