"""
A Cholesky factor is correct or raises an informative error: eagerly, compiled, in gradients and in
batches.
"""

import re

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from differences import derivative
from doubles import double
from marks import either_way
from numpy.testing import assert_allclose, assert_array_equal
from products import preferring_products
from refusals import stopped
from tensorflow.errors import InvalidArgumentError

from gpflow_pep.maths.linalg import (
    cholesky,
    cholesky_with_growing_jitter,
    column_products,
    finite,
    inverse_of_product,
    symmetric_product,
    triangular_solve,
    with_diagonal,
)

EPS = np.finfo(np.float64).eps


def positive_definite(size, seed=0):
    features = np.random.default_rng(seed).normal(size=(size, size))
    return features @ features.T / size + 0.1 * np.eye(size)


INDEFINITE = np.diag([4.0, 1.0, -0.5])  # smallest -0.5, largest 4, condition 8


def with_entries(value):
    matrix = positive_definite(3)
    matrix[0, 1] = matrix[1, 0] = value
    return matrix


def factorized(matrix):
    return cholesky(
        tf.convert_to_tensor(matrix), name="the matrix of this test", advice="another matrix"
    )


def in_a_tape(matrix):
    return derivative(
        lambda matrix: tf.reduce_sum(factorized(matrix)), tf.convert_to_tensor(matrix)
    )


@pytest.fixture(
    params=[factorized, tf.function(factorized), in_a_tape, tf.function(in_a_tape)],
    ids=["eager", "compiled", "tape", "compiled tape"],
)
def factorize(request):
    return request.param


@pytest.mark.parametrize("size", [1, 2, 17])
def test_factor_and_gradient_equal_tensorflow(size):
    for shape in [(), (1,), (2, 3)]:
        count = int(np.prod(shape))
        matrices = np.stack([positive_definite(size, seed) for seed in range(count)]).reshape(
            *shape, size, size
        )
        for function in (factorized, tf.function(factorized)):
            assert_array_equal(function(tf.constant(matrices)), tf.linalg.cholesky(matrices))
        matrix = tf.constant(matrices)
        found, expected = (
            derivative(lambda matrix, factor=factor: tf.reduce_sum(tf.sin(factor(matrix))), matrix)
            for factor in (factorized, tf.linalg.cholesky)
        )
        tolerance = 100 * EPS * np.abs(expected).max()  # well conditioned
        assert_near(found, expected, tolerance)


def test_error_names_the_matrix(factorize):
    with pytest.raises(InvalidArgumentError) as error:
        factorize(INDEFINITE)
    message = str(error.value)
    assert "the matrix of this test" in message
    assert "size 3 x 3" in message
    assert "smallest eigenvalue -0.5" in message
    assert "largest 4" in message
    assert "condition number about 8" in message
    assert "Try: another matrix" in message


def test_error_describes_first_failing_matrix_of_batch(factorize):
    for broken in [INDEFINITE, *map(with_entries, [np.nan, np.inf, -np.inf])]:
        batch = np.stack([positive_definite(3), broken, positive_definite(3, 1), 2.0 * INDEFINITE])
        expected = "smallest eigenvalue -0.5" if broken is INDEFINITE else "2 of its entries"
        for shape in [(4, 3, 3), (2, 2, 3, 3)]:
            with stopped(expected):
                factorize(batch.reshape(shape))


def test_singular_matrix_raises(factorize):
    """In a matrix of ones the second pivot is exactly 0."""
    for matrix in [np.zeros((3, 3)), np.ones((4, 4)), -np.eye(1)]:
        with stopped("the matrix of this test"):
            factorize(matrix)


@pytest.mark.parametrize("batch", [(), (2,), (None,)])
def test_unknown_size_compiles(batch):
    """Also if the number of matrices is known, but not their size."""
    function = tf.function(
        factorized, input_signature=[tf.TensorSpec([*batch, None, None], tf.float64)]
    )
    leading = (2,) * len(batch) + (1, 1)
    for size in (1, 5):
        matrix = np.tile(positive_definite(size), leading)
        assert_array_equal(function(matrix), tf.linalg.cholesky(matrix))
    with stopped("size 3 x 3"):
        function(np.tile(INDEFINITE, leading))
    assert function.experimental_get_tracing_count() == 1


def test_empty_matrix(factorize):
    """As in a stream before its first update."""
    for shape in [(0, 0), (2, 0, 0)]:
        assert factorize(np.zeros(shape)).shape == shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_error_reports_missing_jitter(dtype, scale):
    """The covariance of 100 close points is singular up to rounding."""
    x = np.linspace(0.0, 3.0, 100)
    matrix = (scale * np.exp(-0.5 * (x[:, None] - x) ** 2)).astype(dtype)
    with pytest.raises(InvalidArgumentError) as error:
        factorized(matrix)
    missing = float(
        re.search("it succeeds with (.*) more on the diagonal", str(error.value)).group(1)
    )
    # At most 10 times M eps, and eigenvalues are up to 100.
    assert missing < 1e3 * len(x) * scale * np.finfo(dtype).eps
    factorized(matrix + (missing * np.eye(100)).astype(dtype))


def test_name_and_advice_may_contain_braces():
    """The placeholder of tf.strings.format is {}."""
    with pytest.raises(InvalidArgumentError) as error:
        cholesky(tf.constant(INDEFINITE), name="K{u}", advice="set {} or {a}")
    assert "K{u}" in str(error.value) and "set {} or {a}" in str(error.value)


# --- growing jitter -------------------------------------------------------------------------------

SINGULAR = np.ones((3, 3))
OPTIONS = {"name": "Kuu of this test", "advice": "other points"}


def grown(matrix, jitter=1e-12, max_jitter=1e-4):
    return cholesky_with_growing_jitter(
        tf.convert_to_tensor(matrix), jitter=jitter, max_jitter=max_jitter, **OPTIONS
    )


@pytest.fixture(params=[grown, tf.function(grown)], ids=["eager", "compiled"])
def growing(request):
    return request.param


def test_no_jitter_if_positive_definite(growing, capfd):
    matrix = positive_definite(5)
    assert_array_equal(growing(matrix, jitter=1e-6), tf.linalg.cholesky(matrix))
    assert "jitter" not in capfd.readouterr().err


def test_jitter_increase_is_printed(growing, capfd):
    """An eigenvalue of -1e-7 needs a jitter of 1e-6, or at most 1e-5."""
    matrix = np.diag([1.0, 1.0, -1e-7])
    factor = growing(matrix).numpy()
    added = factor @ factor.T - matrix
    assert_allclose(added, added[0, 0] * np.eye(3), atol=4 * EPS)
    # The jitter of 1e-12 already on the diagonal is part of the new jitter of 1e-6.
    assert_near(added[0, 0], 1e-6 - 1e-12, 4 * EPS)
    message = capfd.readouterr().err
    raised = re.search(
        r"Kuu of this test was not positive definite; jitter raised from 1e-12 to (\S+)", message
    )
    assert_near(float(raised.group(1)), 1e-6, 1e-20)


def test_any_initial_jitter(growing, capfd):
    for jitter in [0.0, 1e-18, 1e-10]:
        factor = growing(SINGULAR, jitter=jitter).numpy()
        assert np.all(np.isfinite(factor))
        # No more than needed: rounding of a matrix of norm 3 requires up to 3 eps; the next step is
        # ten times that.
        assert np.abs(factor @ factor.T - SINGULAR).max() <= max(10.0 * jitter, 100 * EPS)
        assert "jitter raised" in capfd.readouterr().err


def test_exceeding_max_jitter_raises(growing):
    with stopped("Kuu of this test"):
        growing(INDEFINITE)
    with stopped("Kuu of this test"):
        growing(np.diag([1.0, -2e-4]), max_jitter=1e-4)


def test_jitter_is_at_most_max_jitter(growing):
    """-5e-5 needs more than 5e-5; from 1e-12 the next step within 1.5e-4 is 1e-4."""
    matrix = np.diag([1.0, -5e-5])
    factor = growing(matrix, max_jitter=1.5e-4).numpy()
    assert 5e-5 < (factor @ factor.T - matrix)[0, 0] <= 1.5e-4


def test_nonfinite_entries_raise_without_jitter(growing):
    with stopped("2 of its entries are not finite"):
        growing(with_entries(np.nan))


def test_jittered_factor_is_differentiable():
    """Equals the gradient of the Cholesky factor with the final jitter, which is a constant."""
    matrix = tf.constant(np.diag([1.0, 1.0, -1e-7]))
    weights = tf.constant(np.random.default_rng(0).normal(size=(3, 3)))
    found = derivative(lambda matrix: tf.reduce_sum(weights * grown(matrix)), matrix)
    jitter = (1e-6 - 1e-12) * np.eye(3)
    expected = derivative(
        lambda matrix: tf.reduce_sum(weights * tf.linalg.cholesky(matrix + jitter)), matrix
    )
    # The last pivot, 9e-7, is known to eps / 9e-7 = 2.5e-10 of itself; the derivative divides by
    # it.
    assert_allclose(found, expected, rtol=1e-8)


def test_batch_uses_one_jitter(growing):
    batch = np.stack([positive_definite(3), SINGULAR])
    factors = growing(batch).numpy()
    assert np.all(np.isfinite(factors))
    assert_allclose(factors @ np.swapaxes(factors, 1, 2), batch, atol=1e-11)


# --- finite ---------------------------------------------------------------------------------------


def checked(value):
    return finite(value, name="the thing", advice="another")


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 1)])
@either_way
def test_finite_returns_finite_values(way, shape):
    value = np.random.default_rng(0).normal(size=shape)
    assert_array_equal(way(checked)(tf.constant(value)), value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@either_way
def test_finite_raises_with_name(way, bad):
    with stopped(r"2 of the entries of .*the thing.* are not finite. Try: .*another"):
        way(checked)(double([1.0, bad, 2.0, bad]))


def test_finite_has_unit_gradient():
    assert_array_equal(derivative(checked, tf.constant([1.0, 2.0])), [1.0, 1.0])


# --- symmetric products ---------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 2)])
def test_symmetric_product(batch):
    """Sums of 7 terms: an error of 7 eps times the sum of their moduli."""
    for size in [1, 2, 3, 127, 128, 129, 255, 256, 257, 300, 383, 384]:
        rng = np.random.default_rng(size)
        left = rng.normal(size=(*batch, size, 7))
        weights = rng.uniform(0.1, 1.0, size=7)
        product = symmetric_product(tf.constant(left * weights), tf.constant(left)).numpy()
        right = np.swapaxes(left, -1, -2)
        bound = 7 * EPS * np.abs(left * weights) @ np.abs(right)
        assert np.all(np.abs(product - (left * weights) @ right) <= bound)
        assert_array_equal(product, np.swapaxes(product, -1, -2))


@pytest.mark.parametrize("size", [1, 127, 128, 300])
def test_symmetric_product_of_triangular_factors(size):
    """Zero columns left of each strip are skipped."""
    left = np.triu(np.random.default_rng(size).normal(size=(2, size, size)))
    product = symmetric_product(tf.constant(left), tf.constant(left), upper=True)
    bound = size * EPS * np.abs(left) @ np.abs(np.swapaxes(left, -1, -2))
    assert np.all(np.abs(product - left @ np.swapaxes(left, -1, -2)) <= bound)


def test_symmetric_product_of_unknown_size():
    spec = tf.TensorSpec([None, None], tf.float64)
    function = tf.function(symmetric_product, input_signature=[spec, spec])
    for size in (1, 2, 3, 131):
        left = np.random.default_rng(size).normal(size=(size, 4))
        assert_near(function(left, left), left @ left.T, 4 * EPS * 40)
    assert function.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_column_products_of_few_and_of_many_rows(batch):
    """Sums of M terms: an error of M eps times the sum of their moduli."""
    for M in (3, 300):
        left, right = np.random.default_rng(M).normal(size=(2, *batch, M, 4))
        error = np.abs(
            column_products(tf.constant(left), tf.constant(right)) - (left * right).sum(axis=-2)
        )
        assert np.all(error <= M * EPS * np.abs(left * right).sum(axis=-2))


def test_symmetric_product_without_columns_is_zero():
    empty = tf.zeros([3, 0], tf.float64)
    assert_array_equal(symmetric_product(empty, empty), np.zeros((3, 3)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_solves_and_products_with_the_inverse_agree(batch, adjoint, dtype):
    """
    Condition numbers up to 1e2: to 1e-13. In single precision solves stay, to the last bit:
    TensorFloat-32 would leave three digits of products.
    """
    factors = np.random.default_rng(0).normal(size=(*batch, 7, 14)).astype(dtype)
    L = tf.linalg.cholesky(factors @ np.swapaxes(factors, -1, -2))
    columns = np.random.default_rng(1).normal(size=(*batch, 7, 40)).astype(dtype)
    left = np.swapaxes(L.numpy(), -1, -2) if adjoint else L.numpy()
    found = []
    for products in (False, True):
        with preferring_products(products):
            found.append(triangular_solve(L, columns, adjoint=adjoint).numpy())
    assert np.array_equal(*found) == (dtype is np.float32)
    if dtype is np.float64:
        for solution in found:
            assert_allclose(left @ solution, columns, atol=1e-13)


@pytest.mark.parametrize("batch", [(), (0,), (3, 2)])
def test_inverse_of_product(batch):
    """
    Condition numbers up to 1e2: 1e-13 relative to the largest entry. Halves of sizes 1 to 3 are
    empty.
    """
    for size in [1, 2, 3, 4, 5, 130]:
        factors = np.random.default_rng(size).normal(size=(*batch, size, 2 * size))
        matrices = factors @ np.swapaxes(factors, -1, -2) / size + 0.1 * np.eye(size)
        actual = inverse_of_product(tf.linalg.cholesky(matrices)).numpy()
        expected = np.linalg.inv(matrices)
        assert actual.shape == expected.shape
        assert_near(actual, expected, 1e-13 * np.max(np.abs(expected), initial=1.0))
        assert_array_equal(actual, np.swapaxes(actual, -1, -2))


def test_gradient_of_a_replaced_diagonal_for_unknown_sizes():
    matrix = tf.constant(positive_definite(3)[None])
    diagonal = double([[1.0, 2.0, 3.0]])
    spec = tf.TensorSpec([None, None, None], tf.float64)

    @tf.function(input_signature=[spec, tf.TensorSpec([None, None], tf.float64)])
    def gradients(matrix, diagonal):
        with tf.GradientTape() as tape:
            tape.watch([matrix, diagonal])
            cubes = with_diagonal(matrix, diagonal) ** 3
        return tape.gradient(cubes, [matrix, diagonal])

    of_matrix, of_diagonal = gradients(matrix, diagonal)
    expected = 3.0 * np.square(matrix)
    expected[0][np.diag_indices(3)] = 0.0
    assert_allclose(of_matrix, expected, rtol=4 * EPS)
    assert_allclose(of_diagonal, [[3.0, 12.0, 27.0]], rtol=4 * EPS)
