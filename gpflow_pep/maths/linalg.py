"""
Cholesky factorization with errors (TensorFlow's returns NaN on CPUs), and products and inverses of
factors.
"""

import sys
from contextlib import AbstractContextManager
from contextvars import ContextVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..runtime import (
    Tensors,
    WithGradient,
    asserted,
    enabled,
    in_xla,
    once_differentiable,
    shared,
)

_UNREPORTED = ContextVar("unreported", default=False)
_STRIP = 64  # rows of a strip; splitting products into fewer rows costs more time than it saves


@check_shapes("matrix: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky(matrix: TensorType, *, name: str, advice: str | tf.Tensor) -> tf.Tensor:
    """
    Compute the lower Cholesky factor of a matrix, or raise an error with its name, its conditioning
    and a remedy.

    Differentiable once, with fewer matrix products than TensorFlow's gradient.

    :param matrix: symmetric matrix, or a batch of them.
    :param name: name of the matrix in the error message; `advice`: the remedy, a string or a string
        tensor [].
    :return: the factor, always finite; with ``jit_compile=True`` all NaN if a matrix is not
        positive definite.
    :raises tf.errors.InvalidArgumentError: if the matrix is not positive definite in floating
        point.
    """

    @tf.custom_gradient
    def checked(matrix: tf.Tensor) -> WithGradient:
        L = tf.linalg.cholesky(matrix)
        succeeded = tf.reduce_all(tf.math.is_finite(L), axis=[-2, -1])  # [batch...]
        if not (tf.executing_eagerly() and tf.reduce_all(succeeded)):
            message = []
            if not in_xla():
                matrices = tf.reshape(
                    matrix, tf.concat([[tf.size(succeeded)], tf.shape(matrix)[-2:]], 0)
                )  # [B, M, M]
                texts = map(tf.convert_to_tensor, (name, advice))
                message.append(_diagnosis(matrices, tf.reshape(succeeded, [-1]), *texts))
            L = asserted(L, succeeded, *message)
        return L, lambda bar: once_differentiable(
            cholesky_adjoint(L, tf.matmul(L, bar, transpose_a=True))
        )

    return checked(tf.convert_to_tensor(matrix))


@check_shapes("matrix: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky_with_growing_jitter(
    matrix: TensorType, *, jitter: float, max_jitter: float, name: str, advice: str
) -> tf.Tensor:
    """
    Call :func:`cholesky`, increasing the jitter tenfold until the factorization succeeds or
    `max_jitter` is exceeded.

    An increase is printed to standard error (not with ``jit_compile=True``, nor inside of
    :func:`unreported`).

    :param jitter: the jitter already added to the diagonal (units of the matrix).
    """
    present = tf.constant(jitter, matrix.dtype)
    total = sufficient_jitter(matrix, jitter=jitter, max_jitter=max_jitter)

    def report() -> tf.Tensor:
        message = f"gpflow_pep: {name} was not positive definite; jitter raised from"
        printed = tf.print(message, present, "to", total, output_stream=sys.stderr)
        with tf.control_dependencies([] if printed is None else [printed]):
            return tf.constant(True)

    reported = tf.constant(False)
    if not (in_xla() or _UNREPORTED.get()):
        reported = tf.cond(total > present, report, lambda: tf.constant(False))
    with tf.control_dependencies([reported]):
        return cholesky(plus_identity(matrix, total - present), name=name, advice=advice)


def sufficient_jitter(matrix: tf.Tensor, *, jitter: float, max_jitter: float) -> tf.Tensor:
    """
    Return `jitter`, raised tenfold until the factorization succeeds or `max_jitter` is exceeded,
    [].
    """
    present = tf.constant(jitter, matrix.dtype)
    start = tf.minimum(tf.maximum(present, epsilon(matrix.dtype)), max_jitter)
    fixed = tf.stop_gradient(matrix)

    def fails(total: tf.Tensor) -> tf.Tensor:
        return ~succeeds(plus_identity(fixed, total - present)) & (10.0 * total <= max_jitter)

    total = tf.cond(
        succeeds(fixed),
        lambda: present,
        lambda: tf.while_loop(fails, lambda total: [10.0 * total], [start])[0],
    )
    return tf.stop_gradient(total)


def unreported() -> AbstractContextManager[None]:
    """
    Print no raised jitter that is computed, or traced, in this context: `fit` reports it in its
    result.
    """
    return enabled(_UNREPORTED)


def succeeds(matrix: tf.Tensor) -> tf.Tensor:
    """Return whether all matrices [..., M, M] are positive definite, []."""
    return tf.reduce_all(tf.math.is_finite(tf.linalg.cholesky(matrix)))


@shared
def _diagnosis(
    matrices: tf.Tensor, succeeded: tf.Tensor, name: tf.Tensor, advice: tf.Tensor
) -> tf.Tensor:
    """
    Describe the first matrix that failed, and the jitter it needs: rounding changes λ by up to M
    eps max|λ|.
    """
    size = tf.shape(matrices)[-1]
    # Empty if no matrix failed: this traces faster than a branch.
    culprit = tf.gather(matrices, tf.where(~succeeded)[:1, 0])  # [0 or 1, M, M]
    is_finite = tf.math.is_finite(culprit)
    num_broken = tf.reduce_sum(
        tf.cast(~is_finite, tf.int32), axis=[1, 2]
    )  # [0 or 1], like all values below
    eigenvalues = tf.linalg.eigvalsh(tf.where(is_finite, culprit, 0.0))
    sizes = tf.abs(eigenvalues)
    dtype = matrices.dtype
    lowest = tf.reduce_min(eigenvalues, axis=1)
    greatest_size = tf.reduce_max(sizes, axis=1)
    rounding = (epsilon(dtype) * tf.cast(size, dtype)) * greatest_size
    missing = tf.maximum(rounding - lowest, np.finfo(dtype.as_numpy_dtype).tiny)
    missing = 10.0 ** tf.math.ceil(tf.math.log(missing) / np.log(10.0))
    # reduce_min instead of eigenvalues[:, 0]: a matrix [0, 0] has no eigenvalues.
    numbers = (
        lowest,
        tf.reduce_max(eigenvalues, axis=1),
        greatest_size / tf.reduce_min(sizes, axis=1),
    )
    smallest, largest, condition = (
        tf.strings.as_string(number, shortest=True) for number in numbers
    )
    shape = tf.strings.format("{} x {}", (size, size))
    more = tf.strings.as_string(missing, scientific=True, precision=0)
    heading = ["Cholesky decomposition was not successful: ", name, " has size ", shape, ", "]
    not_finite = (
        " of its entries are not finite, so an input or a parameter is NaN, infinite or overflowing"
    )
    spectrum = [
        "smallest eigenvalue ",
        smallest,
        ", largest ",
        largest,
        ", condition number about ",
        condition,
    ]
    end = [". Try: ", advice]
    return tf.where(
        num_broken > 0,
        tf.strings.join([*heading, tf.strings.as_string(num_broken), not_finite, *end]),
        tf.strings.join(
            [*heading, *spectrum, "; it succeeds with ", more, " more on the diagonal", *end]
        ),
    )


def epsilon(dtype: tf.DType) -> float:
    """Return the machine epsilon of a floating point type."""
    return float(np.finfo(dtype.as_numpy_dtype).eps)


def plus_identity(matrix: tf.Tensor, factor: tf.Tensor | float = 1.0) -> tf.Tensor:
    """Return matrix + factor I, [..., M, M]."""
    if isinstance(factor, float) and factor == 0.0:
        return matrix
    return with_diagonal(matrix, tf.linalg.diag_part(matrix) + factor)


def with_diagonal(matrix: tf.Tensor, diagonal: tf.Tensor) -> tf.Tensor:
    """Return a copy of matrix [..., M, M] with this diagonal [..., M]."""

    @tf.custom_gradient
    def replaced(matrix: tf.Tensor, diagonal: tf.Tensor) -> WithGradient:
        def pull_back(bar: tf.Tensor) -> Tensors:
            of_diagonal = tf.linalg.diag_part(bar)
            return tf.linalg.set_diag(bar, tf.zeros_like(of_diagonal)), of_diagonal

        return tf.linalg.set_diag(matrix, diagonal), pull_back

    # The gradient of TensorFlow's function has 70 operations if the size is not known in tracing.
    set_diag = tf.linalg.set_diag if matrix.shape.is_fully_defined() else replaced
    return set_diag(matrix, diagonal)


def symmetrized(matrix: tf.Tensor) -> tf.Tensor:
    """Return the symmetric part of a matrix [..., M, M]."""
    return 0.5 * (matrix + tf.linalg.matrix_transpose(matrix))


def log_det(factor: tf.Tensor) -> tf.Tensor:
    """Return log det of L L' for a Cholesky factor L [..., M, M], [...]."""
    return 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)


def condition(factor: tf.Tensor) -> tf.Tensor:
    """Estimate the condition number of L L' from below, by the diagonal of L [..., M, M], [...]."""
    diagonal = tf.linalg.diag_part(factor)
    return tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))


@check_shapes("value: [shape...]", "return: [shape...]")
def finite(value: TensorType, *, name: str, advice: str) -> tf.Tensor:
    """
    Return `value`, or raise an error with its name if an entry is not finite (NaN with
    ``jit_compile=True``).
    """
    value = tf.convert_to_tensor(value)
    message = f" of the entries of {name} are not finite. Try: {advice}"
    is_finite = tf.math.is_finite(value)
    if in_xla() or value.shape.rank == 0:
        return asserted(value, is_finite, f"{name} is not finite. Try: {advice}")
    num_broken = tf.math.count_nonzero(~is_finite)
    return asserted(value, num_broken == 0, tf.strings.as_string(num_broken) + message)


@check_shapes("left: [batch..., M, N]", "right: [batch..., M, N]", "return: [batch..., N]")
def column_products(left: TensorType, right: TensorType) -> tf.Tensor:
    """
    Return diag(left' right). Many rows are summed by a product with ones, faster than a reduction.
    """
    if left.shape[-2] is not None and left.shape[-2] < _STRIP:
        return tf.reduce_sum(left * right, axis=-2)
    return tf.linalg.matvec(
        left * right, tf.ones(tf.shape(left)[:-1], left.dtype), transpose_a=True
    )


@check_shapes("left: [batch..., M, N]", "right: [batch..., M, N]", "return: [batch..., M, M]")
def symmetric_product(left: TensorType, right: TensorType, *, upper: bool = False) -> tf.Tensor:
    """
    Return left right' for factors whose product is symmetric (for example right = left diag(w)),
    exactly symmetric. Of many rows only :func:`lower_product` is computed.
    """
    if _in_one_operation(left):
        return symmetrized(tf.matmul(left, right, transpose_b=True))
    lower = lower_product(left, right, upper=upper)
    return tf.linalg.set_diag(lower + tf.linalg.matrix_transpose(lower), tf.linalg.diag_part(lower))


@check_shapes("left: [batch..., M, N]", "right: [batch..., M, N]", "return: [batch..., M, M]")
def lower_product(left: TensorType, right: TensorType, *, upper: bool = False) -> tf.Tensor:
    """
    Return the lower triangle of left right'. Of many rows only strips up to the diagonal are
    computed: half the work, or a sixth if both are `upper` triangular.
    """
    size = left.shape[-2]
    halvings = 1 if size is None else int(np.log2(max(size, _STRIP) / _STRIP))
    return _lower_product(left, right, 0 if _in_one_operation(left) else halvings, upper)


def _lower_product(left: tf.Tensor, right: tf.Tensor, halvings: int, upper: bool) -> tf.Tensor:
    """Return the lower triangle of [left right'] by halving the rows of both."""
    if halvings == 0:
        return tf.linalg.band_part(tf.matmul(left, right, transpose_b=True), -1, 0)
    halves = _halves(left)
    left, lower_left = tf.split(left, halves, axis=-2)
    right, lower_right = tf.split(right, halves, axis=-2)
    A = _lower_product(left, right, halvings - 1, upper=False)
    if upper:  # the first columns of the lower rows are 0
        right, lower_left, lower_right = (
            tf.split(each, halves, axis=-1)[1] for each in (right, lower_left, lower_right)
        )
    B = tf.matmul(lower_left, right, transpose_b=True)
    return _lower_triangular(A, B, _lower_product(lower_left, lower_right, halvings - 1, upper))


def _halves(matrix: tf.Tensor) -> tf.Tensor:
    """Return the numbers of upper and lower rows, [2]."""
    size = matrix.shape[-2] or tf.shape(matrix)[-2]
    half = size // 2
    return tf.stack([half, size - half])


def _lower_triangular(A: tf.Tensor, B: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
    """Return [A 0; B C]."""
    right = tf.concat([tf.linalg.matrix_transpose(tf.zeros_like(B)), C], axis=-2)
    return tf.concat([tf.concat([A, B], axis=-2), right], axis=-1)


@check_shapes("L: [batch..., M, M]", "return: [batch..., M, M]")
def inverse_of_product(L: tf.Tensor) -> tf.Tensor:
    """Return (L L')^-1 for lower triangular L."""
    root = tf.linalg.matrix_transpose(_inverse(L))
    return symmetric_product(root, root, upper=True)


def _in_one_operation(matrix: tf.Tensor) -> bool:
    """Return whether one operation is faster than strips: for few rows, and on GPUs."""
    is_small = matrix.shape[-2] is not None and matrix.shape[-2] < 3 * _STRIP
    return is_small or by_products(matrix)


def by_products(L: tf.Tensor) -> bool:
    """Return whether :func:`triangular_solve` multiplies by inverses, in double precision only."""
    return L.dtype == tf.float64 and prefers_products()


def triangular_solve(L: tf.Tensor, columns: tf.Tensor, *, adjoint: bool = False) -> tf.Tensor:
    """
    Return L^-1 `columns`, with `adjoint` L^-T `columns`, [..., M, n].

    On GPUs a solve for many columns reaches a tenth of the rate of a product. There L^-1 is
    computed, once for all solves with L in a graph. Objectives, derivatives and predictions meet
    the same tolerances as by solves (`tests/test_conditioning.py`); `campaign.conditioning`
    compares their errors. In single precision products may be in TensorFloat-32, and solves stay.
    """
    if by_products(L):
        return tf.matmul(_inverse(L), columns, transpose_a=adjoint)
    return tf.linalg.triangular_solve(L, columns, adjoint=adjoint)


def _inverse(L: tf.Tensor) -> tf.Tensor:
    """Return L^-1, of many rows by halves: [A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1 C^-1]."""
    if _in_one_operation(L):
        return _solution_of_identity(L)
    halves = _halves(L)
    upper, lower = tf.split(L, halves, axis=-2)
    B, C = tf.split(lower, halves, axis=-1)
    A = _solution_of_identity(tf.split(upper, halves, axis=-1)[0])
    C = _solution_of_identity(C)
    return _lower_triangular(A, -tf.matmul(C, tf.matmul(B, A)), C)


def _solution_of_identity(L: tf.Tensor) -> tf.Tensor:
    return tf.linalg.triangular_solve(L, plus_identity(tf.zeros_like(L)))


@check_shapes("L: [batch..., M, M]", "LtL_bar: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky_adjoint(L: tf.Tensor, LtL_bar: tf.Tensor) -> tf.Tensor:
    """
    Return the gradient in K = L L', sym(L^-T Phi(L' L_bar) L^-1), from L' L_bar (Murray 2016, eq.
    10). Phi takes the lower triangle with half the diagonal; the upper triangle of L_bar has no
    effect.
    """
    Phi = tf.linalg.band_part(LtL_bar, -1, 0)
    Phi = symmetrized(tf.linalg.set_diag(Phi, 0.5 * tf.linalg.diag_part(Phi)))
    half = triangular_solve(L, Phi, adjoint=True)  # L^-T Phi
    return triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True)


def prefers_products() -> bool:
    """Return whether products are much faster than triangular solves, as on GPUs."""
    return bool(tf.config.get_visible_devices("GPU"))
