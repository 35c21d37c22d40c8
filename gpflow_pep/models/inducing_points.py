"""Inducing points of one or of several latent functions: read, validate, select and assign them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorData
from gpflow.inducing_variables import InducingPoints, InducingVariables, MultioutputInducingVariables

from .. import validation

Selection = Callable[[int, AnyNDArray, int], tf.Tensor]
"""Selects M points: from the index of a latent function, its candidates [n, D] (current points first) and the number of
current points to keep, to the indices [M] of the points selected."""


def single_output_variables(inducing_variable: InducingVariables) -> tuple[InducingVariables, ...]:
    """Return the inducing variable of each latent function, or the one that all share."""
    if isinstance(inducing_variable, MultioutputInducingVariables):
        variables: tuple[InducingVariables, ...] = inducing_variable.inducing_variables
        return variables
    return (inducing_variable,)


def are_inducing_points(inducing_variable: InducingVariables) -> bool:
    """Whether all are plain inducing points, so that the kernel gives their covariance with old ones."""
    return all(type(variable) is InducingPoints for variable in single_output_variables(inducing_variable))


def inducing_points(inducing_variable: InducingVariables) -> tf.Tensor:
    """Return Z, [1 or C, M, D]."""
    return tf.stack([tf.convert_to_tensor(variable.Z) for variable in single_output_variables(inducing_variable)])


def assign_inducing_points(inducing_variable: InducingVariables, Z: AnyNDArray) -> None:
    """Set the inducing points to Z [1 or C, M, D]."""
    for variable, points in zip(single_output_variables(inducing_variable), Z, strict=True):
        variable.Z = assigned(variable.Z, points)


def assigned(parameter: Parameter, value: TensorData) -> Parameter:
    """Assign a value to the parameter and return it; if the size changes, return a new parameter."""
    if parameter.shape == np.shape(value):
        parameter.assign(value)
        return parameter
    return Parameter(
        value,
        transform=parameter.transform,
        prior=parameter.prior,
        trainable=parameter.trainable,
        dtype=parameter.dtype,
    )


def validated_points(inducing_variable: InducingVariables, Z: Any) -> AnyNDArray:
    """
    Return new inducing points as an array [1 or C, M, D].

    :raises ValueError: if they cannot replace the current ones.
    """
    if isinstance(Z, InducingVariables):
        Z = inducing_points(Z).numpy()
    current = single_output_variables(inducing_variable)
    new = [Z] if np.ndim(Z) == 2 else list(Z)
    if len(new) != len(current):
        raise ValueError(f"inducing_variable must be given for {len(current)} latent functions, got {len(new)}.")
    points = [validation.matrix(values, "inducing_variable (Z)", "D") for values in new]
    num_inputs = int(current[0].Z.shape[1])
    if any(values.shape[1] != num_inputs for values in points):
        raise ValueError(f"inducing_variable (Z) must keep {num_inputs} columns, got {points[0].shape[1]}.")
    if len({len(values) for values in points}) > 1:
        raise ValueError(f"inducing_variable must have parts of the same size, got {[len(Z) for Z in points]}.")
    return np.stack(points)


def moved_points(inducing_variable: InducingVariables, X: AnyNDArray, fraction: float, select: Selection) -> AnyNDArray:
    """Return the points [1 or C, M, D] after moving at most this fraction of them to inputs X [N, D]."""
    Z = inducing_points(inducing_variable).numpy()
    num_kept = Z.shape[1] - int(fraction * Z.shape[1])
    moved = []
    for number, old in enumerate(Z):
        candidates = np.concatenate([old, X])
        selected = np.asarray(select(number, candidates, num_kept))
        stays = np.isin(np.arange(len(old)), selected)  # a point that stays keeps its index
        points = old.copy()
        points[~stays] = candidates[selected[selected >= len(old)]]
        moved.append(points)
    return np.stack(moved)
