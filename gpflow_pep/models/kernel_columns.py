"""Check that a kernel's active dimensions and ARD parameters fit the columns of X."""

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Combination, Kernel, Periodic, SharedIndependent

_ARD = ("lengthscales", "period", "weight_variances", "variance")  # parameters of GPflow's kernels


def check_kernel_columns(kernel: Kernel, num_inputs: int) -> None:
    """
    Check a kernel and its parts. Kernels that are not GPflow's are not checked, since they may use X in another way.

    :param num_inputs: D, columns of X.
    :raises ValueError: if an active dimension is not a column of X, or an ARD parameter has another number of values
        than there are active dimensions.
    """
    if isinstance(kernel, Combination):
        for part in kernel.kernels:
            check_kernel_columns(part, num_inputs)
    elif isinstance(kernel, SharedIndependent):
        check_kernel_columns(kernel.kernel, num_inputs)
    elif isinstance(kernel, Periodic):
        check_kernel_columns(kernel.base_kernel, num_inputs)
        _check_parameters(kernel, kernel.base_kernel.active_dims, num_inputs)
    elif type(kernel).__module__.startswith("gpflow."):
        _check_parameters(kernel, kernel.active_dims, num_inputs)


def _check_parameters(kernel: Kernel, active_dims: slice | AnyNDArray, num_inputs: int) -> None:
    name = type(kernel).__name__
    columns = np.arange(num_inputs)[active_dims] if isinstance(active_dims, slice) else np.asarray(active_dims)
    outside = columns[(columns < 0) | (columns >= num_inputs)]
    if outside.size:
        raise ValueError(
            f"kernel: active_dims of {name} must be columns of X, 0 to {num_inputs - 1}, got {outside[0]}."
        )
    for parameter in _ARD:
        values = np.shape(getattr(kernel, parameter, 0.0))
        if len(values) == 1 and values[0] not in (1, len(columns)):
            raise ValueError(
                f"kernel: {parameter} of {name} must be one number or one for each of the {len(columns)} columns of X "
                f"that it uses, got {values[0]}."
            )
