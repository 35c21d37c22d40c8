"""
Columns of X that kernels use: active dimensions, ARD parameters, and the indices of `Coregion`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Coregion, Kernel, Periodic

from ..runtime.checks import asserted

_ARD = ("lengthscales", "period", "weight_variances", "variance", "center", "scale")
_HINT = " Choose inducing points from the rows of X: inducing.uniform, greedy_variance."


def leaves(kernel: Kernel) -> Iterator[Kernel]:
    """
    Yield the kernels that a sum, a product or a multioutput kernel combines, or the kernel itself.
    """
    parts = _parts(kernel)
    if not parts:
        yield kernel
    for part in parts:
        yield from leaves(part)


def index_columns(kernel: Kernel) -> dict[int, int]:
    """
    Return the columns of X that hold the index of a `Coregion`, with the number of its values.
    """
    columns = {}
    for leaf in leaves(kernel):
        if isinstance(leaf, Coregion):
            dims = leaf.active_dims
            column = (dims.start or 0) if isinstance(dims, slice) else int(dims[0])
            columns[column] = int(leaf.output_dim)
    return columns


def _parts(kernel: Kernel) -> Any:
    """Return the terms, factors or latent kernels of a kernel, or ()."""
    return getattr(kernel, "kernels", None) or getattr(kernel, "latent_kernels", ())


def checked_indices(kernel: Kernel, X: Any, name: str) -> Any:
    """
    Return X [..., D]; check the columns that hold an index: GPflow truncates fractions, or returns
    0.
    """
    for column, count in index_columns(kernel).items():
        values = X[..., column]
        accepted = (values >= 0.0) & (values < count) & tf.equal(values, tf.floor(values))
        message = (
            f"{name} must hold whole numbers from 0 to {count - 1} in column {column}, the index "
            "of Coregion, got"
        )
        if not tf.executing_eagerly():
            X = asserted(X, accepted, message, tf.boolean_mask(values, ~accepted))
        elif (wrong := np.flatnonzero(~np.asarray(accepted))).size:
            hint = _HINT if "Z" in name else ""
            raise ValueError(f"{message} {np.ravel(values)[wrong[0]]} in row {wrong[0]}.{hint}")
    return X


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
            must = (
                f"kernel: {parameter} of {name} must have one value or one for each of "
                f"{len(columns)} active columns"
            )
            raise ValueError(f"{must}, got {values[0]}.")
