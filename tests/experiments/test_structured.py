"""Structured approximations: the exact GP, and minibatches of SVGP and its kin."""

import gpflow
import numpy as np
from comparisons import assert_all_close
from model_values import loss_and_gradient

from experiments.ingredients.exact import ExactGPR
from experiments.ingredients.model import _block_labels, title
from experiments.ingredients.training import batches_of
from gpflow_pep import BTSVGP, TSVGP

X = np.random.default_rng(0).normal(size=(55, 2))
Y = np.sin(X[:, :1])


def test_exact_gp_is_that_of_gpflow():
    (loss, gradients), (expected, wanted) = (
        loss_and_gradient(
            constructor((X, Y), gpflow.kernels.Matern52(1.3, [0.7, 2.0]), noise_variance=0.05)
        )
        for constructor in (ExactGPR, gpflow.models.GPR)
    )
    # The covariance has a conditioning of about 55 × 1.3/0.05, 1e3: 1e-16 grows to less than 1e-12.
    assert_all_close([loss, *gradients], [expected, *wanted], rtol=1e-11)


def test_blocks_of_neighbors_and_in_order():
    X = np.arange(10.0)[::-1, None]
    labels = [_block_labels(X, 5, blocks, seed=0) for blocks in ("order", "neighbors")]
    np.testing.assert_array_equal(labels, [[0] * 5 + [1] * 5, [1] * 5 + [0] * 5])
    config = {"model": "BTSGPR", "alpha": 0.5, "block_size": 5, "blocks": "order"}
    assert title(config) == "BT-SGPR, blocks of 5 in order"


def test_minibatches_are_fixed_where_they_are_blocks():
    arguments = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), X[:5]
    assert batches_of(TSVGP(*arguments), 55, 20, 0).blocks is None
    assert batches_of(gpflow.models.SVGP(*arguments), 55, 20, 0).blocks is None
    # All rows, where they are fewer.
    assert len(batches_of(BTSVGP(*arguments), 55, 100, 0).blocks) == 1
