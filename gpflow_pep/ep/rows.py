"""Rows of data as EP sees them: V = L^-1 Kuf, the variance of f given u, the mean function, observations, powers."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.mean_functions import MeanFunction

from ..engine import Chunk, Chunks, Prior, conditional_variance_of_f, watched
from ..runtime.distribution import ONE_PROCESS, Workers
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


class WatchedRows(NamedTuple):
    """The rows of a chunk given u, and how to differentiate them."""

    projected: Projected
    # From derivatives in the rows' prior to derivatives in the inputs of all rows and in variables.
    pull_back: Callable[[PriorRows], tuple[tf.Tensor, ...]]


class LatentRows:
    """The rows of a model, chunk by chunk."""

    def __init__(
        self,
        data: RegressionData,
        chunks: Chunks,
        alpha: tf.Tensor,
        prior: Prior,
        mean_function: MeanFunction,
        num_latent_gps: int,
        workers: Workers | None = None,
    ):
        """
        :param data: X [N, D] and Y [N, P]; nothing if the chunks are batches of a dataset.
        :param alpha: the power of all rows [], or one for each row [N].
        :param workers: those that have the other rows.
        """
        self.all_workers = workers or ONE_PROCESS
        self.chunked = chunks.split(tuple(map(tf.convert_to_tensor, data)))
        self.num_latent_gps, self._alpha = num_latent_gps, alpha
        self._prior, self._mean_function = prior, mean_function
        self.inputs = prior.inputs

    @property
    def alpha_of_all(self) -> tf.Tensor:
        """The power of all rows [], or one for each row [N]."""
        return self._alpha

    def with_alpha(self, change: Callable[[tf.Tensor], tf.Tensor]) -> "LatentRows":
        """Return the same rows with other powers."""
        rows = copy(self)
        rows._alpha = change(self._alpha)
        return rows

    @property
    def only_chunk(self) -> Chunk | None:
        """The single chunk of all rows; None if there may be more."""
        return self.chunked.only_chunk

    def take_pair(self, values: tf.Tensor, chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a chunk of `values` [N, 2, C] as two tensors [C, n]."""
        first, second = tf.unstack(tf.transpose(chunk.take(values), [1, 2, 0]))
        return first, second

    def sum_over_chunks(self, part: Callable[[Any], Any], zero: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Sum what `part` returns for each chunk, tensors of the shapes of `zero`."""
        return self.all_workers.sums(self.chunked.sum(part, zero))

    def concatenate(
        self, part: Callable[[Any], tuple[tf.Tensor, ...]], dtype: tf.DType, shapes: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        """Concatenate what `part` returns for each chunk, some rows each."""
        return self.chunked.concatenate(part, dtype, shapes)

    def keep(
        self, part: Callable[[Any], tuple[tf.Tensor, ...]], dtype: tf.DType, count: int
    ) -> Callable[[Any], tuple[tf.Tensor, ...]]:
        """
        Compute what `part` returns for all chunks, `count` tensors [..., n], and return a function that reads it.

        :raises TypeError: if the chunks are batches of a dataset.
        """
        return self.chunked.keep(part, dtype, count)

    def __call__(self, chunk: Any, *inputs: tf.Tensor) -> PriorRows:
        """Compute the prior of one chunk from `inputs`."""
        X, _ = chunk.data  # [n, D]
        return PriorRows(self._prior.Kuf(X, *inputs), self._prior.variances(X, *inputs), tf.transpose(self._mean(X)))

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        return tf.broadcast_to(self._mean_function(X), [tf.shape(X)[0], self.num_latent_gps])

    def means(self) -> tf.Tensor:
        """Compute m(x) of all rows, [N, C]."""

        def part(chunk: Any) -> tuple[tf.Tensor]:
            return (self._mean(chunk.data[0]),)

        return self.concatenate(part, self._alpha.dtype, [[None, self.num_latent_gps]])[0]

    def observations(self, chunk: Any) -> Observations:
        """Return inputs and observations of one chunk."""
        return Observations(*chunk.data)

    def alpha(self, chunk: Any) -> tf.Tensor:
        """Return the power of one chunk's rows, [] or [n]."""
        return self._alpha if self._alpha.shape.rank == 0 else chunk.take(self._alpha)


def project(L: tf.Tensor, prior: PriorRows, scale: tf.Tensor) -> Projected:
    """Condition the rows on u, Kuu = L L'; the conditional variance is multiplied by `scale`."""
    V = tf.linalg.triangular_solve(L, prior.Kuf)
    return Projected(V, scale * conditional_variance_of_f(prior.Kff_diag, V, L), prior.mean)


class ProjectedRows:
    """The rows given u, chunk by chunk: kept in memory, or computed anew at each call."""

    def __init__(
        self,
        rows: LatentRows,
        L: tf.Tensor,
        scale: tf.Tensor,
        *,
        keep: bool,
        variables: Sequence[tf.Variable] | None = None,
    ):
        """
        :param keep: compute all chunks now and keep them, in memory that grows with N M.
        :param variables: :meth:`watched` rows will be differentiated in these; a single chunk is then computed
            once for both.
        """
        self._rows, self._L, self._scale, self._variables = rows, L, scale, variables or ()
        self._only: WatchedRows | None = None
        self._kept: Callable[[Any], tuple[tf.Tensor, ...]] | None = None
        only_chunk = rows.only_chunk
        if only_chunk is not None and variables is not None:
            self._only = self.watched(only_chunk)
        elif keep:
            self._kept = rows.keep(self._compute, L.dtype, len(Projected._fields))

    def __call__(self, chunk: Any) -> Projected:
        """Return the rows of one chunk."""
        if self._only is not None:
            return self._only.projected
        return self._compute(chunk) if self._kept is None else Projected(*self._kept(chunk))

    def watched(self, chunk: Any) -> WatchedRows:
        """Return the rows of one chunk, to be differentiated once, also in the variables."""
        if self._only is not None:
            return self._only
        inputs = self._rows.inputs
        prior, pull_back = watched(self._rows, chunk, inputs, [*inputs, *self._variables])
        projected = project(self._L, prior, self._scale) if self._kept is None else self(chunk)
        return WatchedRows(projected, pull_back)

    def _compute(self, chunk: Any) -> Projected:
        return project(self._L, self._rows(chunk, *self._rows.inputs), self._scale)
