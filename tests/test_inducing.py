"""Greedy selection of inducing points, against a dense evaluation of every step."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.inducing import greedy_conditional_variance

rng = np.random.default_rng(5)
X = rng.uniform(-2.0, 2.0, (40, 2))
KERNEL = gpflow.kernels.Matern32(1.3, [0.7, 1.1])


def conditional_variances(chosen):
    """Of every row, given those chosen, [n]."""
    K = KERNEL(X).numpy()
    if not chosen:
        return np.diag(K)
    Kc = K[chosen]
    return np.diag(K) - np.sum(Kc * np.linalg.solve(K[np.ix_(chosen, chosen)], Kc), axis=0)


def select(X, count, first=0, among=None, kernel=KERNEL):
    among = len(X) if among is None else among
    return greedy_conditional_variance(kernel, tf.constant(X), count, first=first, among=among).numpy().tolist()


def test_each_point_has_the_largest_variance_given_those_before():
    chosen = select(X, 12)
    assert len(set(chosen)) == 12
    for number in range(12):
        variances = conditional_variances(chosen[:number])
        assert variances[chosen[number]] == pytest.approx(variances.max(), rel=1e-9)


def test_the_first_are_taken_among_the_first_rows():
    chosen = select(X, 10, first=4, among=6)
    assert set(chosen[:4]) <= set(range(6))
    for number in range(4, 10):
        variances = conditional_variances(chosen[:number])
        assert variances[chosen[number]] == pytest.approx(variances.max(), rel=1e-9)
    # all of the first rows, where so many are asked for
    assert set(select(X, 6, first=6, among=6)) == set(range(6))


def test_copies_come_last_and_no_row_comes_twice():
    twice = np.concatenate([X[:5], X[:5]])
    assert sorted(index % 5 for index in select(twice, 5)) == [0, 1, 2, 3, 4]
    assert sorted(select(twice, 10)) == list(range(10))


def test_compiled_for_any_number_of_rows():
    compiled = tf.function(
        lambda X, count: greedy_conditional_variance(KERNEL, X, count, first=0, among=tf.shape(X)[0]),
        input_signature=[tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([], tf.int32)],
    )
    for n, count in ((40, 7), (9, 9), (20, 1)):
        assert compiled(X[:n], count).numpy().tolist() == select(X[:n], count)
