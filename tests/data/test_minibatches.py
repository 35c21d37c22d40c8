"""
Minibatches: every row once an epoch, the same for a seed, with the properties that training needs.
"""

import gpflow
import numpy as np
import pytest
from comparisons import assert_all_equal
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow
from refusals import refused

from gpflow_pep import BTSVGP, TSVGP
from gpflow_pep.data.minibatches import Minibatches


@pytest.mark.parametrize(("num_data", "size"), [(12, 4), (13, 5), (7, 7), (5, 1)])
def test_every_row_comes_up_once_an_epoch(num_data, size):
    minibatches = Minibatches(num_data, size, seed=3)
    rows = np.concatenate([minibatches.rows(step) for step in range(3 * num_data)])
    assert all(len(minibatches.rows(step)) == size for step in range(5))
    epochs = rows.reshape(-1, num_data)
    assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(num_data), (3 * size, 1)))
    if num_data > 5:
        assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.parametrize(
    ("num_data", "size", "sizes"), [(12, 4, [4, 4, 4]), (13, 5, [5, 4, 4]), (7, 7, [7])]
)
def test_fixed_blocks_are_a_partition(num_data, size, sizes):
    minibatches = Minibatches(num_data, size, fixed=True)
    assert [len(block) for block in minibatches.blocks] == sizes
    assert_array_equal(np.sort(np.concatenate(minibatches.blocks)), np.arange(num_data))
    for epoch in range(3):
        seen = [minibatches.rows(epoch * len(sizes) + step) for step in range(len(sizes))]
        expected = {tuple(block) for block in minibatches.blocks}
        assert {tuple(block) for block in seen} == expected


@pytest.mark.parametrize("fixed", [False, True])
def test_the_same_seed_gives_the_same_rows_in_any_order_of_asking(fixed):
    first, second, other = (Minibatches(50, 8, fixed=fixed, seed=seed) for seed in (1, 1, 2))
    for step in (9, 0, 30, 4):
        assert_array_equal(first.rows(step), second.rows(step))
    assert any(not np.array_equal(first.rows(step), other.rows(step)) for step in range(3))


@partly_slow(("kind", "fixed"), [(TSVGP, False), (BTSVGP, True)], quick=[(BTSVGP, True)])
def test_a_dataset_resumes_at_a_given_step(kind, fixed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(21, 2))
    Y = rng.normal(size=(21, 1))
    minibatches = Minibatches(21, 6, fixed=fixed)
    whole = iter(minibatches.dataset((X, Y)))
    rest = iter(minibatches.dataset((X, Y), first=2))
    batches = [next(whole) for _ in range(4)]
    for batch, step in zip(batches, range(4), strict=True):
        for part, values in zip(batch, (X, Y), strict=True):
            assert_array_equal(part, values[minibatches.rows(step)])
    assert_all_equal(next(rest), batches[2])
    model = kind(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(),
        X[:5],
        num_data=21,
    )
    closure = model.training_loss_closure(iter(minibatches.dataset((X, Y))))
    for batch in batches:
        assert_allclose(closure(), model.training_loss(batch), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "num_data"),
        ((10, 0), "size must be"),
        ((10, 11), "size must be at most num_data, 10, got 11"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with refused(message):
        Minibatches(*arguments)


def test_another_number_of_rows_is_refused():
    with refused("num_data rows, 10, got 4"):
        Minibatches(10, 2).dataset((np.zeros((4, 1)), np.zeros((4, 1))))
