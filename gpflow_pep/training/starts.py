"""Starts of training: lengthscales at several fractions of the spread of the inputs."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Linear, Stationary
from gpflow.models import GPModel

from ..engine import leaves
from ..models.stream import Stream
from .coordinates import Coordinates, inputs_and_kernels, spreads
from .objectives import FAILURES

FRACTIONS = (1.0, 0.3, 0.1)
"""Lengthscales of the starts over the standard deviation of a column times √(number of columns)."""
_NEAR = 0.2  # largest difference of coordinates, mostly logarithms, of starts that count as equal
_REACH = 100.0  # Adam starts lengthscales anew that are farther from these units than this factor


def starts(
    model: GPModel, coordinates: Coordinates, num_drawn: int | None, seed: int
) -> list[AnyNDArray]:
    """
    Return the coordinates [P] of the starts: the present values, then other lengthscales.

    These are `FRACTIONS` of their units, then `num_drawn` times fractions drawn log-uniform between
    0.1 and 1. A stream, a model without lengthscales, and any with `num_drawn` = None start at the
    present values only. A start near an earlier one is left out.
    """
    found = [coordinates.values()]
    parts = list(_lengthscales(model))
    random = np.random.default_rng(seed)
    if not parts or num_drawn is None or isinstance(model, Stream):
        return found
    for number in range(len(FRACTIONS) + num_drawn):
        values = []
        for lengthscales, unit, place in parts:  # in a sum, equal parts would stay equal
            fraction = np.asarray(FRACTIONS[(number + place) % len(FRACTIONS)])
            if number >= len(FRACTIONS):
                fraction = 10.0 ** random.uniform(-1.0, 0.0, unit.shape)
            values.append((lengthscales, fraction * unit))
        for start in _coordinates_at(coordinates, values):
            if all(np.abs(start - other).max() > _NEAR for other in found):
                found.append(start)
    return found


def without_inputs(model: GPModel, coordinates: Coordinates) -> list[AnyNDArray]:
    """
    Return the present coordinates with lengthscales 1000 times longer (f is constant) and shorter
    (f is noise).

    Variances of linear and polynomial kernels are 1e6 times smaller there.
    """
    found: list[AnyNDArray] = []
    lengthscales = [each for each, *_ in _lengthscales(model)]
    if not lengthscales:
        return found
    parts = [part for _, kernel in inputs_and_kernels(model) for part in leaves(kernel)]
    slopes = [part.variance for part in parts if isinstance(part, Linear)]
    for factor in (1e3, 1e-3):
        values = [(each, factor * each.numpy()) for each in lengthscales]
        values += [(each, 1e-6 * each.numpy()) for each in slopes if _is_trainable(each)]
        found += _coordinates_at(coordinates, values)
    return found


def bring_within_reach(model: GPModel, loss: Callable[[], float]) -> None:
    """Replace lengthscales that Adam cannot reach; keep long ones if the loss is less."""
    if isinstance(model, Stream):
        return
    for is_long in (False, True):
        for lengthscales, unit, _ in _lengthscales(model):
            values = lengthscales.numpy()
            is_far = values > _REACH * unit if is_long else values < unit / _REACH
            if not is_far.any():
                continue
            before = loss() if is_long else np.inf
            with suppress(*FAILURES):  # bounds may exclude them
                lengthscales.assign(np.where(is_far, unit, values))
            if is_long and not loss() <= before:
                lengthscales.assign(values)


def _coordinates_at(
    coordinates: Coordinates, values: list[tuple[Parameter, AnyNDArray]]
) -> list[AnyNDArray]:
    """Return the coordinates of other parameters in a list, empty if bounds exclude them."""
    given = coordinates.values()
    try:
        for parameter, value in values:
            parameter.assign(value)
        return [coordinates.values()]
    except FAILURES:
        return []
    finally:
        coordinates.assign(given)


def _lengthscales(model: GPModel) -> Iterator[tuple[Parameter, AnyNDArray, int]]:
    """Yield trainable lengthscales of stationary kernels, their units and their places in a sum."""
    for X, kernel in inputs_and_kernels(model):
        stationary = [part for part in leaves(kernel) if isinstance(part, Stationary)]
        for place, part in enumerate(stationary):
            columns = np.asarray(X)[:, part.active_dims]
            if _is_trainable(part.lengthscales) and np.ptp(columns, axis=0).any():
                unit = spreads(columns) * np.sqrt(columns.shape[1])
                if part.lengthscales.shape != unit.shape:
                    unit = np.full(part.lengthscales.shape, unit.mean())
                yield part.lengthscales, unit, place


def _is_trainable(value: object) -> bool:
    return isinstance(value, Parameter) and value.trainable
