"""Kernel matrices that are accurate far from the origin: stationary kernels are computed from differences x - z.

Sums and products are computed part by part; kernels not known to be stationary are left to GPflow.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import AnisotropicStationary, IsotropicStationary, Kernel, Product, Stationary, Sum
from gpflow.utilities.ops import difference_matrix

from ..checks import asserted

FEW_INPUTS = 3  # so many differences take no longer than the rest of a kernel
ACCURACY = 0.375  # eps^this is the error that a squared distance may have: 1e-6 in double precision
_OF_ISOTROPIC = ("K", "scaled_squared_euclid_dist", "scale", "slice", "__call__")
_OF_ANISOTROPIC = ("K", "scaled_difference_matrix", "scale", "slice", "__call__")
REDUCTIONS: dict[type, Callable[[Sequence[tf.Tensor]], tf.Tensor]] = {
    Sum: tf.add_n,
    Product: lambda factors: reduce(tf.multiply, factors),
}


def kernel_matrix(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """
    Covariances of rows X [..., n, D] with themselves, [..., n, n], or of X [m, D] with X2 [n, D], [m, n].

    :raises tf.errors.InvalidArgumentError: if rows of X are too many lengthscales apart; see :func:`within_reach`.
    """
    if type(kernel) in REDUCTIONS:
        return REDUCTIONS[type(kernel)]([kernel_matrix(part, X, X2) for part in kernel.kernels])
    if _is_plain(kernel, IsotropicStationary, _OF_ISOTROPIC):
        return _isotropic(kernel, *kernel.slice(X, X2))
    if _is_plain(kernel, AnisotropicStationary, _OF_ANISOTROPIC):
        return kernel.K_d(difference_matrix(*kernel.slice(X, X2)) / kernel.lengthscales)
    return kernel(X) if X2 is None else kernel(X, X2)


def num_active(kernel: Kernel, num_inputs: int) -> int:
    """
    Count the inputs that a kernel uses.

    :raises ValueError: if it has other active_dims.
    """
    try:
        return len(np.arange(num_inputs)[kernel.active_dims])
    except IndexError as error:
        dims = np.asarray(kernel.active_dims).tolist()
        raise ValueError(f"kernel must have active_dims below {num_inputs}, the columns of X, got {dims}.") from error


def within_reach(value: tf.Tensor, squares: tf.Tensor, accuracy: float) -> tf.Tensor:
    """
    `value` itself, where |x|² - 2x'z + |z|² is accurate at all inputs of scaled, centered norms |z|², `squares`.

    Its rounding error, some eps |z|² of a near pair (an x far from all z has no near pair), must be below
    eps^accuracy. An optimizer may pass lengthscales that are far too short, so that only what is plainly wrong is
    refused.

    :raises tf.errors.InvalidArgumentError: otherwise.
    """
    limit = float(np.finfo(squares.dtype.as_numpy_dtype).eps) ** (accuracy - 1.0)  # of |z|²
    largest = tf.reduce_max(squares)  # of several latent functions and blocks together
    return asserted(
        value,
        ~((largest > limit) & (largest < np.inf)),  # what is not finite is left to the factorization, which says so
        f"X and the inducing points must lie within {np.sqrt(limit):.0f} lengthscales of their mean: beyond, squared "
        "distances of several inputs lose the digits of near neighbors. Try: longer lengthscales, standardizing X, or "
        "a product of kernels of one input each (active_dims), which have no such limit. The largest distance is",
        tf.sqrt(largest),
    )


def _is_plain(kernel: Kernel, base: type[Stationary], methods: Sequence[str]) -> bool:
    """Whether nothing but the function of the distance or difference is the kernel's own."""
    return isinstance(kernel, base) and all(getattr(type(kernel), name) is getattr(base, name) for name in methods)


def _isotropic(kernel: Any, X: tf.Tensor, X2: tf.Tensor | None) -> tf.Tensor:
    if X.shape[-1] is not None and X.shape[-1] <= FEW_INPUTS:
        return kernel.K_r2(_squared_distances(X, X if X2 is None else X2, kernel.lengthscales))
    center = tf.stop_gradient(tf.reduce_mean(X, axis=-2, keepdims=True))  # nothing depends on where the origin is
    X = X - center
    X = within_reach(X, tf.reduce_sum(tf.square(kernel.scale(X)), axis=-1), ACCURACY)
    if X2 is not None:
        return kernel.K(X, X2 - center)
    # A distance that is not quite 0 changes what has no slope there, as Matern 1/2, by its root.
    return tf.linalg.set_diag(kernel.K(X), kernel.K_r2(tf.zeros_like(X[..., 0])))


def _squared_distances(X: tf.Tensor, X2: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
    """|(x - z) / lengthscales|², [..., m, n], each difference taken before anything is rounded."""
    weights = tf.broadcast_to(tf.math.reciprocal(tf.square(lengthscales)), X.shape[-1:])
    terms = [
        weight * tf.math.squared_difference(x[..., :, None], x2[..., None, :])
        for weight, x, x2 in zip(*(tf.unstack(values, axis=-1) for values in (weights, X, X2)), strict=True)
    ]
    return terms[0] if len(terms) == 1 else tf.add_n(terms)
