"""
Greedy choice of inducing points by conditional variance (Burt, Rasmussen and van der Wilk 2020,
JMLR 21(131)).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, MultioutputKernel

from .. import validation
from ..engine import RowChunks, check_columns, checked_indices, kernel_matrix
from ..maths.linalg import epsilon
from ..runtime import asserted, compiled, no_autograph, with_plain_errors
from .rows import distinct

_Count: TypeAlias = int | tf.Tensor
_CONTRADICTION = (
    "kernel must be positive definite: the variance of a row given the chosen rows is negative "
    "beyond rounding error. Check K of a kernel of your own; if it expands squared distances of "
    "inputs, subtract the mean of X."
)
_ROWS = 16_384  # per kernel evaluation: fewer take longer, more only take memory
# Rows of the root per panel: a step copies its panel and loops over the full ones; 4 or 64 are
# slower.
_PANEL = 16


def greedy_variance(
    kernel: Kernel, X: Any, M: int, *, given: Any = None, chunk_size: int | None = None
) -> AnyNDArray:
    """
    Choose M distinct rows of X, each with the largest prior variance given the rows chosen before
    it.

    This keeps the largest entry of diag(Kff - Qff) small and, if M is large enough for the
    lengthscales, its sum, too; with fewer points it chooses outlying rows first. Use
    hyperparameters close to the trained values. The choice is deterministic. O(N M²) time; memory
    for the root of Qff [M, N] and a few dozen rows.

    >>> X = np.linspace(0.0, 1.0, 11)[:, None]
    >>> inducing.greedy_variance(gpflow.kernels.SquaredExponential(lengthscales=0.3), X, 3).ravel().tolist()
    [0.0, 1.0, 0.5]

    :param kernel: a single-output kernel.
    :param X: the rows to choose from, [N, D].
    :param M: number of points, at most the number of distinct rows.
    :param given: existing points [m, D], m < M, not necessarily rows of X; the first m points of
        the result.
    :param chunk_size: rows per kernel evaluation; it does not change the result.
    :return: Z [M, D] in order of choice: the first k rows are the choice of k points. Ties go to
        the first row; once all conditional variances are 0 up to rounding, the order is arbitrary.
    """
    return greedy_choice(kernel, X, M, given=given, chunk_size=chunk_size)[0]


def greedy_choice(
    kernel: Kernel, X: Any, M: int, *, given: Any, chunk_size: int | None = None
) -> tuple[AnyNDArray, AnyNDArray]:
    """Return Z of :func:`greedy_variance`, and each point's variance [M] given those before it."""
    X = validation.matrix(X, "X", "D")
    M = validation.positive_integer(M, "M")
    chunk_size = validation.chunk_size(chunk_size) or _ROWS
    points = X[:0] if given is None else validation.matrix(given, "given", "D")
    num_given = len(points)
    if num_given >= M:
        raise ValueError(f"given must have fewer than M = {M} points, got {num_given}.")
    if points.shape[1] != X.shape[1]:
        raise ValueError(
            f"given must have as many columns as X, {X.shape[1]}, got {points.shape[1]}."
        )
    if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel must be a gpflow.kernels.Kernel of one output, got {type(kernel).__name__}."
        )
    check_columns(kernel, X.shape[1])
    X = np.concatenate([checked_indices(kernel, points, "given"), checked_indices(kernel, X, "X")])
    rows = distinct(X)
    rows = np.concatenate([np.arange(num_given), rows[rows >= num_given]])
    if len(rows) < M:
        of = "X and given points" if num_given else "X"
        raise ValueError(
            f"M must be at most the number of distinct rows of {of}, {len(rows)}, got {M}."
        )
    X = X[rows]
    decompose = compiled(
        lambda X: _PivotedCholesky(kernel, X, M, num_given, num_given, chunk_size).choice()
    )
    choice = with_plain_errors(decompose, tf.constant(X))
    if not np.isfinite(choice.left).all():
        raise ValueError(
            "kernel must give finite variances and covariances of the rows of X, got NaN or "
            "infinity."
        )
    Z = X[np.concatenate([np.arange(num_given), choice.rows.numpy()[num_given:]])]
    return Z, choice.variances.numpy()


@no_autograph
def greedy_conditional_variance(
    kernel: Kernel, X: tf.Tensor, count: _Count, *, first: _Count, among: _Count
) -> tf.Tensor:
    """
    Return the indices [count] of distinct rows, each with the largest variance given the rows
    before it.

    For compiled functions: arguments are not checked. Duplicates come last, ties go to the first
    row. O(n count²) time, O(n count) memory.

    :param X: candidates [n, D].
    :param first: number of rows chosen first, only among the first `among` rows; the rest among all
        rows.
    """
    return _PivotedCholesky(kernel, X, count, first, among, _ROWS).choice().rows


class _Choice(NamedTuple):
    """Pivots of a Cholesky decomposition."""

    rows: tf.Tensor
    """Indices [count]."""
    variances: tf.Tensor
    """Variance of each row given those before it, [count]."""
    left: tf.Tensor
    """Variances of all rows given the chosen ones, [n]; negative if chosen."""


class _PivotedCholesky:
    """
    A pivoted Cholesky decomposition: each pivot is the row of the largest remaining variance. The
    `first` pivots are among the first `among` rows of X [n, D].

    The root R [count, n] has RᵀR = Qff. TensorFlow copies what it updates, so R consists of panels,
    and full ones are left as they are.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: tf.Tensor,
        count: _Count,
        first: _Count,
        among: _Count,
        chunk_size: int,
    ):
        self._kernel = kernel
        self._X = X
        self._count = tf.convert_to_tensor(count)
        self._first = first
        self._among = among
        self._chunks = RowChunks(chunk_size).split([X])
        self._position = tf.range(tf.shape(X)[0])
        self._num_rows = tf.size(self._position)
        self._variances = self._by_chunks(lambda rows: kernel(rows, full_cov=False))  # [n]
        largest = tf.reduce_max(self._variances)
        eps = epsilon(X.dtype)
        # Smallest pivot relative to the largest variance; a row below it is a duplicate.
        share = max(1e-12, 10.0 * eps)
        self._smallest = share * largest
        # An entry of R has an error of count eps Kff / sqrt(left), its square twice that times the
        # entry; 10 is for safety.
        self._bound = 10.0 * eps / share**0.5 * tf.cast(self._count, X.dtype) * largest

    def choice(self) -> _Choice:
        """Choose all rows."""
        panels = tf.TensorArray(
            self._X.dtype,
            -(-self._count // _PANEL),
            clear_after_read=False,
            element_shape=[_PANEL, None],
        )
        none = _Choice(
            rows=tf.zeros([self._count], tf.int32),
            variances=tf.zeros([self._count], self._X.dtype),
            left=self._variances,
        )
        _, _, choice = tf.while_loop(
            lambda index, *_: index * _PANEL < self._count,
            self._fill,
            (tf.constant(0), panels, none),
            parallel_iterations=1,
        )
        return choice

    def _fill(
        self, index: tf.Tensor, panels: tf.TensorArray, choice: _Choice
    ) -> tuple[tf.Tensor, tf.TensorArray, _Choice]:
        """Choose the rows of a panel of R."""

        def step(
            number: tf.Tensor, panel: tf.Tensor, choice: _Choice
        ) -> tuple[tf.Tensor, tf.Tensor, _Choice]:
            left = choice.left
            # Rows that may come at this number.
            eligible = (number >= self._first) | (self._position < self._among)
            pivot = tf.argmax(tf.where(eligible, left, -1.0), output_type=tf.int32)
            _, explained = tf.while_loop(
                lambda earlier, _: earlier < index,
                lambda earlier, total: (
                    earlier + 1,
                    total + _explained(panels.read(earlier), pivot),
                ),
                (tf.constant(0), _explained(panel, pivot)),
                parallel_iterations=1,
            )
            row = self._row(pivot, left[pivot], explained)
            panel = tf.tensor_scatter_nd_update(panel, [[number % _PANEL]], row[None])
            return number + 1, panel, self._next(choice, number, pivot, row)

        last = tf.minimum((index + 1) * _PANEL, self._count)
        panel = tf.zeros([_PANEL, self._num_rows], self._X.dtype)
        _, panel, choice = tf.while_loop(
            lambda number, *_: number < last,
            step,
            (index * _PANEL, panel, choice),
            parallel_iterations=1,
        )
        return index + 1, panels.write(index, panel), choice

    def _row(self, pivot: tf.Tensor, variance: tf.Tensor, explained: tf.Tensor) -> tf.Tensor:
        """Return the row [n] of R for a pivot, with the part of Qff that earlier rows explain."""
        point = self._X[pivot : pivot + 1]
        covariances = self._by_chunks(lambda rows: kernel_matrix(self._kernel, point, rows)[0])
        row = (covariances - explained) / tf.sqrt(tf.maximum(variance, self._smallest))
        # Rows that must come first may have no variance left. Their rounding error, divided by a
        # small pivot, would grow from pivot to pivot: they explain nothing. A freely chosen pivot
        # is the largest variance left.
        explains = (variance >= self._smallest) | tf.equal(self._first, 0)
        return tf.where(explains, row, tf.zeros_like(row))

    def _next(
        self, choice: _Choice, number: tf.Tensor, pivot: tf.Tensor, row: tf.Tensor
    ) -> _Choice:
        """Return the choice with this pivot, whose row of R is `row` [n]."""
        left = choice.left
        rest = asserted(
            left - row**2,
            ~tf.reduce_any((left >= 0.0) & (left - row**2 < -self._bound)),
            _CONTRADICTION,
        )
        variance = left[pivot]
        # Chosen rows come last, also after rows without remaining variance.
        left = tf.where(
            self._position != pivot,
            tf.where(left < 0.0, left, tf.nn.relu(rest)),
            -0.5,
        )
        return _Choice(
            rows=tf.tensor_scatter_nd_update(choice.rows, [[number]], pivot[None]),
            variances=tf.tensor_scatter_nd_update(choice.variances, [[number]], variance[None]),
            left=left,
        )

    def _by_chunks(self, part: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Compute a part [c] for each chunk of rows [c, D], together [n]."""
        chunks = self._chunks
        return chunks.concatenate(lambda chunk: (part(chunk.data[0]),), self._X.dtype, [[None]])[0]


def _explained(panel: tf.Tensor, pivot: tf.Tensor) -> tf.Tensor:
    """Return the contribution of one panel [m, n] to row `pivot` of Qff, [n]."""
    return tf.matmul(panel[None, :, pivot], panel)[0]
