"""Coordinates of the optimizers, in which curvatures do not depend on units.

===================  ===========================================================================
positive parameters  the logarithm of the value above its lower bound
inducing points      divided by the standard deviations of the columns of Z at the start
`Constant`,          divided by the standard deviation of f; `A` of `Linear` is also multiplied
`Linear` mean        by the standard deviation of its column
other variables      unchanged
===================  ===========================================================================

A softplus is linear for large values: a lengthscale of 1e5 would be 1e5 steps away. Objective and
priors are the same.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter
from gpflow.functions import Constant, Linear
from gpflow.inducing_variables import InducingPatches, InducingPoints
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.models import GPModel
from scipy.optimize import OptimizeResult
from typing_extensions import override

from .. import validation
from ..engine import index_columns, paired
from ..models.kernels_and_inducing_variables import single_output_variables


class Coordinate:
    """The coordinate of a variable, and its inverse; `maths` is `numpy` or `tf.math`."""

    def __init__(self, variable: tf.Variable, *, is_log: bool, unit: AnyNDArray | float):
        """
        :param is_log: True for a positive parameter's variable x, whose excess is log(1 + e^x).
        :param unit: divides other variables; an array that can be broadcast to the variable's
            shape.
        """
        self.variable, self.is_log = variable, is_log
        self.shape = variable.numpy().shape  # static shapes may be unknown
        # e^x must not underflow.
        self._least = np.log(2.0 * np.finfo(variable.dtype.as_numpy_dtype).tiny)
        self.unit: Any = np.asarray(unit, variable.dtype.as_numpy_dtype)

    def of(self, x: Any, maths: ModuleType) -> Any:
        """Return the coordinate of the variable's value x."""
        if not self.is_log:
            return x / self.unit
        x = maths.maximum(x, self._least)
        return maths.log(maths.log1p(maths.exp(-maths.abs(x))) + maths.maximum(x, 0.0))

    def inverse(self, u: Any, maths: ModuleType) -> Any:
        """Return the variable's value at the coordinate u."""
        if not self.is_log:
            return u * self.unit
        excess = maths.exp(u)
        return excess + maths.log(-maths.expm1(-excess))

    def slope(self, u: Any, maths: ModuleType) -> Any:
        """Return the derivative of :meth:`inverse`."""
        if not self.is_log:
            return self.unit
        excess = maths.exp(u)
        return excess / -maths.expm1(-excess)


class Coordinates:
    """The coordinates of variables, concatenated in NumPy, whose small operations are faster."""

    def __init__(self, model: tf.Module, variables: Sequence[tf.Variable]):
        """
        :param model: its parameters have bijectors; its inducing points set the units.
        :param variables: the variables to train; a variable of no parameter is its own coordinate.
        """
        if wrong := [each.name for each in variables if not each.dtype.is_floating]:
            raise ValueError(
                f"trainable variables must be floating point numbers, got {', '.join(wrong)}."
            )
        logs = _softplus_variables(model)
        units = _units(model)
        self.each = [
            Coordinate(each, is_log=id(each) in logs, unit=units.get(id(each), 1.0))
            for each in variables
        ]
        self._sizes = [np.prod(each.shape, dtype=int) for each in self.each]
        self.are_logs = np.repeat([each.is_log for each in self.each], self._sizes)  # booleans [P]

    def values(self) -> AnyNDArray:
        """Return the coordinates [P] of the variables."""
        with _quiet():
            return concatenated([each.of(each.variable.numpy(), np) for each in self.each])

    def variables_at(self, values: AnyNDArray) -> list[AnyNDArray]:
        """Return the values of the variables at coordinates [P]; an overflow is infinite."""
        parts = self.split(values)
        with _quiet():
            return [each.inverse(part, np) for each, part in zip(self.each, parts, strict=True)]

    def assign(self, values: AnyNDArray) -> None:
        """Assign coordinates [P] to the variables; those that have them keep their last digit."""
        for each, part, value in zip(
            self.each, self.split(values), self.variables_at(values), strict=True
        ):
            with _quiet():
                is_there = np.array_equal(each.of(each.variable.numpy(), np), part)
            if not is_there:
                each.variable.assign(value.astype(each.variable.dtype.as_numpy_dtype))

    def gradient(self, values: AnyNDArray, derivatives: Sequence[AnyNDArray]) -> AnyNDArray:
        """Return the gradient in the coordinates [P], from derivatives in the variables."""
        parts = self.split(values)
        with _quiet():
            slopes = [each.slope(part, np) for each, part in zip(self.each, parts, strict=True)]
            return concatenated([d * slope for d, slope in zip(derivatives, slopes, strict=True)])

    def entries(self, variables: Collection[tf.Variable]) -> AnyNDArray:
        """Return which coordinates belong to these variables, booleans [P]."""
        ids = set(map(id, variables))
        return np.repeat([id(each.variable) in ids for each in self.each], self._sizes)

    def split(self, values: AnyNDArray) -> list[AnyNDArray]:
        """Return the parts of an array [P] that belong to the variables, in their shapes."""
        parts = np.split(values, np.cumsum(self._sizes)[:-1])
        return [part.reshape(each.shape) for each, part in zip(self.each, parts, strict=True)]


def _quiet() -> AbstractContextManager[object]:
    """Let large coordinates overflow and underflow, even under ``np.seterr(all="raise")``."""
    return np.errstate(all="ignore")


def concatenated(values: Sequence[AnyNDArray]) -> AnyNDArray:
    """Return all entries of the arrays in one, [P], in double precision."""
    return np.concatenate([np.zeros(0), *map(np.ravel, values)])


class Scipy(gpflow.optimizers.Scipy):
    """
    GPflow's `Scipy` in the coordinates of :func:`gpflow_pep.fit`, for models of this library and of
    GPflow.

    >>> from gpflow_pep.training import Scipy
    >>> X = np.linspace(0.0, 6e4, 50)[:, None]
    >>> model = PEPR((X, np.sin(X / 1e4)), gpflow.kernels.Matern52(lengthscales=3e4), X[::10])
    >>> result = Scipy(model).minimize(model.training_loss, model.trainable_variables)
    >>> bool(result.success)
    True
    """

    def __init__(self, model: GPModel, compile_cache_size: int = 2):
        """
        :param model: the model that is trained; its values at the start of `minimize` set the
            units.
        :param compile_cache_size: as in `gpflow.optimizers.Scipy`.
        """
        validation.gpflow_model(model)
        super().__init__(compile_cache_size)
        self._model = model

    @override
    def minimize(self, *args: Any, **kwargs: Any) -> OptimizeResult:
        """Minimize as GPflow's `Scipy` does; arrays of the result are in the coordinates."""
        result = super().minimize(*args, **kwargs)
        self._coordinates.assign(result.x)
        return result

    @override
    def initial_parameters(  # type: ignore[override]
        self, variables: Sequence[tf.Variable]
    ) -> AnyNDArray:
        if not {id(each) for each in variables} & {id(each) for each in self._model.variables}:
            name = type(self._model).__name__
            raise ValueError(f"variables must belong to the model given to Scipy, a {name}.")
        self._coordinates = Coordinates(self._model, variables)
        return self._coordinates.values()

    @override
    def eval_func(
        self, *args: Any, **kwargs: Any
    ) -> Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]:
        evaluate = super().eval_func(*args, **kwargs)
        coordinates = self._coordinates

        def loss_and_gradient(values: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            loss, gradient = evaluate(concatenated(coordinates.variables_at(values)))
            return loss, coordinates.gradient(values, coordinates.split(gradient))

        return loss_and_gradient

    @override
    def callback_func(self, *args: Any) -> Callable[[AnyNDArray], None]:  # type: ignore[override]
        callback = super().callback_func(*args)
        coordinates = self._coordinates
        return lambda values: callback(concatenated(coordinates.variables_at(values)))


def _softplus_variables(model: tf.Module) -> set[int]:
    """Return ids of the variables under a softplus, which may be shifted to a lower bound."""
    found = set()
    for parameter in model.parameters:
        transform = parameter.transform
        parts = [transform]
        if isinstance(transform, tfp.bijectors.Chain):
            parts = transform.bijectors
        *shifts, innermost = parts
        is_softplus = type(innermost) is tfp.bijectors.Softplus and innermost.hinge_softness is None
        if is_softplus and all(type(shift) is tfp.bijectors.Shift for shift in shifts):
            found.add(id(parameter.unconstrained_variable))
    return found


def _units(model: GPModel) -> dict[int, AnyNDArray]:
    """Return units of the variables of inducing points and mean functions, by id."""
    mean_function = getattr(model, "mean_function", None)
    units = dict[int, object]()
    spread = np.ones(1)
    deviation = 1.0
    for inputs, kernel in inputs_and_kernels(model):
        spread = spreads(np.asarray(inputs))
        # Dividing and multiplying would change the last digit.
        spread[list(index_columns(kernel))] = 1.0
        deviation = float(np.sqrt(np.mean(kernel(inputs, full_cov=False))))
        if not 0.0 < deviation < np.inf:
            deviation = 1.0
        units[_id_of_variable(inputs)] = spread
    if type(mean_function) is Constant:
        units[_id_of_variable(mean_function.c)] = deviation
    if type(mean_function) is Linear:
        units[_id_of_variable(mean_function.A)] = deviation / spread[:, None]
        units[_id_of_variable(mean_function.b)] = deviation
    return units


def _id_of_variable(value: object) -> int:
    """Return the id of a parameter's variable, or of a variable, a tensor or a number itself."""
    return id(value.unconstrained_variable if isinstance(value, Parameter) else value)


def inputs_and_kernels(model: GPModel) -> list[tuple[Any, Kernel]]:
    """Return the latent functions' kernels, each with its points Z [M, D], else with X [N, D]."""
    kernel = getattr(model, "kernel", None)
    variable = getattr(model, "inducing_variable", None)
    data = getattr(model, "data", None)
    if not isinstance(kernel, Kernel):
        return []
    kernels = [kernel]
    if isinstance(kernel, MultioutputKernel):
        kernels = list(kernel.latent_kernels)
    if variable is not None:
        pairs = paired(single_output_variables(variable), kernels)
        return [
            (z.Z, kernel)
            for z, kernel in pairs
            if isinstance(z, InducingPoints) and type(z) is not InducingPatches
        ]
    if isinstance(data, tuple):
        return [(data[0], each) for each in kernels]
    return []


def spreads(X: AnyNDArray) -> AnyNDArray:
    """Return the standard deviations of the columns [D] of X [N, D], 1 for a constant column."""
    ranges = np.ptp(X, axis=0)
    scales = np.where(ranges == 0.0, 1.0, ranges)  # squares of the columns may overflow
    return np.where(ranges == 0.0, 1.0, np.std(X / scales, axis=0) * scales)
