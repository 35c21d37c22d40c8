"""Moving the inducing points of a stream: read them as one tensor, choose new ones and assign them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorData
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)

from .. import validation

Selection = Callable[[int, AnyNDArray, int], tf.Tensor]
"""Chooses the M points: from the index of a latent function, its candidates [n, D] (current points first) and how many
current points must stay, to the indices [M] of the points chosen."""


def points_of(inducing_variable: InducingVariables) -> list[InducingVariables]:
    """Return the inducing variable of each latent function, or the one that all share."""
    if isinstance(inducing_variable, SharedIndependentInducingVariables):
        return [inducing_variable.inducing_variable]
    if isinstance(inducing_variable, SeparateIndependentInducingVariables):
        return list(inducing_variable.inducing_variable_list)
    return [inducing_variable]


def are_points(inducing_variable: InducingVariables) -> bool:
    """Whether all parts are plain inducing points, so that the kernel gives their covariance with old ones."""
    return all(type(part) is InducingPoints for part in points_of(inducing_variable))


def all_points(inducing_variable: InducingVariables) -> tf.Tensor:
    """Return the positions of the inducing points, [1 or C, M, D]."""
    return tf.stack([tf.convert_to_tensor(part.Z) for part in points_of(inducing_variable)])


def place(inducing_variable: InducingVariables, Z: AnyNDArray) -> None:
    """Set the inducing points to Z [1 or C, M, D]."""
    for part, points in zip(points_of(inducing_variable), Z, strict=True):
        part.Z = replaced(part.Z, points)


def replaced(parameter: Parameter, value: TensorData) -> Parameter:
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


def given_points(inducing_variable: InducingVariables, given: Any) -> AnyNDArray:
    """
    Return inducing points given by the user as an array [1 or C, M, D].

    :raises ValueError: if they cannot replace the current ones.
    """
    if isinstance(given, InducingVariables):
        given = all_points(given).numpy()
    parts = points_of(inducing_variable)
    each = [given] if np.ndim(given) == 2 else list(given)
    if len(each) != len(parts):
        raise ValueError(f"inducing_variable must be given for {len(parts)} latent functions, got {len(each)}.")
    points = [validation.matrix(Z, "inducing_variable (Z)", "D") for Z in each]
    num_inputs = int(parts[0].Z.shape[1])
    if any(Z.shape[1] != num_inputs for Z in points):
        raise ValueError(f"inducing_variable (Z) must keep {num_inputs} columns, got {points[0].shape[1]}.")
    if len({len(Z) for Z in points}) > 1:
        raise ValueError(f"inducing_variable must have parts of the same size, got {[len(Z) for Z in points]}.")
    return np.stack(points)


def moved_points(inducing_variable: InducingVariables, X: AnyNDArray, share: float, select: Selection) -> AnyNDArray:
    """Return the points [1 or C, M, D] after moving at most the fraction `share` of them to inputs X [N, D]."""
    Z = all_points(inducing_variable).numpy()
    num_kept = Z.shape[1] - int(share * Z.shape[1])
    moved = []
    for number, old in enumerate(Z):
        candidates = np.concatenate([old, X])
        chosen = np.asarray(select(number, candidates, num_kept))
        # A point that stays keeps its place in the list.
        stays = np.isin(np.arange(len(old)), chosen)
        points = old.copy()
        points[~stays] = candidates[chosen[chosen >= len(old)]]
        moved.append(points)
    return np.stack(moved)
