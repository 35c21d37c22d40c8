"""Covariances of the inducing variables with each other and with rows of data.

Those of the squared exponential at inducing points, which most models use, are computed here: centred, so that they are
right far from the origin, with what all rows share computed once, and with their derivatives written out. All others
are GPflow's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

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


class Prior:
    """
    Covariances under the prior, of one latent function or of several, from one reading of the parameters.

    What they share is in `inputs`, tensors, for who differentiates the covariances with rows in them.
    """

    def __init__(self, inducing_variable: InducingVariables, kernel: Kernel):
        """
        :raises ValueError: where the latent functions are not independent, or do not match in number.
        """
        self._parts = [_part(*part) for part in independent_parts(inducing_variable, kernel)]
        self.inputs = tuple(value for part in self._parts for value in part.inputs)

    def Kuu(self, jitter: float) -> tf.Tensor:
        """Covariance of the inducing variables, with `jitter` on its diagonal, [M, M] or [C, M, M]."""
        return stacked(part.Kuu(jitter) for part in self._parts)

    def Kuf(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        """Covariance of the inducing variables with rows X [n, D], [M, n] or [C, M, n]; `inputs` are the prior's."""
        return stacked(part.Kuf(X, *own) for part, own in self._with_own(inputs))

    def variances(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        """Variances of rows X [n, D], [n] or [C, n]; `inputs` are the prior's."""
        return stacked(part.variances(X, *own) for part, own in self._with_own(inputs))

    def Kff(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        """
        Covariance of rows X [..., n, D], centred as the inducing variables are: [..., n, n], of separate latent
        functions [..., C, n, n]; `inputs` are the prior's.
        """
        return stacked((part.Kff(X, *own) for part, own in self._with_own(inputs)), axis=-3)

    def _with_own(
        self, inputs: Sequence[tf.Tensor]
    ) -> Iterator[tuple["_SquaredExponential | _Other", list[tf.Tensor]]]:
        left = iter(inputs)
        return ((part, [next(left) for _ in part.inputs]) for part in self._parts)


class _Other:
    """GPflow's covariances of one latent function."""

    inputs: tuple[tf.Tensor, ...] = ()

    def __init__(self, inducing_variable: InducingVariables, kernel: Kernel):
        self._inducing_variable, self._kernel = inducing_variable, kernel

    def Kuu(self, jitter: float) -> tf.Tensor:
        return Kuu(self._inducing_variable, self._kernel, jitter=jitter)

    def Kuf(self, X: tf.Tensor) -> tf.Tensor:
        return Kuf(self._inducing_variable, self._kernel, X)

    def variances(self, X: tf.Tensor) -> tf.Tensor:
        return self._kernel(X, full_cov=False)

    def Kff(self, X: tf.Tensor) -> tf.Tensor:
        return self._kernel(X)


class _SquaredExponential:
    """
    Those of the squared exponential at inducing points, moved so that `centre` is at the origin.

    In units of lengthscales log k(z, x) = log variance - |z|^2/2 + z'x - |x|^2/2 is one product of
    [z, log variance - |z|^2/2, 1] with [x, 1, -|x|^2/2], so that exp is all that remains to be done elementwise.
    """

    def __init__(self, inducing_variable: InducingPoints, kernel: SquaredExponential):
        self._kernel, self._Z = kernel, tf.convert_to_tensor(inducing_variable.Z)
        self._centre = tf.stop_gradient(tf.reduce_mean(self._Z, axis=0))  # nothing depends on where the origin is
        lengthscales, variance = map(tf.convert_to_tensor, (kernel.lengthscales, kernel.variance))
        log_variance = tf.math.log(variance)
        self.inputs = (self._left(self._Z, lengthscales, log_variance), lengthscales, variance, log_variance)

    def Kuu(self, jitter: float) -> tf.Tensor:
        variance = tf.exp(self.inputs[-1])  # rounded as the other entries are
        size = self._Z.shape[0] or tf.shape(self._Z)[0]
        return tf.linalg.set_diag(self.Kuf(self._Z, *self.inputs), tf.fill([size], variance + jitter))

    def Kuf(self, X: tf.Tensor, left: tf.Tensor, lengthscales: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return _exponential(left, self._centred(X), lengthscales)

    def variances(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        _, _, variance, _ = inputs
        return tf.fill(tf.shape(X)[:-1], variance)

    def Kff(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        _, lengthscales, _, log_variance = inputs
        return _exponential(self._left(X, lengthscales, log_variance), self._centred(X), lengthscales)

    def _left(self, Z: tf.Tensor, lengthscales: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
        """[z, log variance - |z|^2/2, 1], [..., M, D + 2]."""
        z = self._centred(Z) / lengthscales
        constant = log_variance - 0.5 * tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)
        return tf.concat([z, constant, tf.ones_like(constant)], axis=-1)

    def _centred(self, X: tf.Tensor) -> tf.Tensor:
        """The inputs that the kernel uses, [..., n, D]."""
        if X.shape[-1] not in (None, self._Z.shape[-1]):
            raise ValueError(f"X must have {self._Z.shape[-1]} columns, as the inducing points, got {X.shape[-1]}.")
        X = tf.ensure_shape(X, [*X.shape[:-1], self._Z.shape[-1]])  # one column would be broadcast
        centred = X - self._centre
        dims = self._kernel.active_dims
        return centred if isinstance(dims, slice) and dims == slice(None) else self._kernel.slice(centred, None)[0]


@tf.custom_gradient
def _exponential(left: tf.Tensor, X: tf.Tensor, lengthscales: tf.Tensor) -> Any:
    """exp(left [x, 1, -|x|^2/2]') with x = X / lengthscales, left [..., M, D + 2] and X [..., n, D]: [..., M, n]."""
    x = X / lengthscales
    square = -0.5 * tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)  # [..., n, 1]
    right = tf.concat([x, tf.ones_like(square), square], axis=-1)  # [..., n, D + 2]
    K = tf.exp(tf.matmul(left, right, transpose_b=True))

    def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
        G = bar * K
        right_bar = tf.matmul(G, left, transpose_a=True)
        D = x.shape[-1]
        X_bar = (right_bar[..., :D] - x * right_bar[..., D + 1 :]) / lengthscales
        over = range(X.shape.rank - lengthscales.shape.rank)
        lengthscales_bar = -tf.reduce_sum(X_bar * x, axis=list(over))
        return tf.matmul(G, right), X_bar, lengthscales_bar

    return K, gradient


def inducing_covariance(inducing_variable: InducingVariables, kernel: Kernel, jitter: float) -> tf.Tensor:
    """:meth:`Prior.Kuu`."""
    return Prior(inducing_variable, kernel).Kuu(jitter)


def covariance_with_rows(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[Covariance, tuple[tf.Tensor, ...]]:
    """:meth:`Prior.Kuf` and the inputs of the prior."""
    prior = Prior(inducing_variable, kernel)
    return prior.Kuf, prior.inputs


def prior_covariance(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """:meth:`Prior.Kff`."""
    prior = Prior(inducing_variable, kernel)
    return prior.Kff(X, *prior.inputs)


def prior_variances(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Variances of rows X [n, D], [n] or [C, n]."""
    return stacked(part(X, full_cov=False) for _, part in independent_parts(inducing_variable, kernel))


def stacked(values: Iterable[tf.Tensor], axis: int = 0) -> tf.Tensor:
    """One dimension more if there are several."""
    values = list(values)
    return tf.stack(values, axis) if len(values) > 1 else values[0]


def _part(inducing_variable: InducingVariables, kernel: Kernel) -> _SquaredExponential | _Other:
    """One latent function's; classes derived from the squared exponential may have a covariance of their own."""
    is_here = type(kernel) is SquaredExponential and type(inducing_variable) is InducingPoints
    return (_SquaredExponential if is_here else _Other)(inducing_variable, kernel)
