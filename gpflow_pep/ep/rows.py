"""Rows of data as EP sees them: V = L^-1 Kuf, the variance of f given u, the mean function, observations, powers."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from ..engine import (
    CHUNKS_IN_FLIGHT,
    Chunks,
    Prior,
    concatenate,
    conditional_variance_of_f,
    floating_variables,
    sum_over_chunks,
)
from ..graphs import in_xla
from ..tilted import Observations


class PriorRows(NamedTuple):
    """The prior of n rows, whose C latent functions share one covariance or have one each."""

    Kuf: tf.Tensor  # Covariance of u with f, [M, n] or [C, M, n]
    Kff_diag: tf.Tensor  # Prior variances of f, [n] or [C, n]
    mean: tf.Tensor  # Mean function m(x), [C, n]


class Projected(NamedTuple):
    """n rows given u = L v: f = w + m(x) + N(0, d), w = V'v."""

    V: tf.Tensor  # L^-1 Kuf, [M, n] or [C, M, n]
    conditional_variance: tf.Tensor  # d, the variance of f given u times the scale of T-PEP, [n] or [C, n]
    mean: tf.Tensor  # m(x), [C, n]


class LatentRows:
    """The rows of a model, chunk by chunk."""

    def __init__(
        self,
        data: RegressionData,
        chunks: Chunks,
        alpha: tf.Tensor,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        mean_function: MeanFunction,
        num_latent_gps: int,
        *,
        single_chunk: bool = False,
    ):
        """
        :param alpha: the power of all rows [], or one for each row [N].
        :param single_chunk: work on all rows together, whatever their number, without a loop.
        """
        self.chunks, self.num_latent_gps, self.single_chunk, self._alpha = chunks, num_latent_gps, single_chunk, alpha
        self._X, self._Y = (tf.convert_to_tensor(values) for values in data)
        self._prior, self._mean_function = Prior(inducing_variable, kernel), mean_function
        self.inputs = self._prior.inputs
        self.variables = floating_variables(kernel, inducing_variable, mean_function)

    @property
    def alpha_of_all(self) -> tf.Tensor:
        """The power of all rows [], or one for each row [N]."""
        return self._alpha

    def with_alpha(self, change: Callable[[tf.Tensor], tf.Tensor]) -> "LatentRows":
        """Return the same rows with other powers."""
        rows = copy(self)
        rows._alpha = change(self._alpha)
        return rows

    def num_chunks(self) -> tf.Tensor:
        """Return the number of chunks, []."""
        return self.chunks.count(tf.shape(self._X)[0])

    def take(self, values: tf.Tensor, chunk: tf.Tensor) -> tf.Tensor:
        """Return a chunk's rows of `values` [N, ...]."""
        return values if self.single_chunk else self.chunks.take(values, chunk)

    def take_natural(self, values: tf.Tensor, chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a chunk of `values` [N, 2, C] as two tensors [C, n]."""
        first, second = tf.unstack(tf.transpose(self.take(values, chunk), [1, 2, 0]))
        return first, second

    def sum_over_chunks(self, part: Callable[[tf.Tensor], Any], zero: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Sum what `part` returns for each chunk, tensors of the shapes of `zero`."""
        return (
            tuple(part(tf.constant(0))) if self.single_chunk else sum_over_chunks(self.num_chunks(), part, tuple(zero))
        )

    def concatenate(
        self, part: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], dtype: tf.DType, shapes: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        """Concatenate what `part` returns for each chunk, some rows each."""
        return part(tf.constant(0)) if self.single_chunk else concatenate(self.num_chunks(), part, dtype, shapes)

    def __call__(self, chunk: tf.Tensor, *inputs: tf.Tensor) -> PriorRows:
        """Compute the prior of one chunk from `inputs`."""
        X = self.take(self._X, chunk)  # [n, D]
        mean = tf.broadcast_to(self._mean_function(X), [tf.shape(X)[0], self.num_latent_gps])
        return PriorRows(self._prior.Kuf(X, *inputs), self._prior.variances(X, *inputs), tf.transpose(mean))

    def observations(self, chunk: tf.Tensor) -> Observations:
        """Return inputs and observations of one chunk."""
        return Observations(self.take(self._X, chunk), self.take(self._Y, chunk))

    def alpha(self, chunk: tf.Tensor) -> tf.Tensor:
        """Return the power of one chunk's rows, [] or [n]."""
        return self._alpha if self._alpha.shape.rank == 0 else self.take(self._alpha, chunk)


def project(L: tf.Tensor, prior: PriorRows, scale: tf.Tensor) -> Projected:
    """Condition the rows on u, Kuu = L L'; the conditional variance is multiplied by `scale`."""
    V = tf.linalg.triangular_solve(L, prior.Kuf)
    return Projected(V, scale * conditional_variance_of_f(prior.Kff_diag, V, L), prior.mean)


class ProjectedRows:
    """The rows given u, chunk by chunk: kept in memory, or computed anew at each call."""

    def __init__(self, rows: LatentRows, L: tf.Tensor, scale: tf.Tensor, *, keep: bool):
        """
        :param keep: compute all chunks now and keep them, in memory that grows with N M.
        """
        keep = keep and (rows.single_chunk or not in_xla())  # arrays of chunks of several sizes
        self._rows, self._L, self._scale = rows, L, scale
        self._kept = self._compute_all() if keep else None

    def __call__(self, chunk: tf.Tensor) -> Projected:
        """Return the rows of one chunk."""
        return self._compute(chunk) if self._kept is None else self._kept(chunk)

    def _compute(self, chunk: tf.Tensor) -> Projected:
        return project(self._L, self._rows(chunk, *self._rows.inputs), self._scale)

    def _compute_all(self) -> Callable[[tf.Tensor], Projected]:
        if self._rows.single_chunk:
            whole = self._compute(tf.constant(0))
            return lambda chunk: whole
        count = self._rows.num_chunks()
        shapes: list[list[int | None]] = []
        arrays = tuple(
            tf.TensorArray(self._L.dtype, count, clear_after_read=False, infer_shape=False) for _ in Projected._fields
        )

        def step(chunk: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
            values = self._compute(chunk)
            shapes[:] = [[*value.shape[:-1], None] for value in values]
            return chunk + 1, *(array.write(chunk, value) for array, value in zip(arrays, values, strict=True))

        _, *arrays = tf.while_loop(
            lambda chunk, *_: chunk < count, step, (tf.constant(0), *arrays), parallel_iterations=CHUNKS_IN_FLIGHT
        )
        return lambda chunk: Projected(
            *(tf.ensure_shape(array.read(chunk), shape) for array, shape in zip(arrays, shapes, strict=True))
        )
