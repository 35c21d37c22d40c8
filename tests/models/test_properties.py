"""Invariances, inequalities and changes under compiled functions, drawn by hypothesis.

Where rows are only added up in another order the results differ by rounding: N = 24 terms, the
condition numbers of Kuu (below 1e3) and of B (below 1e2), unit rounding 1.1e-16, hence 1e-10 of the
largest: ``SAME``.
"""

from itertools import pairwise

import gpflow
import numpy as np
import pytest
from gpflow.kernels import Matern52
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpflow_pep import BTSGPR, PEPR, TSGPR

SAME = 1e-10
N = 24

seeds = st.integers(0, 10_000)


def _labels(seed, number):
    """Blocks of very different sizes, scattered over the rows."""
    rng = np.random.default_rng(seed)
    return rng.choice(number, size=N, p=rng.dirichlet(np.ones(number)))


labels = st.builds(_labels, seeds, st.integers(3, 5))


def few(number):
    """
    Always the same examples. Shrinking one that fails takes minutes and, of data drawn by a seed,
    says little.
    """
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
    )


def _parts(Z):
    return {
        "kernel": Matern52(1.3, lengthscales=[0.8, 1.1]),
        "likelihood": gpflow.likelihoods.Gaussian(0.15),
        "mean_function": gpflow.functions.Linear([[0.3], [-0.2]], [0.1]),
        "inducing_variable": gpflow.inducing_variables.InducingPoints(Z),
    }


def _objective(model):
    return model.maximum_log_likelihood_objective().numpy()


# --- invariances ----------------------------------------------------------------------------------


@pytest.mark.slow
@given(seeds, st.permutations(range(6)))
@few(2)
def test_shared_block_with_alpha_per_row_is_invariant_to_row_order(
    problem, assert_same, seed, order_of_blocks
):
    """
    Rows may move with their alpha; blocks that share a matrix may move, and their rows all alike.
    """
    X, Y, Z, _ = problem(P=2, seed=seed)
    rng = np.random.default_rng(seed)
    order, alphas, parts = rng.permutation(N), rng.uniform(size=N), _parts(Z)
    one = PEPR((X, Y), alpha=alphas, **parts)
    assert_same(PEPR((X[order], Y[order]), alpha=alphas[order], **parts), one, SAME)
    blocks = order.reshape(6, 4)
    shared = BTSGPR((X, Y), blocks=list(blocks), shared=True, **parts)
    blocks = blocks[order_of_blocks]
    assert_same(BTSGPR((X, Y), blocks=list(blocks), shared=True, **parts), shared, SAME)
    within = rng.permutation(4)  # the same for all blocks
    assert_same(BTSGPR((X, Y), blocks=list(blocks[:, within]), shared=True, **parts), shared, SAME)


# --- inequalities ---------------------------------------------------------------------------------


def _assert_ascending(values):
    """Up to rounding, if neighbors are equal (blocks of one row, for example)."""
    assert all(b > a - SAME * abs(a) for a, b in pairwise(values)), values


@given(seeds, labels, st.lists(st.integers(0, 2), min_size=5, max_size=5).map(np.array))
@few(2)
def test_bounds_are_ordered(problem, seed, labels, union):
    """Coarser blocks (unions of blocks) are never looser (Fischer's inequality)."""
    X, Y, Z, _ = problem(P=2, seed=seed)
    parts = _parts(Z)
    models = [
        PEPR((X, Y), alpha=0.0, **parts),
        PEPR((X, Y), alpha=0.0, scale="optimal", **parts),
        TSGPR((X, Y), **parts),
        BTSGPR((X, Y), blocks=labels, **parts),
        BTSGPR((X, Y), blocks=union[labels], **parts),
        BTSGPR((X, Y), blocks=N, **parts),
        gpflow.models.GPR(
            (X, Y), **{name: part for name, part in parts.items() if name != "inducing_variable"}
        ),
    ]
    _assert_ascending([*(_objective(model) for model in models), models[0].upper_bound().numpy()])
