"""Rows of data: covariances with u, prior variances, noise, residuals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.functions import Function
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.utilities import to_default_float

from ..runtime import Sources, Tensors, Workers, asserted, derivatives, watching
from .chunks import Chunk, ChunkedData, Chunks, Part
from .covariances import Prior, floating_variables
from .dataset_chunks import DatasetChunks


class Rows(NamedTuple):
    """The rows of a chunk; G blocks of b rows are n = G b consecutive rows."""

    Kuf: tf.Tensor  # Covariance of u with f, [M, n]
    # Prior variances [n] of independent rows, or prior covariances [G, b, b] of blocks.
    Kff: tf.Tensor
    noise: tf.Tensor  # Variance s of the observation noise, [n]
    residual: tf.Tensor  # y - m(x), [n, P]
    scale: tf.Tensor  # m of the structured conditional M = m I: [], or of each row [n] or block [G]


class SummedRows:
    """Rows in chunks, which workers share."""

    chunked: ChunkedData
    all_workers: Workers

    def sum_over_chunks(self, part: Part, zero: Sequence[tf.Tensor]) -> Tensors:
        """
        Sum the results of `part`, tensors of the shapes of `zero`, over the chunks of all workers.
        """
        return self.all_workers.sums(self.chunked.sum(part, zero))


class RegressionRows(SummedRows):
    """
    Rows of a GP regression model: kernel, inducing variable, Gaussian likelihood and mean function.
    """

    def __init__(
        self,
        data: Sequence[tf.Tensor],
        chunks: Chunks,
        prior: Prior,
        likelihood: Gaussian,
        mean_function: MeanFunction,
        noise_factor: tf.Tensor | None,
        *,
        scale: tf.Tensor,
        workers: Workers,
    ):
        """
        Take X [N, D] and Y [N, P], or () for a dataset, a factor of the noise variance, [], and m,
        [] or [B].
        """
        data = tuple(map(tf.convert_to_tensor, data))
        self.chunked, self.all_workers = chunks.split(data), workers
        self.only_chunk = self.chunked.only_chunk
        self._prior, self._likelihood, self._mean_function = prior, likelihood, mean_function
        noise = likelihood.variance
        self._is_constant = isinstance(noise, Parameter) and noise.shape.rank == 0
        noise = tf.convert_to_tensor(noise) if self._is_constant else to_default_float(1.0)
        # Tensors that the rows depend on and are differentiated in, besides variables; the scale is
        # the first.
        self.inputs = (
            scale,
            noise if noise_factor is None else noise * noise_factor,
            *prior.inputs,
        )
        self.num_outputs = (
            chunks.columns[1] if isinstance(chunks, DatasetChunks) else int(data[1].shape[-1])
        )
        # Differentiated if trainable or watched by a tape.
        self.variables = floating_variables(
            prior.kernel, prior.inducing_variable, likelihood, mean_function
        )

    def __call__(self, chunk: Chunk, *inputs: tf.Tensor) -> Rows:
        """Compute the rows of one chunk, in its precision, from `inputs` or the present ones."""
        scale, noise, *prior_inputs = inputs or self.inputs
        X, _ = chunk.data  # [n, D]
        Kuf = self._prior.Kuf(X, *prior_inputs, dtype=chunk.dtype)
        if chunk.shape is None:
            Kff = self._prior.variances(X, *prior_inputs)  # [n]
        else:
            blocks = tf.reshape(X, [*chunk.shape, X.shape[-1]])  # [G, b, D]
            Kff = self._prior.Kff(blocks, *prior_inputs)  # [G, b, b]
        noise, residual = self.noise_and_residual(chunk, noise)
        return cast(Rows(Kuf, Kff, noise, residual, chunk.take_blocks(scale)), chunk.dtype)

    def noise_and_residual(self, chunk: Chunk, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute noise variances [n] and y - m(x) [n, P] of one chunk; `noise`: the second of
        `inputs`.
        """
        X, Y = chunk.data
        variances = (
            tf.fill(tf.shape(X)[:1], noise)
            if self._is_constant
            else noise_at(self._likelihood, X) * noise
        )
        if type(self._mean_function) is Zero:
            return variances, Y
        return variances, Y - mean_at(self._mean_function, X, self.num_outputs)


def noise_at(likelihood: Gaussian, X: tf.Tensor) -> tf.Tensor:
    """Compute the noise variance of rows X [n, D], [n]."""
    for function in (likelihood.variance, likelihood.scale):
        if isinstance(function, Function):
            mean_at(function, X, 1, "likelihood: the noise function")
    return likelihood.variance_at(X)[:, 0]


def mean_at(
    function: Function, X: tf.Tensor, num_outputs: int | tf.Tensor, name: str = "mean_function"
) -> tf.Tensor:
    """Compute m(x) of rows X [n, D], [n, P]; a single row or column of m(x) stands for all."""
    mean, n = tf.convert_to_tensor(function(X)), X.shape[0]
    P = num_outputs if isinstance(num_outputs, int) else None
    must = (
        f"{name} must return {X.dtype.name} of shape [{'rows' if n is None else n}, {P or 'P'}], "
        "got"
    )
    accepted = [[rows, columns] for rows in (n, 1) for columns in (P, 1)]
    if mean.dtype != X.dtype or not any(map(mean.shape.is_compatible_with, accepted)):
        raise ValueError(f"{must} {mean.dtype.name} of shape {mean.shape}.")
    sizes, shape = tf.shape(mean), [tf.shape(X)[0], num_outputs]
    if n is None or P is None or not mean.shape.is_fully_defined():
        mean = asserted(mean, tf.equal(sizes, 1) | tf.equal(sizes, shape), f"{must} shape", sizes)
    return tf.broadcast_to(mean, shape)


def cast(values: object, dtype: tf.DType | None) -> Any:
    """Cast the floating point tensors of a structure to another precision; None: the same."""
    if dtype is None:
        return values
    return tf.nest.map_structure(
        lambda value: tf.cast(value, dtype) if value.dtype.is_floating else value, values
    )


def watched(
    rows: Callable[..., Any], chunk: Chunk, inputs: Sequence[tf.Tensor], sources: Sources
) -> tuple[Any, Callable[[Any], Tensors]]:
    """
    Return a chunk's rows, and a function from their derivatives to the derivatives in `sources`.
    """
    with watching(sources) as tape:
        values = rows(chunk, *inputs)
    return values, lambda bar: derivatives(tape, tuple(values), sources, tuple(bar))
