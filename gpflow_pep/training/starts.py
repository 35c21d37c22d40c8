"""Starts of training: lengthscales at several fractions of the spread of the inputs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Combination, Kernel, MultioutputKernel, Stationary
from gpflow.models import GPModel

from ..models.stream import Stream
from .coordinates import Coordinates, inputs_and_kernels, spreads

FRACTIONS = (1.0, 0.3, 0.1)
"""Lengthscales of the starts, in units of the standard deviation of a column times the square root of their number."""
_REACH = 100.0  # Adam starts lengthscales anew that are farther from these units than this factor


def starts(model: GPModel, coordinates: Coordinates, num_drawn: int, seed: int) -> list[AnyNDArray]:
    """
    Return the coordinates [P] of the starts: the present values, then others with other trainable lengthscales.

    These are `FRACTIONS` of their units, then `num_drawn` times fractions drawn log-uniform between 0.1 and 1. Streams
    and models without lengthscales start at the present values only.
    """
    given = coordinates.values()
    units = list(_units_of_lengthscales(model))
    if not units or isinstance(model, Stream):
        return [given]
    found, random = [given], np.random.default_rng(seed)
    try:
        for number in range(len(FRACTIONS) + num_drawn):
            for kernel, unit in units:
                drawn = 10.0 ** random.uniform(-1.0, 0.0, unit.shape)
                fraction = FRACTIONS[number] if number < len(FRACTIONS) else drawn
                kernel.lengthscales.assign(unit * fraction)
            found.append(coordinates.values())
    finally:
        coordinates.assign(given)
    return found


def without_inputs(model: GPModel, coordinates: Coordinates) -> list[AnyNDArray]:
    """Return the present coordinates with lengthscales 1000 times longer (f is constant) and shorter (f is noise)."""
    kernels, found, given = [kernel for kernel, _ in _units_of_lengthscales(model)], [], coordinates.values()
    lengthscales = [kernel.lengthscales.numpy() for kernel in kernels]
    for factor in (1e3, 1e-3) if kernels else ():
        for kernel, values in zip(kernels, lengthscales, strict=True):
            kernel.lengthscales.assign(factor * values)
        found.append(coordinates.values())
    coordinates.assign(given)
    return found


def bring_within_reach(model: GPModel) -> None:
    """Assign lengthscales that are of another order than the inputs: Adam would need thousands of steps to reach it."""
    for kernel, unit in _units_of_lengthscales(model):
        ratio = kernel.lengthscales.numpy() / unit
        kernel.lengthscales.assign(np.where(np.abs(np.log(ratio)) > np.log(_REACH), unit, kernel.lengthscales.numpy()))


def _units_of_lengthscales(model: GPModel) -> Iterator[tuple[Any, AnyNDArray]]:
    """Yield the stationary kernels with trainable lengthscales, each with units of the shape of its lengthscales."""
    for X, kernel in inputs_and_kernels(model):
        for part in _stationary(kernel):
            if part.lengthscales.trainable:
                columns = np.asarray(X)[:, part.active_dims]
                unit = spreads(columns) * np.sqrt(columns.shape[1])
                yield part, unit if part.ard else np.sqrt(np.mean(unit**2))


def _stationary(kernel: Kernel) -> Iterator[Stationary]:
    if isinstance(kernel, Stationary):
        yield kernel
    elif isinstance(kernel, Combination | MultioutputKernel):
        for part in getattr(kernel, "kernels", None) or kernel.latent_kernels:
            yield from _stationary(part)
