"""Starts of training: lengthscales at several fractions of the spread of the inputs."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Linear, Stationary
from gpflow.models import GPModel

from ..engine.kernel_columns import leaves
from ..models.stream import Stream
from .coordinates import Coordinates, inputs_and_kernels, spreads
from .objectives import FAILURES

FRACTIONS = (1.0, 0.3, 0.1)
"""Lengthscales of the starts, in units of the standard deviation of a column times the square root of their number."""
_NEAR = 0.2  # largest difference of coordinates, mostly logarithms, of starts that count as equal
_REACH = 100.0  # Adam starts lengthscales anew that are farther from these units than this factor


def starts(model: GPModel, coordinates: Coordinates, num_drawn: int, seed: int) -> list[AnyNDArray]:
    """
    Return the coordinates [P] of the starts: the present values, then others with other trainable lengthscales.

    These are `FRACTIONS` of their units, then `num_drawn` times fractions drawn log-uniform between 0.1 and 1. A stream
    and a model without lengthscales start at the present values only. A start near an earlier one is left out.
    """
    found, parts, random = (
        [coordinates.values()],
        list(_units_of_lengthscales(model)),
        np.random.default_rng(seed),
    )
    if parts and not isinstance(model, Stream):
        for number in range(len(FRACTIONS) + num_drawn):
            lengthscales = []
            for kernel, unit, place in parts:  # parts of a sum differ: equal ones would stay equal
                fraction: Any = FRACTIONS[(number + place) % len(FRACTIONS)]
                if number >= len(FRACTIONS):
                    fraction = 10.0 ** random.uniform(-1.0, 0.0, unit.shape)
                lengthscales.append((kernel.lengthscales, fraction * unit))
            for start in _coordinates_at(coordinates, lengthscales):
                if all(np.abs(start - other).max() > _NEAR for other in found):
                    found.append(start)
    return found


def without_inputs(model: GPModel, coordinates: Coordinates) -> list[AnyNDArray]:
    """
    Return the present coordinates with lengthscales 1000 times longer (f is constant) and shorter (f is noise).

    Variances of linear and polynomial kernels are 1e6 times smaller there.
    """
    kernels = [kernel for kernel, *_ in _units_of_lengthscales(model)]
    found: list[AnyNDArray] = []
    for factor in (1e3, 1e-3) if kernels else ():
        values = [(kernel.lengthscales, factor * kernel.lengthscales.numpy()) for kernel in kernels]
        values += [(each, 1e-6 * each.numpy()) for each in _variances_of_slopes(model)]
        found += _coordinates_at(coordinates, values)
    return found


def bring_within_reach(model: GPModel, loss: Callable[[], float]) -> None:
    """Replace lengthscales that Adam cannot reach; keep long ones (columns without influence) if the loss is less."""
    units = [] if isinstance(model, Stream) else list(_units_of_lengthscales(model))
    for is_long in (False, True):
        for kernel, unit, _ in units:
            values = kernel.lengthscales.numpy()
            is_far = values > _REACH * unit if is_long else values < unit / _REACH
            if np.any(is_far):
                before = loss() if is_long else np.inf
                with suppress(*FAILURES):  # bounds may exclude them
                    kernel.lengthscales.assign(np.where(is_far, unit, values))
                if is_long and not loss() <= before:
                    kernel.lengthscales.assign(values)


def _coordinates_at(
    coordinates: Coordinates, values: list[tuple[Parameter, AnyNDArray]]
) -> list[AnyNDArray]:
    """Return the coordinates with other values of parameters, in a list; nothing if bounds exclude these."""
    given = coordinates.values()
    try:
        for parameter, value in values:
            parameter.assign(value)
        return [coordinates.values()]
    except FAILURES:
        return []
    finally:
        coordinates.assign(given)


def _variances_of_slopes(model: GPModel) -> list[Parameter]:
    """Return the trainable variances of linear and polynomial kernels."""
    parts = [part for _, kernel in inputs_and_kernels(model) for part in leaves(kernel)]
    variances = [part.variance for part in parts if isinstance(part, Linear)]
    return [each for each in variances if isinstance(each, Parameter) and each.trainable]


def _units_of_lengthscales(model: GPModel) -> Iterator[tuple[Any, AnyNDArray, int]]:
    """Yield stationary kernels with trainable lengthscales, the lengthscales' units and the place in a sum."""
    for X, kernel in inputs_and_kernels(model):
        stationary = [part for part in leaves(kernel) if isinstance(part, Stationary)]
        for place, part in enumerate(stationary):
            columns, lengthscales = np.asarray(X)[:, part.active_dims], part.lengthscales
            if (
                isinstance(lengthscales, Parameter)
                and lengthscales.trainable
                and np.ptp(columns, axis=0).any()
            ):
                unit = spreads(columns) * np.sqrt(columns.shape[1])
                unit = (
                    unit
                    if lengthscales.shape == unit.shape
                    else np.full(lengthscales.shape, unit.mean())
                )
                yield part, unit, place
