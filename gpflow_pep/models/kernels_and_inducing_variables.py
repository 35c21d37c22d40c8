"""
Check kernels and inducing variables of one or several latent functions; read and assign inducing
points.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorData
from gpflow.inducing_variables import (
    FallbackSharedIndependentInducingVariables,
    InducingPatches,
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
)
from gpflow.inducing_variables.inducing_variables import InducingPointsBase
from gpflow.kernels import Kernel, MultioutputKernel, SharedIndependent
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from .. import validation
from ..engine import check_columns, checked_indices, independent_parts


def as_inducing_variable(inducing_variable: object, *, shared: bool) -> InducingVariables:
    """
    Return an inducing variable, single-output if all functions share it; convert an array Z [M, D].
    """
    if shared and isinstance(inducing_variable, FallbackSharedIndependentInducingVariables):
        return inducing_variable.inducing_variable
    if isinstance(inducing_variable, InducingVariables):
        return inducing_variable
    return InducingPoints(validation.matrix(inducing_variable, "inducing_variable (Z)", "D"))


def check_inducing_variable(
    kernel: Kernel,
    inducing_variable: InducingVariables,
    num_inputs: int | None,
    num_latent_gps: int,
    *,
    shared: bool,
) -> None:
    """
    Check kernel and inducing variable, which functions must share if `shared`, for X with
    `num_inputs` columns.
    """
    if (
        shared
        and isinstance(kernel, MultioutputKernel)
        and not isinstance(kernel, SharedIndependent)
    ):
        raise ValueError(
            "kernel must be shared by all columns of Y: a single-output kernel or "
            f"SharedIndependent, got {type(kernel).__name__}. For a kernel per column use "
            "gpflow_pep.PEP with SeparateIndependent and gpflow.likelihoods.Gaussian(); for "
            "correlated columns one column of Y, with gpflow.kernels.Coregion on a column of X "
            "that holds the index of the output."
        )
    must = f"must have one part for each of {num_latent_gps} latent functions, got"
    if isinstance(kernel, MultioutputKernel) and kernel.num_latent_gps != num_latent_gps:
        raise ValueError(f"kernel {must} {kernel.num_latent_gps}.")
    if shared and isinstance(inducing_variable, MultioutputInducingVariables):
        raise ValueError(
            "inducing_variable must be Z [M, D], a single-output variable or one that outputs "
            "share (PEP accepts one for each column of Y), got "
            f"{type(inducing_variable).__name__}."
        )
    parts = independent_parts(inducing_variable, kernel)
    if len(parts) not in (1, num_latent_gps):
        raise ValueError(f"inducing_variable {must} {len(parts)}.")
    for variable, _ in parts:
        _check_single_output(variable, num_inputs)
    points = [
        (part, variable.Z.numpy()) for variable, part in parts if type(variable) is InducingPoints
    ]
    if num_inputs is None and points:
        num_inputs = points[0][1].shape[1]
    if num_inputs is not None:
        check_columns(kernel, num_inputs)
    for part, Z in points:
        checked_indices(part, Z, "inducing_variable (Z)")
    sizes = {int(variable.num_inducing) for variable, _ in parts}
    if len(sizes) > 1:
        raise ValueError(
            f"inducing_variable must have parts of the same size, got {sorted(sizes)}."
        )


def _check_single_output(variable: InducingVariables, num_inputs: int | None) -> None:
    """Check that a single-output inducing variable is finite and has the columns of X."""
    if isinstance(variable, InducingPointsBase):
        Z = validation.matrix(variable.Z, "inducing_variable (Z)", "D")
        if num_inputs not in (None, Z.shape[1]) and not isinstance(variable, InducingPatches):
            raise ValueError(
                f"inducing_variable (Z) must have as many columns as X, {num_inputs}, got "
                f"{Z.shape[1]}."
            )
    elif int(variable.num_inducing) < 1:
        raise ValueError(
            "inducing_variable must have at least one inducing variable, got "
            f"{variable.num_inducing}."
        )


def single_output_variables(inducing_variable: InducingVariables) -> tuple[InducingVariables, ...]:
    """Return the inducing variable of each latent function, or a single shared one."""
    if isinstance(inducing_variable, MultioutputInducingVariables):
        return inducing_variable.inducing_variables
    return (inducing_variable,)


def other_parameters(model: GPModel) -> dict[str, Parameter]:
    """Return all parameters except the inducing variable's, by path."""
    points = {id(parameter) for parameter in parameter_dict(model.inducing_variable).values()}
    return {
        path: parameter
        for path, parameter in parameter_dict(model).items()
        if id(parameter) not in points
    }


def are_inducing_points(inducing_variable: InducingVariables) -> bool:
    """Return whether every inducing variable is exactly `InducingPoints`, not a subclass."""
    return all(
        type(variable) is InducingPoints for variable in single_output_variables(inducing_variable)
    )


def check_points(inducing_variable: InducingVariables) -> None:
    """Raise a ValueError unless every inducing variable is `InducingPoints`."""
    if not are_inducing_points(inducing_variable):
        raise ValueError(
            f"inducing_variable must be inducing points, got {type(inducing_variable).__name__}."
        )


def inducing_points(inducing_variable: InducingVariables) -> tf.Tensor:
    """Return Z, [1 or C, M, D]."""
    check_points(inducing_variable)
    return tf.stack(
        [
            tf.convert_to_tensor(variable.Z)
            for variable in single_output_variables(inducing_variable)
        ]
    )


def assign_inducing_points(inducing_variable: InducingVariables, Z: AnyNDArray) -> None:
    """Set the inducing points to Z [1 or C, M, D]."""
    for variable, points in zip(single_output_variables(inducing_variable), Z, strict=True):
        variable.Z = assigned(variable.Z, points)


def assigned(parameter: Parameter, value: TensorData) -> Parameter:
    """
    Assign a value to the parameter and return it; if its shape does not allow this size, return a
    new parameter.
    """
    if parameter.shape.is_compatible_with(np.shape(value)):
        parameter.assign(value)
        return parameter
    return _with_settings_of(parameter, value)


def free_number_of_points(inducing_variable: InducingVariables) -> None:
    """
    Replace Z by parameters without a fixed number of rows, so that compiled functions take any
    number of points.

    Call it again for a copy: TensorFlow copies such variables with a fixed number.
    """
    for variable in single_output_variables(inducing_variable):
        if variable.Z.unconstrained_variable.shape[0] is None:
            continue
        variable.Z = _with_settings_of(variable.Z, variable.Z, shape=[None, variable.Z.shape[1]])


def _with_settings_of(parameter: Parameter, value: TensorData, **options: Any) -> Parameter:
    """Return a new parameter with this value and the settings of `parameter`."""
    kept = ("transform", "prior", "prior_on", "trainable", "dtype")
    return Parameter(value, **{name: getattr(parameter, name) for name in kept}, **options)


def validated_points(inducing_variable: InducingVariables, Z: Any) -> AnyNDArray:
    """
    Return new inducing points [1 or C, M, D]; raise an error if they cannot replace the current
    points.
    """
    if isinstance(Z, InducingVariables):
        check_points(Z)
        Z = [variable.Z for variable in single_output_variables(Z)]
    current = single_output_variables(inducing_variable)
    rank = 1 + np.ndim(Z[0]) if isinstance(Z, list | tuple) and Z else np.ndim(Z)
    new = list(Z) if rank == 3 else [Z]
    if len(new) != len(current):
        raise ValueError(
            f"inducing_variable must be given for {len(current)} latent functions, got {len(new)}."
        )
    points = [validation.matrix(values, "inducing_variable (Z)", "D") for values in new]
    num_inputs = int(current[0].Z.shape[1])
    if any(values.shape[1] != num_inputs for values in points):
        raise ValueError(
            f"inducing_variable (Z) must keep {num_inputs} columns, got {points[0].shape[1]}."
        )
    if len({len(values) for values in points}) > 1:
        raise ValueError(
            f"inducing_variable must have parts of the same size, got {[len(Z) for Z in points]}."
        )
    return np.stack(points)
