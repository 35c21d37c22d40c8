"""Covariances of the inducing variables with each other and with rows of data.

GPflow's isotropic kernels at inducing points, and their sums and products, have hand-written
derivatives here; other kernels at inducing points are computed by `kernel_matrix`. Both are
accurate far from the origin. GPflow does the rest.
"""

from collections.abc import Callable, Iterator, Sequence
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
from gpflow.kernels import (
    Kernel,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from typing_extensions import override

from ..maths.linalg import (
    column_products,
    condition,
    epsilon,
    plus_identity,
    symmetric_product,
    with_diagonal,
)
from ..runtime import Tensors, WithGradient, asserted
from .kernel_matrices import (
    FEW_INPUTS,
    PROFILES,
    REDUCTIONS,
    Profile,
    covariance_of,
    kernel_matrix,
    num_active,
    uses_all_columns,
    within_reach,
)


def independent_parts(
    inducing_variable: InducingVariables, kernel: Kernel
) -> list[tuple[InducingVariables, Kernel]]:
    """
    Return one (inducing variable, kernel) pair per latent function, which must be independent, or a
    shared pair.
    """
    kernels: Sequence[Kernel] = [kernel]
    variables: Sequence[InducingVariables] = [inducing_variable]
    if isinstance(kernel, SharedIndependent | SeparateIndependent):
        kernels = kernel.latent_kernels
    elif isinstance(kernel, MultioutputKernel):
        accepted = "a single-output kernel, SharedIndependent or SeparateIndependent"
        raise ValueError(f"kernel must be {accepted}, got {type(kernel).__name__}.")
    if isinstance(
        inducing_variable, SharedIndependentInducingVariables | SeparateIndependentInducingVariables
    ):
        variables = inducing_variable.inducing_variables
    elif isinstance(inducing_variable, MultioutputInducingVariables):
        accepted = "shared by all latent functions or SeparateIndependentInducingVariables"
        raise ValueError(
            f"inducing_variable must be {accepted}, got {type(inducing_variable).__name__}."
        )
    if len(kernels) != len(variables) and min(len(kernels), len(variables)) != 1:
        raise ValueError(
            f"kernel and inducing_variable must have the same number of parts, got {len(kernels)} "
            f"kernels and {len(variables)} inducing variables."
        )
    return paired(variables, kernels)


def paired(variables: Sequence[object], kernels: Sequence[Kernel]) -> list[tuple[Any, Kernel]]:
    """Pair the inducing variables and kernels of latent functions, which may share a single one."""
    count = max(len(variables), len(kernels))
    return [
        (variables[part % len(variables)], kernels[part % len(kernels)]) for part in range(count)
    ]


class _Combination:
    """
    Covariances of several parts with their common `inputs`, combined by a reduction such as a sum
    of kernels.
    """

    def __init__(self, reduction: Callable[..., tf.Tensor], parts: Sequence[Any]):
        self._reduction, self._parts = reduction, parts
        self.inputs: Tensors = tuple(value for part in parts for value in part.inputs)

    def Kuu(self, jitter: float) -> tf.Tensor:
        return plus_identity(self._reduction([part.Kuu(0.0) for part in self._parts]), jitter)

    def Kuf(self, X: tf.Tensor, *inputs: tf.Tensor, dtype: tf.DType | None = None) -> tf.Tensor:
        return self._reduction([part.Kuf(X, *own, dtype=dtype) for part, own in self._with(inputs)])

    def variances(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        return self._reduction([part.variances(X, *own) for part, own in self._with(inputs)])

    def Kff(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        return self._reduction([part.Kff(X, *own) for part, own in self._with(inputs)])

    def _with(self, inputs: Sequence[tf.Tensor]) -> Iterator[tuple[Any, list[tf.Tensor]]]:
        """Return each part with its own inputs, by default the present ones."""
        rest = iter(inputs or self.inputs)
        return ((part, [next(rest) for _ in part.inputs]) for part in self._parts)


class Prior(_Combination):
    """
    Prior covariances of one or several latent functions; the parameters are read once.

    Tensors that all rows share are in `inputs`, so that covariances with rows can be differentiated
    in them. They are optional arguments:

    - ``Kuf(X, *inputs, dtype=None)``: of the inducing variables with rows X [n, D], [M, n] or [C,
      M, n], in any precision (distances are always computed in the precision of X);
    - ``variances(X, *inputs)``: of rows X [n, D], [n] or [C, n];
    - ``Kff(X, *inputs)``: of rows X [..., n, D], [..., n, n], or [..., C, n, n] for separate latent
      functions.
    """

    def __init__(self, inducing_variable: InducingVariables, kernel: Kernel):
        super().__init__(
            stacked, [_part(*part) for part in independent_parts(inducing_variable, kernel)]
        )
        self.inducing_variable, self.kernel = inducing_variable, kernel

    @override
    def Kuu(self, jitter: float) -> tf.Tensor:
        """Compute the covariance of the inducing variables plus `jitter` I, [M, M] or [C, M, M]."""
        return self._reduction([part.Kuu(jitter) for part in self._parts])

    @override
    def Kff(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        covariance = super().Kff(X, *inputs)  # [n, n], or [C, ..., n, n]
        leading = X.shape.rank - 2
        if len(self._parts) == 1 or leading == 0:
            return covariance
        return tf.transpose(covariance, [*range(1, leading + 1), 0, leading + 1, leading + 2])


class _GPflowCovariances:
    """Covariances of one latent function as GPflow defines them."""

    inputs: Tensors = ()

    def __init__(self, inducing_variable: InducingVariables, kernel: Kernel):
        self._inducing_variable, self._kernel = inducing_variable, kernel

    def Kuu(self, jitter: float) -> tf.Tensor:
        return Kuu(self._inducing_variable, self._kernel, jitter=jitter)

    def Kuf(self, X: tf.Tensor, *inputs: tf.Tensor, dtype: tf.DType | None = None) -> tf.Tensor:
        return tf.cast(Kuf(self._inducing_variable, self._kernel, X), dtype or X.dtype)

    def variances(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        return covariance_of(self._kernel, X, full_cov=False)

    def Kff(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        return kernel_matrix(self._kernel, X)


class _PointCovariances(_GPflowCovariances):
    """Covariances for inducing points, by :func:`kernel_matrix`."""

    def __init__(self, inducing_variable: InducingPoints, kernel: Kernel):
        super().__init__(inducing_variable, kernel)
        self._Z = tf.convert_to_tensor(inducing_variable.Z)

    @override
    def Kuu(self, jitter: float) -> tf.Tensor:
        return plus_identity(self.Kff(self._Z), jitter)

    @override
    def Kuf(self, X: tf.Tensor, *inputs: tf.Tensor, dtype: tf.DType | None = None) -> tf.Tensor:
        Z = tf.convert_to_tensor(self._inducing_variable.Z)  # read here: it is not among the inputs
        return tf.cast(kernel_matrix(self._kernel, Z, _as_wide(X, Z)), dtype or X.dtype)


class _Stationary(_PointCovariances):
    """Covariances of a stationary kernel with a profile, for inputs centered at the mean of Z.

    In units of lengthscales t = offset + slope |z - x|^2 is one product of [-2 slope z, offset +
    slope |z|^2, slope] with [x, 1, |x|^2]; only the profile is elementwise. The product cancels if
    x is near z and both are far from the origin. It is in double precision even if the profile is
    not: rounding t changes exp(t) by eps |t| exp(t).
    """

    def __init__(self, inducing_variable: InducingPoints, kernel: Kernel, profile: Profile):
        super().__init__(inducing_variable, kernel)
        self._profile = profile
        # Its position changes nothing: the kernel is translation invariant.
        self._center = tf.stop_gradient(tf.reduce_mean(self._Z, axis=0))
        lengthscales = tf.broadcast_to(kernel.lengthscales, [num_active(kernel, self._Z.shape[-1])])
        variance, *others = (
            tf.convert_to_tensor(getattr(kernel, name))
            for name in ("variance", *profile.parameters)
        )
        log_variance = tf.math.log(variance)
        self.inputs = (
            self._left(self._Z, lengthscales, log_variance),
            lengthscales,
            variance,
            log_variance,
            *others,
        )

    @override
    def Kuu(self, jitter: float) -> tf.Tensor:
        return self._of_rows(self._Z, self.inputs, jitter)

    @override
    def Kuf(self, X: tf.Tensor, *inputs: tf.Tensor, dtype: tf.DType | None = None) -> tf.Tensor:
        left, lengthscales, _, *rest = inputs
        return _covariance(
            self._profile, left, self._centered(X), lengthscales, *rest, dtype=dtype or X.dtype
        )

    @override
    def variances(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(X)[:-1], inputs[2])

    @override
    def Kff(self, X: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        _, lengthscales, variance, log_variance, *others = inputs
        left = self._left(X, lengthscales, log_variance)
        return self._of_rows(X, (left, lengthscales, variance, log_variance, *others), 0.0)

    def _of_rows(self, X: tf.Tensor, inputs: Tensors, jitter: float) -> tf.Tensor:
        """Return the covariance of X, with variances plus `jitter` rounded as other entries are."""
        diagonal = tf.fill(tf.shape(X)[:-1], tf.exp(inputs[3]) + jitter)
        return with_diagonal(self.Kuf(X, *inputs), diagonal)

    def _left(self, Z: tf.Tensor, lengthscales: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
        """[-2 slope z, offset + slope |z|^2, slope], [..., M, D + 2]."""
        z = self._centered(Z) / lengthscales
        squares = tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)
        slope = self._profile.slope
        constant = (log_variance if self._profile.is_exponent else 0.0) + slope * squares
        left = tf.concat([(-2.0 * slope) * z, constant, slope * tf.ones_like(constant)], axis=-1)
        return within_reach(left, squares, self._profile.accuracy)

    def _centered(self, X: tf.Tensor) -> tf.Tensor:
        """The inputs that the kernel uses, [..., n, D]."""
        centered = _as_wide(X, self._Z) - self._center
        if uses_all_columns(self._kernel):
            return centered
        return self._kernel.slice(centered, None)[0]


def _as_wide(X: tf.Tensor, Z: tf.Tensor) -> tf.Tensor:
    """
    Return X; raise an error unless it has as many columns as Z (a single column would broadcast).
    """
    if X.shape[-1] not in (None, Z.shape[-1]):
        raise ValueError(
            f"X or Xnew must have {Z.shape[-1]} columns, as the inducing points, got {X.shape[-1]}."
        )
    return tf.ensure_shape(X, [*X.shape[:-1], Z.shape[-1]])


def _covariance(
    profile: Profile,
    left: tf.Tensor,
    X: tf.Tensor,
    lengthscales: tf.Tensor,
    *rest: tf.Tensor,
    dtype: tf.DType,
) -> Any:
    """
    The profile of left [x, 1, |x|^2]', x = X / lengthscales, [..., M, n]; `rest`: log variance,
    parameters, [].
    """

    @tf.custom_gradient
    def covariance(
        left: tf.Tensor, X: tf.Tensor, lengthscales: tf.Tensor, *rest: tf.Tensor
    ) -> WithGradient:
        x = X / lengthscales
        square = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)  # [..., n, 1]
        right = tf.concat([x, tf.ones_like(square), square], axis=-1)  # [..., n, D + 2]
        t, *others = (
            tf.cast(value, dtype) for value in (tf.matmul(left, right, transpose_b=True), *rest)
        )
        K, pull_back = profile.evaluate(t, *others)

        def sum_rows(values: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(values, axis=list(range(values.shape.rank - 1)))  # [D]

        def gradient(bar: tf.Tensor) -> Tensors:
            G, *rest_bar = (tf.cast(value, X.dtype) for value in pull_back(bar))
            factor, parts = profile.factor, [x.shape[-1], 1, 1]
            of_x, _, of_square = tf.split(left, parts, axis=-1)
            left_bar = factor * tf.matmul(G, right)
            of_x_bar, _, _ = tf.split(left_bar, parts, axis=-1)
            twice_square_bar = 2.0 * tf.matmul(
                G, factor * of_square, transpose_a=True
            )  # [..., n, 1]
            # Unused for rows of data: the graph then prunes this product.
            x_bar = tf.matmul(G, factor * of_x, transpose_a=True) + x * twice_square_bar
            xx_bar = sum_rows(of_x * of_x_bar) + sum_rows(tf.square(x) * twice_square_bar)
            return left_bar, x_bar / lengthscales, -xx_bar / lengthscales, *rest_bar

        return K, gradient

    return covariance(left, X, lengthscales, *rest)


def stacked(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Stack the tensors; return a single tensor unchanged."""
    return tf.stack(values) if len(values) > 1 else values[0]


def _part(inducing_variable: InducingVariables, kernel: Kernel) -> Any:
    """
    Return the covariances of one latent function; subclasses of GPflow's classes may override the
    covariance.
    """
    points, kind = InducingPoints, type(kernel)
    is_default = Kuu.dispatch(points, kind) is Kuu.dispatch(points, Kernel)
    is_default &= Kuf.dispatch(points, kind, tf.Tensor) is Kuf.dispatch(points, Kernel, tf.Tensor)
    if type(inducing_variable) is not points or not is_default:
        return _GPflowCovariances(inducing_variable, kernel)
    # The squared exponential takes no root, which would amplify errors of small distances.
    return _at_points(
        inducing_variable,
        kernel,
        few_inputs=1 if type(kernel) is SquaredExponential else FEW_INPUTS,
    )


def _at_points(inducing_variable: InducingPoints, kernel: Kernel, few_inputs: int) -> Any:
    """
    Return the covariances of a kernel or a part of it, from differences if it uses up to
    `few_inputs` inputs.
    """
    if type(kernel) in REDUCTIONS:
        parts = [_at_points(inducing_variable, part, few_inputs) for part in kernel.kernels]
        return _Combination(REDUCTIONS[type(kernel)], parts)
    profile = PROFILES.get(type(kernel))  # not for subclasses, which may override the covariance
    count = 0 if profile is None else num_active(kernel, inducing_variable.Z.shape[-1])
    if profile is not None and count > few_inputs:
        return _Stationary(inducing_variable, kernel, profile)
    return _PointCovariances(inducing_variable, kernel)


def conditional_variance_of_f(Kff: tf.Tensor, V: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """
    Compute d = Kff - diag(V'V), [..., n], V = L^-1 Kuf, clipped at 0; see
    :func:`with_checked_variance`.
    """
    conditional_variance = Kff - column_products(V, V)
    return tf.nn.relu(with_checked_variance(conditional_variance, conditional_variance, Kff, L))


@tf.custom_gradient
def conditional_covariance_of_f(Kff: tf.Tensor, Vt: tf.Tensor) -> WithGradient:
    """Compute D = Kff - V'V, [..., n, n], from Vt = V', [..., n, M]; dL/dV is a single product."""

    def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return bar, -tf.matmul(bar + tf.linalg.matrix_transpose(bar), Vt)

    return Kff - symmetric_product(Vt, Vt), gradient


def with_checked_variance(
    value: tf.Tensor, conditional_variance: tf.Tensor, Kff: tf.Tensor, L: tf.Tensor
) -> tf.Tensor:
    """
    Return `value` if the variances of f given u, Kff - diag(V'V) with V = L^-1 Kuf, are not
    negative beyond rounding.

    The computed factor is exact for a Kuu perturbed by about M eps times its entries (Higham 2002,
    theorem 10.4). That changes V'V by M eps |Kuu| |w|^2, w = Kuu^-1 Kuf, and |w|^2 <= Kff/lambda
    for the smallest eigenvalue lambda of Kuu. The squared ratio of the largest to the smallest
    entry of L's diagonal estimates |Kuu|/lambda from below; a factor of 100 covers the difference.

    :param conditional_variance: [..., n]; `Kff`: the prior variances; `L`: factor of Kuu, [M, M] or
        [C, M, M].
    :raises tf.errors.InvalidArgumentError: if a variance is negative beyond rounding error.
    """
    size = tf.cast(tf.shape(L)[-1], L.dtype)
    bound = (100.0 * epsilon(L.dtype)) * size * tf.reduce_max(condition(L))
    return asserted(
        value,
        ~tf.reduce_any(conditional_variance < -bound * tf.reduce_max(Kff)),  # NaN is found later
        "the variance of f given u is negative beyond rounding error: Kuu, Kuf and Kff are "
        "inconsistent, perhaps because inputs are far from the origin or span too many "
        "lengthscales. Try: subtracting the mean of X from X, Xnew and the inducing points, or "
        "longer lengthscales. If posterior() was called before the model changed, call "
        "update_cache(). The smallest variance is",
        tf.reduce_min(conditional_variance),
    )


def floating_variables(*parts: tf.Module) -> tuple[tf.Variable, ...]:
    """List the differentiable variables of all parts, without duplicates."""
    variables = {variable.ref(): variable for part in parts for variable in part.variables}
    return tuple(variable for variable in variables.values() if variable.dtype.is_floating)
