"""Columns of X that hold the index of `Coregion`."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Coregion, Kernel

from ..runtime import asserted
from .kernel_matrices import leaves

_HINT = " Choose inducing points from the rows of X: inducing.uniform, greedy_variance."


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
