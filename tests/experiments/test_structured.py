"""Structured approximations: the exact GP, and minibatches of SVGP and its kin."""

import gpflow
import numpy as np
import pytest
from model_values import loss_and_gradient

from experiments.ingredients.exact import ExactGPR
from experiments.ingredients.model import _block_labels, title
from experiments.ingredients.training import batches_of
from gpflow_pep import BTSVGP, TSVGP


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(55, 2))
    return X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(55, 1))


def test_exact_gp_is_that_of_gpflow(rows):
    values = []
    for constructor in (ExactGPR, gpflow.models.GPR):
        model = constructor(
            rows, gpflow.kernels.Matern52(1.3, lengthscales=[0.7, 2.0]), noise_variance=0.05
        )
        loss, gradients = loss_and_gradient(model)
        values.append(
            np.concatenate([np.ravel(loss), *(np.ravel(gradient) for gradient in gradients)])
        )
    # The covariance has a conditioning of about 55 × 1.3/0.05, 1e3: 1e-16 grows to less than 1e-12.
    np.testing.assert_allclose(*values, rtol=1e-11)


def test_blocks_of_neighbors_and_in_order():
    X = np.arange(10.0)[::-1, None]
    labels = [_block_labels(X, 5, blocks, seed=0) for blocks in ("order", "neighbors")]
    np.testing.assert_array_equal(labels, [[0] * 5 + [1] * 5, [1] * 5 + [0] * 5])
    config = {"model": "BTSGPR", "alpha": 0.5, "block_size": 5, "blocks": "order"}
    assert title(config) == "BT-SGPR, blocks of 5 in order"


def test_minibatches_are_fixed_where_they_are_blocks(rows):
    arguments = (
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(),
        rows[0][:5],
    )
    assert batches_of(TSVGP(*arguments), 55, 20, 0).blocks is None
    assert batches_of(gpflow.models.SVGP(*arguments), 55, 20, 0).blocks is None
    # All rows, where they are fewer.
    assert len(batches_of(BTSVGP(*arguments), 55, 100, 0).blocks) == 1
