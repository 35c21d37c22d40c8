"""
Choosing inducing points: the greedy choice against a dense evaluation of every step, copies, seeds,
errors.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from configuration import configured
from gpflow.kernels import (
    Linear,
    Matern12,
    Matern32,
    Matern52,
    SharedIndependent,
    SquaredExponential,
    Static,
)
from numpy.testing import assert_allclose, assert_array_equal
from own_kernels import ExpandedSquare
from refusals import refused, stopped
from threadpoolctl import threadpool_limits

from gpflow_pep.inducing import (
    greedy_conditional_variance,
    greedy_variance,
    k_means,
    neighbor_blocks,
    uniform,
)
from gpflow_pep.inducing.greedy_variance import greedy_choice

rng = np.random.default_rng(5)
X = rng.uniform(-2.0, 2.0, (40, 2))
KERNEL = Matern32(1.3, [0.7, 1.1])
METHODS = {
    "uniform": uniform,
    "k-means": k_means,
    "greedy": lambda X, M, **options: greedy_variance(KERNEL, X, M, **options),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


def conditional_variances(points, X=X, kernel=KERNEL):
    """Of every row, given the points, [n]."""
    variances = kernel(X, full_cov=False).numpy()
    if not len(points):
        return variances
    Kuf = kernel(points, X)
    return variances - np.sum(Kuf * np.linalg.solve(kernel(points), Kuf), axis=0)


def select(X, count, first, among, kernel=KERNEL):
    return list(
        greedy_conditional_variance(kernel, tf.constant(X), count, first=first, among=among).numpy()
    )


def rows_of(Z, X=X):
    """Which row of X each point is, an error where it is none."""
    same = (Z[:, None] == X).all(axis=2)  # [M, N]
    assert same.any(axis=1).all()
    return same.argmax(axis=1)


def assert_largest(chosen, X=X, kernel=KERNEL, rel=1e-9, first=0):
    """
    That each row, from the `first` one on, has the largest variance given those before it.

    The variances left are above 1e-2 and Kuu's condition number below 1e4, so both evaluations are
    right to 1e-10.
    """
    for number, row in enumerate(chosen[first:], first):
        variances = conditional_variances(X[chosen[:number]], X, kernel)
        assert_allclose(variances[row], variances.max(), rtol=rel)


def test_the_first_are_taken_among_the_first_rows():
    chosen = select(X, 10, first=4, among=6)
    assert set(chosen[:4]) <= set(range(6))
    assert_largest(chosen, first=4)
    # all of the first rows, where so many are asked for
    assert set(select(X, 6, first=6, among=6)) == set(range(6))


def test_compiled_for_any_number_of_rows():
    compiled = tf.function(
        lambda X, count: greedy_conditional_variance(
            KERNEL, X, count, first=0, among=tf.shape(X)[0]
        ),
        input_signature=[tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([], tf.int32)],
    )
    for n, count in ((40, 7), (9, 9), (20, 1), (18, 18)):
        chosen = compiled(X[:n], count).numpy()
        assert len(set(chosen)) == count
        assert_largest(chosen, X[:n])


@pytest.mark.parametrize(
    ("kernel", "M"),
    [
        # Not stationary: the largest variance is not in the first row.
        (
            Linear([1.0, 2.0]) + Matern12(lengthscales=[0.5, 0.4]),
            33,
        ),
        (KERNEL, 40),
        (Matern12(0.4, lengthscales=1.0, active_dims=[1]), 1),
    ],
    ids=["sum", "all rows", "active_dims"],
)
def test_greedy_is_a_dense_evaluation(kernel, M):
    Z = greedy_variance(kernel, X, M)
    chosen = rows_of(Z)
    assert Z.shape == (M, 2) and len(set(chosen)) == M
    assert_largest(chosen, kernel=kernel, rel=1e-8)
    assert chosen[0] == np.argmax(kernel(X, full_cov=False))  # the first one wins


def test_a_single_row_is_chosen():
    X = np.array([[1.0, 2.0]])
    assert_array_equal(greedy_variance(SquaredExponential(), X, 1), X)


def test_variances_of_the_choice_are_pivots_of_a_dense_decomposition():
    given = X[[3, 8]]
    Z, variances = greedy_choice(KERNEL, X, 12, given=given)
    assert_array_equal(Z, greedy_variance(KERNEL, X, 12, given=given))
    pivots = np.diag(np.linalg.cholesky(KERNEL(Z))) ** 2
    assert_allclose(variances, pivots, rtol=1e-8)


def test_chunks_change_nothing():
    Z = greedy_variance(KERNEL, X, 20)
    assert_array_equal(greedy_variance(KERNEL, X, 20, chunk_size=1), Z)
    assert_array_equal(greedy_variance(KERNEL, X, 6, chunk_size=7), Z[:6])


def test_points_that_are_given():
    """
    They come first, and the others are the choice given these; rows that equal one are not chosen
    again.
    """
    Z = greedy_variance(KERNEL, X, 12)
    assert_array_equal(greedy_variance(KERNEL, X, 12, given=Z[:5]), Z)
    given = np.array([[0.3, -0.2], [1.4, 0.1]])  # no rows of X
    found = greedy_variance(KERNEL, X, 6, given=given)
    assert_array_equal(found[:2], given)
    for count in range(2, 6):
        left = conditional_variances(found[:count])
        assert_allclose(left[rows_of(found[[count]])], left.max(), rtol=1e-8)
    assert len(greedy_variance(KERNEL, X[:2], 4, given=given)) == 4  # all that there are


@pytest.mark.parametrize("seed", [0, 1])
def test_given_points_that_explain_each_other(seed):
    """
    Nothing is left of most of 25 points within 1.25 lengthscales; each further point has the
    largest variance.

    The reference has extended precision. The variances of the first three points are above 3e-9,
    and rounding in double precision, 2e-16 times squared weights of up to 1e5 of the given points,
    is below a hundredth of that.
    """
    local = np.random.default_rng(seed)
    kernel = SquaredExponential()
    given = local.uniform(0.0, 1.25, (25, 1))
    rows = local.uniform(1.25, 2.5, (25, 1))
    found = greedy_variance(kernel, rows, 50, given=given)
    assert_array_equal(found[:25], given)
    assert_array_equal(np.sort(found[25:], axis=0), np.sort(rows, axis=0))
    left = kernel(np.concatenate([given, found[25:]])).numpy().astype(np.longdouble)
    for _ in range(25):
        pivot = np.diag(left)[:25].argmax()
        if left[pivot, pivot] >= 1e-12:
            left = left - np.outer(left[pivot], left[pivot]) / left[pivot, pivot]
    for number in range(25, 28):
        assert_allclose(left[number, number], np.diag(left)[25:].max(), rtol=1e-2)
        left = left - np.outer(left[number], left[number]) / left[number, number]


@pytest.mark.parametrize(
    ("M", "given", "message"),
    [
        (2, np.zeros((2, 2)), "given must have fewer than M = 2 points, got 2"),
        (5, np.zeros((2, 3)), "given must have as many columns as X, 2, got 3"),
        (5, np.zeros(2), r"given must have shape \[rows, D\]"),
        (
            45,
            X[:4],
            "M must be at most the number of distinct rows of X and given points, 40, got 45",
        ),
    ],
)
def test_given_points_are_checked(M, given, message):
    with refused(message):
        greedy_variance(KERNEL, X, M, given=given)


@every_method
def test_same_again(method):
    Z = method(X, 9)
    assert isinstance(Z, np.ndarray) and Z.shape == (9, 2) and Z.dtype == np.float64
    assert_array_equal(method(tf.constant(X), 9), Z)
    Z[:] = 0.0
    assert X.all()  # not a view


@pytest.mark.parametrize("method", [uniform, k_means])
def test_seeds(method):
    assert_array_equal(method(X, 9, seed=3), method(X, 9, seed=3))
    assert not np.array_equal(method(X, 9, seed=3), method(X, 9, seed=4))
    with refused("seed must be a whole number from 0 to"):
        method(X, 3, seed=-1)


def test_uniform_gives_every_row_the_same_chance():
    counts = np.zeros(10)
    for seed in range(2000):
        Z = uniform(np.arange(10.0)[:, None], 4, seed=seed)
        assert len(np.unique(Z)) == 4
        counts[Z[:, 0].astype(int)] += 1
    # Mean 800, standard deviation (2000 × 0.4 × 0.6)^0.5 = 22: within five of them.
    assert np.abs(counts - 800).max() < 110


def test_k_means_are_those_of_separated_clusters():
    where = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    spread = 0.1 * np.random.default_rng(0).normal(size=(3, 20, 2))
    Z = k_means((where[:, None] + spread).reshape(-1, 2), 3)
    expected = where + spread.mean(axis=1)
    assert_allclose(Z[np.lexsort(Z.T)], expected[np.lexsort(expected.T)], atol=1e-12)


def test_as_many_k_means_as_rows():
    """Are the rows, in their order."""
    X = np.random.default_rng(0).normal(size=(7, 2))
    assert_array_equal(k_means(X, 7), X)


def test_k_means_do_not_depend_on_the_number_of_threads(monkeypatch):
    # Otherwise scikit-learn takes no more than there are cores.
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    many = np.random.default_rng(0).normal(size=(4000, 8))
    found = []
    for threads in (1, 4, 4):
        with threadpool_limits(threads):
            found.append(k_means(many, 60).tobytes())
    assert len(set(found)) == 1


def copies(num_distinct, N):
    """N rows of which so many are distinct, most of them copies of the first."""
    chosen = np.random.default_rng(0).geometric(0.5, N) - 1
    chosen[:num_distinct] = np.arange(num_distinct)
    return X[np.random.default_rng(0).permutation(np.minimum(chosen, num_distinct - 1))]


@every_method
@pytest.mark.parametrize("M", [11, 12])
def test_copies_are_passed_over(method, M):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = method(copies(12, 200), M)
    assert len(np.unique(Z, axis=0)) == M
    if M == 12:
        # A mean of at most 200 copies, of numbers up to 2, is right to 200 × 2 × 1e-16.
        assert_allclose(Z[np.lexsort(Z.T)], X[:12][np.lexsort(X[:12].T)], atol=1e-13)


def test_greedy_passes_over_copies_where_nothing_is_left_of_any_row():
    smooth = SquaredExponential(lengthscales=100.0)
    assert len(np.unique(greedy_variance(smooth, copies(12, 200), 12), axis=0)) == 12


@every_method
def test_more_points_than_distinct_rows_are_rejected(method):
    with refused("M must be at most the number of distinct rows of X, 12, got 13"):
        method(copies(12, 200), 13)
    with refused("distinct rows of X, 2, got 3"):
        method(np.array([[0.0, 0.0], [-0.0, 0.0], [1.0, 0.0]]), 3)


def test_minibatches_of_copies():
    """
    Rare rows are in no minibatch that k-means starts from: centers without rows are moved to them.
    """
    rare = np.zeros((21_000, 2))
    rare[100::1000] = np.arange(42.0).reshape(21, 2) + 1.0
    assert len(np.unique(k_means(rare, 20).round(6), axis=0)) == 20
    assert len(np.unique(k_means(rare, 22).round(6), axis=0)) == 22


@every_method
@pytest.mark.parametrize(
    ("X", "M", "message"),
    [
        (X, 0, "M must be a whole number from 1 to 2147483647, got 0"),
        (
            np.where(X[7] == X, np.nan, X),
            3,
            "X must be finite in float64, got 2 values .* the first in row 7",
        ),
    ],
)
def test_bad_rows_are_refused(method, X, M, message):
    with refused(message):
        method(X, M)


def test_bad_kernels_are_refused():
    several = SharedIndependent(SquaredExponential(), output_dim=2)
    with refused(r"kernel must be a gpflow\.kernels\.Kernel of one output, got SharedIndep"):
        greedy_variance(several, X, 3)
    with refused(r"kernel must be .*, got ndarray"):
        greedy_variance(X, X, 3)
    with refused("chunk_size must be a whole number of at least 1, got 0"):
        greedy_variance(KERNEL, X, 3, chunk_size=0)


class Broken(Static):
    """A covariance that is not a number, of finite variances."""

    def K(self, X, X2=None):
        return tf.fill(
            [tf.shape(X)[0], tf.shape(X if X2 is None else X2)[0]], np.nan * self.variance
        )


def test_kernels_that_give_nan_are_refused():
    with refused("kernel must give finite variances and covariances"):
        greedy_variance(Broken(), X, 3)


@every_method
def test_float32(method):
    with configured(float=np.float32):
        kernel = Matern32(1.3, [0.7, 1.1])
        greedy = method not in (uniform, k_means)
        Z = greedy_variance(kernel, X, 12) if greedy else method(X, 12)
    assert Z.dtype == np.float32
    if greedy:
        # 1e-7 times a condition number of 1e4.
        assert_largest(rows_of(Z, X.astype(np.float32)), rel=1e-3)


def test_kept_copies_take_nothing_from_the_others_in_float32():
    """
    With too small a floor for the remaining variance of a copy, its rounding error grows from copy
    to copy.
    """
    rows = np.concatenate([np.tile(X[:5], (10, 1)), X[5:]]).astype(np.float32)
    with configured(float=np.float32):
        chosen = select(rows, 56, first=50, among=50, kernel=Matern32(1.3, [0.7, 1.1]))
    assert set(chosen[:50]) == set(range(50))
    seen = list(range(5))
    for row in chosen[50:]:
        variances = conditional_variances(X[seen])
        assert_allclose(variances[row - 45], variances.max(), rtol=1e-3)
        seen.append(row - 45)


def test_greedy_variance_far_from_the_origin():
    """A shift by whole seconds changes no difference of inputs, so the choice is the same."""
    X = np.round(np.random.default_rng(5).uniform(0.0, 3600.0, (200, 1)))
    for kernel in (Matern52(1.3, 60.0), Matern12(lengthscales=60.0)):
        far = greedy_variance(kernel, X + 2.0**30, 20)
        assert_array_equal(far - 2.0**30, greedy_variance(kernel, X, 20))


def test_greedy_variance_refuses_covariances_that_contradict_each_other():
    class Indefinite(SquaredExponential):
        """No covariance function: covariances of distant rows are larger than variances."""

        def K_r2(self, r2):
            return self.variance * (1.0 + r2)

    X = np.linspace(0.0, 3600.0, 200)[:, None]
    kernel = ExpandedSquare(1.3, 600.0)
    assert greedy_variance(kernel, X, 50).shape == (50, 1)
    message = "^kernel must be positive definite: .* subtract the mean of X"
    with stopped(message):
        greedy_variance(kernel, X + 1e10, 50)
    message = "^kernel must be positive definite: .* Check K of a kernel of your own"
    with stopped(message):
        greedy_variance(Indefinite(), X, 50)


# --- blocks of rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 500])
def test_blocks_are_of_nearly_equal_size(size):
    X = np.random.RandomState(0).normal(size=(103, 2))
    sizes = np.bincount(neighbor_blocks(X, size))
    assert len(sizes) == -(-len(X) // size) and sizes.sum() == len(X)
    assert sizes.max() <= size and sizes.max() - sizes.min() <= 1


def test_blocks_on_a_line_are_intervals():
    x = np.random.RandomState(1).permutation(60.0 * np.arange(60))[:, None]
    assert np.array_equal(neighbor_blocks(x, 20), x.ravel() // 1200)


def test_blocks_of_no_rows_are_refused():
    with refused("size must be"):
        neighbor_blocks(X, 0)
