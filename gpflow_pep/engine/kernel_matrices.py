"""
Kernel matrices that are accurate far from the origin, profiles of isotropic kernels with their
derivatives, and checks of the columns that kernels use.

Stationary kernels are computed from differences x - z, sums and products part by part; GPflow
computes all other kernels. A profile is the kernel as a function of a multiple of the squared
distance.

With r the distance in lengthscales and s a multiple of it:

| kernel              | t                          | k                            | dk/dt               |
|---------------------|----------------------------|------------------------------|---------------------|
| squared exponential | log variance - r²/2        | exp(t)                       | k                   |
| Matern 1/2          | s² = r²                    | variance e^-s                | -k / (2 s)          |
| Matern 3/2          | s² = 3 r²                  | variance (1 + s) e^-s        | -variance e^-s / 2  |
| Matern 5/2          | s² = 5 r²                  | variance (1 + s + s²/3) e^-s | -variance (1 + s) e^-s / 6 |
| exponential         | s² = r²/4                  | variance e^-s                | -k / (2 s)          |
| rational quadratic  | r²/2                       | variance (1 + t/alpha)^-alpha | -k / (1 + t/alpha) |
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Periodic
from gpflow.utilities.ops import difference_matrix

from ..maths.linalg import epsilon, with_diagonal
from ..runtime import Tensors, asserted

FEW_INPUTS = 3  # up to this many inputs, differences cost no more than the rest of the kernel
# Exponent p of the accepted error eps^p of a squared distance: 1e-6 in double precision.
_ACCURACY = 0.375
# Smallest squared distance, as in GPflow: gradients are 0 below, since sqrt'(0) is infinite.
_LEAST_SQUARE = 1e-36
_PLAIN = (
    "K",
    "scaled_squared_euclid_dist",
    "scaled_difference_matrix",
    "scale",
    "slice",
    "__call__",
)
_ARD = ("lengthscales", "period", "weight_variances", "variance", "center", "scale")
PullBack = Callable[[tf.Tensor], Tensors]
REDUCTIONS: dict[type, Callable[[Sequence[tf.Tensor]], tf.Tensor]] = {
    kernels.Sum: tf.add_n,
    kernels.Product: lambda factors: reduce(tf.multiply, factors),
}


def kernel_matrix(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """
    Compute covariances of rows X [..., n, D] with themselves, [..., n, n], or of X [m, D] with X2
    [n, D], [m, n].
    """
    if type(kernel) in REDUCTIONS:
        return REDUCTIONS[type(kernel)]([kernel_matrix(part, X, X2) for part in kernel.kernels])
    if _is_plain(kernel, kernels.IsotropicStationary):
        return _isotropic(kernel, *kernel.slice(X, X2))
    if _is_plain(kernel, kernels.AnisotropicStationary):
        return kernel.K_d(difference_matrix(*kernel.slice(X, X2)) / kernel.lengthscales)
    if X2 is not None:
        return covariance_of(kernel, X, X2)
    parts = [part for part in (kernel, *kernel.submodules) if isinstance(part, kernels.Kernel)]
    if X.shape.rank == 2 or all(is_of_library(part) for part in parts):
        return covariance_of(kernel, X)
    # Kernels of users often transpose their inputs, which works for matrices only.
    matrices = tf.vectorized_map(kernel, tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0)))
    return tf.reshape(matrices, tf.concat([tf.shape(X)[:-1], tf.shape(X)[-2:-1]], axis=0))


def leaves(kernel: Kernel) -> Iterator[Kernel]:
    """
    Yield the kernels that a sum, a product or a multioutput kernel combines, or the kernel itself.
    """
    parts = _parts(kernel)
    if not parts:
        yield kernel
    for part in parts:
        yield from leaves(part)


def _parts(kernel: Kernel) -> Any:
    """Return the terms, factors or latent kernels of a kernel, or ()."""
    return getattr(kernel, "kernels", None) or getattr(kernel, "latent_kernels", ())


def check_columns(kernel: Kernel, num_inputs: int) -> None:
    """
    Check that active dimensions and ARD parameters fit the columns of X (of GPflow's kernels and
    their parts).
    """
    for part in _parts(kernel):
        check_columns(part, num_inputs)
    if isinstance(kernel, Periodic):
        check_columns(kernel.base_kernel, num_inputs)
        _check_parameters(kernel, kernel.base_kernel.active_dims, num_inputs)
    elif not _parts(kernel) and is_of_library(kernel):
        _check_parameters(kernel, kernel.active_dims, num_inputs)


def is_of_library(kernel: Kernel) -> bool:
    """Return whether GPflow or this library defines the class of the kernel."""
    return type(kernel).__module__.startswith(("gpflow.", "gpflow_pep."))


def covariance_of(
    kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None, *, full_cov: bool = True
) -> tf.Tensor:
    """Call a kernel; a slice of all columns, which takes many operations, is left out."""
    if uses_all_columns(kernel):
        return kernel(X, X2, full_cov=full_cov, presliced=True)
    return kernel(X, X2, full_cov=full_cov)


def uses_all_columns(kernel: Kernel) -> bool:
    """
    Return whether a kernel of GPflow or this library uses all columns; False for sums and products.
    """
    dims = kernel.active_dims
    is_leaf = is_of_library(kernel) and not _parts(kernel)
    return is_leaf and isinstance(dims, slice) and dims == slice(None)


def _check_parameters(kernel: Kernel, active_dims: slice | AnyNDArray, num_inputs: int) -> None:
    name = type(kernel).__name__
    columns = (
        np.arange(num_inputs)[active_dims]
        if isinstance(active_dims, slice)
        else np.asarray(active_dims)
    )
    outside = columns[(columns < 0) | (columns >= num_inputs)]
    if outside.size or not columns.size:
        found = outside[0] if outside.size else active_dims
        raise ValueError(
            f"kernel: active_dims of {name} must be columns of X, 0 to {num_inputs - 1}, got "
            f"{found}."
        )
    for parameter in _ARD:
        values = np.shape(getattr(kernel, parameter, 0.0))
        if len(values) == 1 and values[0] not in (1, len(columns)):
            raise ValueError(
                f"kernel: {parameter} of {name} must have one value or one for each of "
                f"{len(columns)} active columns, got {values[0]}."
            )


def num_active(kernel: Kernel, num_inputs: int) -> int:
    """
    Count the inputs that a kernel uses; raise a ValueError if active_dims are not columns of X.
    """
    check_columns(kernel, num_inputs)
    return len(np.arange(num_inputs)[kernel.active_dims])


def within_reach(value: tf.Tensor, squares: tf.Tensor, accuracy: float) -> tf.Tensor:
    """
    Return `value` if |x|² - 2x'z + |z|² is accurate for inputs with scaled, centered squared norms
    |z|², `squares`.

    Its rounding error, about eps |z|² for a near pair (an x far from all z has no near pair), must
    be below eps^accuracy. An optimizer may try lengthscales that are far too short, so that only
    clear errors are rejected.

    :raises tf.errors.InvalidArgumentError: otherwise.
    """
    limit = epsilon(squares.dtype) ** (accuracy - 1.0)  # of |z|²
    largest = tf.reduce_max(squares)  # of several latent functions and blocks together
    return asserted(
        value,
        ~(
            (largest > limit) & (largest < np.inf)
        ),  # infinity is left to the factorization, which reports it
        f"X and the inducing points must lie within {np.sqrt(limit):.0f} lengthscales of their "
        "mean: farther away, squared distances of nearby points are dominated by rounding. Try: "
        "longer lengthscales, standardizing X, or a product of kernels of one input each "
        "(active_dims), which have no such limit. The largest distance is",
        tf.sqrt(largest),
    )


def _is_plain(kernel: Kernel, base: type[kernels.Stationary]) -> bool:
    """Return whether the kernel overrides only the function of the distance or difference."""
    return isinstance(kernel, base) and all(
        getattr(type(kernel), name, None) is getattr(base, name, None) for name in _PLAIN
    )


def _isotropic(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None) -> tf.Tensor:
    if X.shape[-1] is not None and X.shape[-1] <= FEW_INPUTS:
        return kernel.K_r2(_squared_distances(X, X if X2 is None else X2, kernel.lengthscales))
    # Its position changes nothing: the kernel is translation invariant.
    center = tf.stop_gradient(tf.reduce_mean(X, axis=-2, keepdims=True))
    X = X - center
    X = within_reach(X, tf.reduce_sum(tf.square(kernel.scale(X)), axis=-1), _ACCURACY)
    if X2 is not None:
        return kernel.K(X, X2 - center)
    # A rounded distance slightly above 0 changes a kernel with a kink at 0, such as Matern 1/2, by
    # its square root.
    return with_diagonal(kernel.K(X), kernel.K_r2(tf.zeros_like(X[..., 0])))


def _squared_distances(X: tf.Tensor, X2: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
    """Compute |(x - z) / lengthscales|², [..., m, n], from differences of the unrounded inputs."""
    # Squares of large and small lengthscales leave floating point range; division by powers of two
    # does not round.
    exponents = tf.round(tf.math.log(lengthscales) / np.log(2.0))
    units = tf.stop_gradient(2.0**exponents)
    weights = tf.broadcast_to(tf.square(units / lengthscales), X.shape[-1:])
    columns = (tf.unstack(values, axis=-1) for values in (weights, X / units, X2 / units))
    terms = [
        weight * tf.math.squared_difference(x[..., :, None], x2[..., None, :])
        for weight, x, x2 in zip(*columns, strict=True)
    ]
    return terms[0] if len(terms) == 1 else tf.add_n(terms)


class Profile(NamedTuple):
    """One kind of kernel, as a function of t."""

    # From t [..., M, n], log variance and the parameters: k, and a function from its derivative to
    # the derivatives in t (up to `factor`), log variance and the parameters.
    evaluate: Callable[..., tuple[tf.Tensor, PullBack]]
    slope: float  # Derivative of t in r²
    # `evaluate` returns the derivative in t divided by this; -0.5: from s = √t.
    factor: float = -0.5
    parameters: tuple[str, ...] = ()  # The kernel's parameters besides variance and lengthscales
    is_exponent: bool = False  # t is log k, which is log variance at r = 0; otherwise t = 0 there

    @property
    def accuracy(self) -> float:
        """Exponent p of the error eps^p that t may have: an exponent 1e-3 in double precision."""
        return 0.2 if self.is_exponent else _ACCURACY


def _root(t: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(t, _LEAST_SQUARE))


def _squared_exponential(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    K = tf.exp(t)
    return K, lambda bar: (bar * K, tf.zeros_like(log_variance))  # log variance is in t


def _matern12(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    s = _root(t)
    K = tf.exp(log_variance - s)

    def pull_back(bar: tf.Tensor) -> Tensors:
        G = bar * K
        return tf.where(t > _LEAST_SQUARE, G / s, 0.0), tf.reduce_sum(G)

    return K, pull_back


def _matern32(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    s = _root(t)
    E = tf.exp(log_variance - s)
    K = E + s * E
    return K, lambda bar: (bar * E, tf.reduce_sum(bar * K))


def _matern52(t: tf.Tensor, log_variance: tf.Tensor) -> tuple[tf.Tensor, PullBack]:
    s = _root(t)
    E = tf.exp(log_variance - s)
    F = E + s * E
    K = F + E * (t / 3.0)
    return K, lambda bar: (bar * F, tf.reduce_sum(bar * K))


def _rational_quadratic(
    t: tf.Tensor, log_variance: tf.Tensor, alpha: tf.Tensor
) -> tuple[tf.Tensor, PullBack]:
    t = t / alpha
    base, log_base = 1.0 + t, tf.math.log1p(t)
    K = tf.exp(log_variance - alpha * log_base)

    def pull_back(bar: tf.Tensor) -> Tensors:
        G = bar * K
        slope = G / base
        return slope, tf.reduce_sum(G), tf.reduce_sum(slope * t - G * log_base)

    return K, pull_back


PROFILES: dict[type, Profile] = {
    kernels.SquaredExponential: Profile(
        _squared_exponential, slope=-0.5, factor=1.0, is_exponent=True
    ),
    kernels.Matern12: Profile(_matern12, slope=1.0),
    kernels.Exponential: Profile(_matern12, slope=0.25),
    kernels.Matern32: Profile(_matern32, slope=3.0),
    kernels.Matern52: Profile(_matern52, slope=5.0, factor=-1.0 / 6.0),
    kernels.RationalQuadratic: Profile(
        _rational_quadratic, slope=0.5, factor=-1.0, parameters=("alpha",)
    ),
}
