"""Cholesky factorization that never returns NaN silently.

TensorFlow's Cholesky fills its result with NaN on CPU when a matrix is not positive definite, and goes on. Here the
same operation stops with a message that names the matrix, says how it is conditioned and what to try. In functions that
XLA compiles, which cannot raise errors, the result and what is computed from it are NaN.
"""

import sys
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..runtime.checks import asserted
from ..runtime.custom_gradients import once_differentiable
from ..runtime.tracing import in_xla, shared

_GROWTH = 10.0  # of the jitter, per attempt
_HALVINGS = 2  # of a triangular factor that is inverted
_STRIP = 64  # rows; narrower products are slower than what they save
_FEW_ROWS = 3 * _STRIP  # below, one plain operation is quicker than several that do less arithmetic


@check_shapes("matrix: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky(matrix: TensorType, *, name: str, advice: str | tf.Tensor) -> tf.Tensor:
    """
    Lower Cholesky factor of a symmetric positive definite matrix, or an error: eagerly, compiled and in gradients.

    It is differentiated once, with fewer products than TensorFlow's.

    :param matrix: symmetric matrix, or a batch of them.
    :param name: what the error message calls the matrix.
    :param advice: what the reader of that message can try; a string or a string tensor [].
    :return: the lower triangular factor; always finite, except with ``jit_compile=True``, where all of it is NaN if a
        matrix is not positive definite.
    :raises tf.errors.InvalidArgumentError: if the matrix is not positive definite in floating point.
    """

    @tf.custom_gradient
    def checked(matrix: tf.Tensor) -> Any:
        factor = tf.linalg.cholesky(matrix)
        succeeded = tf.reduce_all(tf.math.is_finite(factor), axis=[-2, -1])  # [batch...]
        if not (tf.executing_eagerly() and tf.reduce_all(succeeded)):
            message = [] if in_xla() else [_message(matrix, succeeded, name, advice)]
            factor = asserted(factor, succeeded, *message)

        def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return once_differentiable(cholesky_adjoint(factor, tf.matmul(factor, bar, transpose_a=True)))

        return factor, gradient

    result: tf.Tensor = checked(tf.convert_to_tensor(matrix))
    return result


@check_shapes("matrix: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky_with_growing_jitter(
    matrix: TensorType, *, jitter: float, max_jitter: float, name: str, advice: str
) -> tf.Tensor:
    """
    :func:`cholesky` of a matrix whose diagonal already carries `jitter`, which is raised tenfold until the
    factorization succeeds. A raise is reported on standard error, but not with ``jit_compile=True``; past `max_jitter`
    the error is :func:`cholesky`'s.

    :param jitter: what the diagonal carries (units of the matrix).
    :param max_jitter: the largest jitter that may be used instead.
    """
    identity = tf.eye(tf.shape(matrix)[-1], dtype=matrix.dtype)
    present = tf.constant(jitter, matrix.dtype)
    smallest = np.finfo(matrix.dtype.as_numpy_dtype).eps
    start = tf.minimum(tf.maximum(present, tf.constant(smallest, matrix.dtype)), tf.constant(max_jitter, matrix.dtype))
    fixed = tf.stop_gradient(matrix)

    def fails(total: tf.Tensor) -> tf.Tensor:
        attempt = tf.linalg.cholesky(fixed + (total - present) * identity)
        return tf.logical_and(~_succeeded(attempt), _GROWTH * total <= max_jitter)

    total = tf.cond(
        _succeeded(tf.linalg.cholesky(fixed)),
        lambda: present,
        lambda: tf.while_loop(fails, lambda total: [_GROWTH * total], [start])[0],
    )

    def report() -> tf.Tensor:
        message = f"gpflow_pep: {name} was not positive definite; jitter raised from"
        printed = tf.print(message, present, "to", total, output_stream=sys.stderr)
        with tf.control_dependencies([] if printed is None else [printed]):
            return tf.constant(True)

    total = tf.stop_gradient(total)
    reported = tf.constant(False) if in_xla() else tf.cond(total > present, report, lambda: tf.constant(False))
    with tf.control_dependencies([reported]):
        return cholesky(matrix + (total - present) * identity, name=name, advice=advice)


def _succeeded(factor: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(factor))


def _message(matrix: tf.Tensor, succeeded: tf.Tensor, name: str, advice: str | tf.Tensor) -> tf.Tensor:
    """What the error says of a matrix, or of the first of a batch that failed."""
    if matrix.shape.rank == 2:
        matrices, succeeded = tf.expand_dims(matrix, 0), tf.expand_dims(succeeded, 0)  # [B, M, M], [B]
    else:
        matrices = tf.reshape(matrix, tf.concat([[-1], tf.shape(matrix)[-2:]], 0))
        succeeded = tf.reshape(succeeded, [-1])
    return _diagnosis(matrices, succeeded, tf.convert_to_tensor(name), tf.convert_to_tensor(advice))


@shared
def _diagnosis(matrices: tf.Tensor, succeeded: tf.Tensor, name: tf.Tensor, advice: tf.Tensor) -> tf.Tensor:
    """
    The message: the size of the first matrix that failed, its smallest eigenvalue, its condition number, and what has
    to be added to its diagonal: rounding changes eigenvalues λ by up to M eps max|λ|.

    No branch: where none failed, this is about an empty batch and costs next to nothing, and less to trace.
    """
    size = tf.shape(matrices)[-1]
    culprit = tf.gather(matrices, tf.where(~succeeded)[:1, 0])  # [0 or 1, M, M]
    is_finite = tf.math.is_finite(culprit)
    num_broken = tf.reduce_sum(tf.cast(~is_finite, tf.int32), axis=[1, 2])  # [0 or 1], as all that follows
    eigenvalues = tf.linalg.eigvalsh(tf.where(is_finite, culprit, tf.zeros_like(culprit)))
    sizes = tf.abs(eigenvalues)
    dtype = matrices.dtype.as_numpy_dtype
    lowest, greatest_size = tf.reduce_min(eigenvalues, axis=1), tf.reduce_max(sizes, axis=1)
    rounding = (np.finfo(dtype).eps * tf.cast(size, matrices.dtype)) * greatest_size
    missing = tf.maximum(rounding - lowest, np.finfo(dtype).tiny)
    missing = tf.pow(tf.constant(10.0, matrices.dtype), tf.math.ceil(tf.math.log(missing) / np.log(10.0)))
    numbers = (
        lowest,  # not the first: a matrix [0, 0] has none
        tf.reduce_max(eigenvalues, axis=1),
        greatest_size / tf.reduce_min(sizes, axis=1),
    )
    smallest, largest, condition = (tf.strings.as_string(number, shortest=True) for number in numbers)
    shape = tf.strings.format("{} x {}", (size, size))
    heading = ["Cholesky decomposition was not successful: ", name, " has size ", shape, ", "]
    broken = " of its entries are not finite, so an input or a parameter is NaN, infinite or overflowing"
    end = [". Try: ", advice]
    return tf.where(
        num_broken > 0,
        tf.strings.join([*heading, tf.strings.as_string(num_broken), broken, *end]),
        tf.strings.join(
            [
                *heading,
                "smallest eigenvalue ",
                smallest,
                ", largest ",
                largest,
                ", condition number about ",
                condition,
                "; it succeeds with ",
                tf.strings.as_string(missing, scientific=True, precision=0),
                " more on the diagonal",
                *end,
            ]
        ),
    )


@check_shapes("value: [shape...]", "return: [shape...]")
def finite(value: TensorType, *, name: str, advice: str) -> tf.Tensor:
    """
    `value` itself, or an error that names it where an entry is NaN or infinite; with ``jit_compile=True`` all is NaN.

    :raises tf.errors.InvalidArgumentError: eagerly and compiled.
    """
    value, message = tf.convert_to_tensor(value), f" of the entries of {name} are not finite. Try: {advice}"
    is_finite = tf.math.is_finite(value)
    if in_xla():
        return asserted(value, is_finite)
    if value.shape.rank == 0:
        return asserted(value, is_finite, f"1{message}")
    num_broken = tf.math.count_nonzero(~is_finite)
    return asserted(value, num_broken == 0, tf.strings.as_string(num_broken) + message)


@check_shapes("left: [batch..., M, N]", "right: [batch..., M, N]", "return: [batch..., N]")
def column_products(left: TensorType, right: TensorType) -> tf.Tensor:
    """diag(left' right). Many rows are summed by a product with ones, which is faster than a reduction over them."""
    if left.shape[-2] is not None and left.shape[-2] < _STRIP:
        return tf.reduce_sum(left * right, axis=-2)
    return tf.linalg.matvec(left * right, tf.ones(tf.shape(left)[:-1], left.dtype), transpose_a=True)


@check_shapes("left: [batch..., M, N]", "right: [batch..., M, N]", "return: [batch..., M, M]")
def symmetric_product(left: TensorType, right: TensorType, *, upper: bool = False) -> tf.Tensor:
    """
    left right' where that is known to be symmetric (right = left diag(w), say), and symmetric to the last bit: of many
    rows strips up to the diagonal, and their mirror image, which for many strips is half the work of a product.

    :param upper: whether both are upper triangular, [..., M, M], which for many strips is a sixth of it.
    """
    if _has_few_rows(left):
        whole = tf.matmul(left, right, transpose_b=True)
        return 0.5 * (whole + tf.linalg.matrix_transpose(whole))
    size = tf.shape(left)[-2]
    num_strips = 2 if left.shape[-2] is None else max(1, left.shape[-2] // _STRIP)
    strips = []
    for number in range(num_strips):
        start, stop = size * number // num_strips, size * (number + 1) // num_strips
        first = start if upper else 0
        strip = tf.matmul(left[..., start:stop, first:], right[..., :stop, first:], transpose_b=True)
        padding = tf.pad([[0, size - stop]], [[tf.rank(left) - 1, 0], [0, 0]])
        strips.append(tf.pad(strip, padding))
    lower = tf.linalg.band_part(tf.concat(strips, axis=-2), -1, 0)
    diagonal = tf.linalg.diag_part(lower)
    whole = tf.linalg.set_diag(lower + tf.linalg.matrix_transpose(lower), diagonal)
    return tf.ensure_shape(whole, [*left.shape[:-1], left.shape[-2]])


@check_shapes("L: [batch..., M, M]", "return: [batch..., M, M]")
def inverse_of_product(L: tf.Tensor) -> tf.Tensor:
    """(L L')^-1 of a lower triangular L, for where every entry is needed, as of the derivative of a log det."""
    root = tf.linalg.matrix_transpose(_inverse(L, 0 if _has_few_rows(L) else _HALVINGS))
    return symmetric_product(root, root, upper=True)


def _has_few_rows(matrix: tf.Tensor) -> bool:
    """Whether it is known to have few."""
    return matrix.shape[-2] is not None and matrix.shape[-2] < _FEW_ROWS


def _inverse(L: tf.Tensor, halvings: int) -> tf.Tensor:
    """L^-1 by halves: of [A 0; B C] it is [A^-1 0; -C^-1 B A^-1  C^-1], mostly products, which are quicker."""
    size = L.shape[-1] or tf.shape(L)[-1]
    if halvings == 0:
        return tf.linalg.triangular_solve(L, tf.eye(size, dtype=L.dtype))
    half = size // 2
    A = _inverse(L[..., :half, :half], halvings - 1)
    C = _inverse(L[..., half:, half:], halvings - 1)
    below = -tf.matmul(C, tf.matmul(L[..., half:, :half], A))
    right = tf.concat([tf.linalg.matrix_transpose(tf.zeros_like(below)), C], axis=-2)
    return tf.concat([tf.concat([A, below], axis=-2), right], axis=-1)


@check_shapes("L: [batch..., M, M]", "LtL_bar: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky_adjoint(L: tf.Tensor, LtL_bar: tf.Tensor) -> tf.Tensor:
    """
    Derivative in K = L L' from L' L_bar: sym(L^-T Phi(L' L_bar) L^-1), Phi the lower triangle with half the diagonal
    (Murray 2016, eq. 10). The upper triangle of L_bar never matters, since L' times it is strictly upper triangular.
    """
    Phi = tf.linalg.band_part(LtL_bar, -1, 0)
    Phi = tf.linalg.set_diag(Phi, 0.5 * tf.linalg.diag_part(Phi))
    Phi = 0.5 * (Phi + tf.linalg.matrix_transpose(Phi))
    half = tf.linalg.triangular_solve(L, Phi, adjoint=True)  # L^-T Phi
    return tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True)
