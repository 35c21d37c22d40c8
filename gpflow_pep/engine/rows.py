"""Rows of data: covariances with u, prior variances, noise, residuals; and the variance of f given u."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.config import default_float
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction, Zero
from typing_extensions import override

from ..maths.linalg import column_products
from ..runtime.checks import asserted
from ..runtime.custom_gradients import derivatives
from ..runtime.distribution import ONE_PROCESS, Workers
from .chunks import Chunk, Chunks, Part
from .covariances import Prior
from .dataset_chunks import DatasetRows


class Rows(NamedTuple):
    """The rows of a chunk; G blocks of b rows are n = G b consecutive rows."""

    Kuf: tf.Tensor  # Covariance of u with f, [..., M, n]
    Kff: tf.Tensor  # Prior variances [..., n] of independent rows, or prior covariances [G, b, b] of blocks
    noise: tf.Tensor  # Variance s of the observation noise, [..., n]
    residual: tf.Tensor  # y - m(x), [..., n, P]


class RowSource(Protocol):
    """A source of rows for the engine. For the same chunk it must return the same rows at every call."""

    inputs: tuple[tf.Tensor, ...]  # Differentiated tensors that rows depend on, other than variables which they read
    variables: tuple[tf.Variable, ...]  # Read by the rows; also differentiated if not trainable, if a tape watches them
    num_outputs: int  # P
    only_chunk: Chunk | None  # The single chunk of all rows; None if there may be more

    def sum_over_chunks(self, part: Part, zero: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Sum the results of `part` for each chunk, tensors of the shapes of `zero`."""

    def __call__(self, chunk: Chunk, *inputs: tf.Tensor) -> Rows:
        """Compute the rows of one chunk from `inputs`, in the chunk's precision."""


class RegressionRows(RowSource):
    """Rows of a GP regression model: kernel, inducing variable, Gaussian likelihood and mean function."""

    def __init__(
        self,
        data: Sequence[tf.Tensor],
        chunks: Chunks,
        prior: Prior,
        likelihood: Gaussian,
        mean_function: MeanFunction,
        noise_factor: tf.Tensor | None = None,
        *,
        workers: Workers | None = None,
    ):
        """
        :param data: X [N, D] and Y [N, P]; nothing if the chunks are batches of a dataset.
        :param noise_factor: multiplies the likelihood's variance, []; differentiable.
        :param workers: the workers that have the other rows; sums are over all workers' rows.
        """
        data = tuple(map(tf.convert_to_tensor, data))
        self.chunked, self._all_workers = chunks.split(data), workers or ONE_PROCESS
        self.only_chunk = self.chunked.only_chunk
        self._prior, self._likelihood, self._mean_function = prior, likelihood, mean_function
        noise = likelihood.variance
        self._is_constant = isinstance(noise, Parameter) and noise.shape.rank == 0
        noise = tf.convert_to_tensor(noise) if self._is_constant else tf.ones([], default_float())
        self.inputs = (noise if noise_factor is None else noise * noise_factor, *prior.inputs)
        self.num_outputs = chunks.columns[1] if isinstance(chunks, DatasetRows) else int(data[1].shape[-1])
        self.variables = floating_variables(prior.kernel, prior.inducing_variable, likelihood, mean_function)

    @override
    def sum_over_chunks(self, part: Part, zero: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        return self._all_workers.sums(self.chunked.sum(part, zero))

    @override
    def __call__(self, chunk: Chunk, *inputs: tf.Tensor) -> Rows:
        noise, *prior_inputs = inputs
        X, Y = chunk.data  # [n, D], [n, P]
        if chunk.shape is None:
            Kff = self._prior.variances(X, *prior_inputs)  # [n]
        else:
            Kff = self._prior.Kff(chunk.as_blocks(X), *prior_inputs)  # [G, b, b]
        rows = Rows(
            Kuf=self._prior.Kuf(X, *prior_inputs, dtype=chunk.dtype),
            Kff=Kff,
            noise=tf.fill(tf.shape(X)[:1], noise)
            if self._is_constant
            else self._likelihood.variance_at(X)[:, 0] * noise,
            residual=Y if type(self._mean_function) is Zero else Y - self._mean_function(X),
        )
        return rows if chunk.dtype is None else cast(rows, chunk.dtype)


def cast(values: Any, dtype: tf.DType) -> Any:
    """Cast the floating point tensors of a structure to another precision."""
    return tf.nest.map_structure(lambda value: tf.cast(value, dtype) if value.dtype.is_floating else value, values)


def watched(
    rows: Callable[..., Any], chunk: Chunk, inputs: Sequence[tf.Tensor], sources: Sequence[Any]
) -> tuple[Any, Callable[[Any], tuple[tf.Tensor, ...]]]:
    """Return a chunk's rows, and a function from their derivatives to the derivatives in `sources`."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        values = rows(chunk, *inputs)

    def pull_back(bar: Any) -> tuple[tf.Tensor, ...]:
        return derivatives(tape, tuple(values), sources, tuple(bar))

    return values, pull_back


def floating_variables(*parts: tf.Module) -> tuple[tf.Variable, ...]:
    """The variables of all parts, each once, that can be differentiated; parts may share some."""
    variables = {variable.ref(): variable for part in parts for variable in part.variables}
    return tuple(variable for variable in variables.values() if variable.dtype.is_floating)


_SAFETY = 100.0  # of the bound on rounding errors in `with_checked_variance`, which an estimate may fall short of


def conditional_variance_of_f(Kff: tf.Tensor, V: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """
    Compute d = Kff - diag(V'V), [..., n], V = L^-1 Kuf. Rounding below 0 is cut off.

    :raises tf.errors.InvalidArgumentError: as :func:`with_checked_variance` does.
    """
    conditional_variance = Kff - column_products(V, V)
    return tf.nn.relu(with_checked_variance(conditional_variance, conditional_variance, Kff, L))


def with_checked_variance(value: tf.Tensor, conditional_variance: tf.Tensor, Kff: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """
    Return `value` if the variances of f given u, Kff - diag(V'V) with V = L^-1 Kuf, are not negative beyond rounding.

    The computed factorization is the exact one of a Kuu perturbed by some M eps of its entries (Higham 2002, theorem
    10.4). That changes V'V by M eps |Kuu| |w|^2, w = Kuu^-1 Kuf, and |w|^2 <= Kff/lambda for the smallest eigenvalue
    lambda of Kuu. The squared ratio of the largest to the smallest entry of L's diagonal estimates |Kuu|/lambda from
    below; _SAFETY covers the difference.

    :param conditional_variance: [..., n], and the prior variances Kff.
    :param L: Cholesky factor of Kuu, [M, M] or [C, M, M].
    :raises tf.errors.InvalidArgumentError: if a variance is negative beyond rounding error.
    """
    diagonal = tf.linalg.diag_part(L)
    condition = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))
    condition = condition if condition.shape.rank == 0 else tf.reduce_max(condition)
    size = tf.cast(tf.shape(L)[-1], L.dtype) if L.shape[-1] is None else L.shape[-1]
    bound = (_SAFETY * np.finfo(L.dtype.as_numpy_dtype).eps * size) * condition
    return asserted(
        value,
        ~tf.reduce_any(conditional_variance < -bound * tf.reduce_max(Kff)),  # NaN is found later
        "the variance of f given u is negative beyond rounding error: Kuu, Kuf and Kff contradict each other, as when "
        "inputs are far from the origin, or spread over far too many lengthscales. Try: subtracting the mean of X from "
        "X, Xnew and the inducing points, or longer lengthscales. The smallest variance is",
        tf.reduce_min(conditional_variance),
    )
