"""Structured approximations: the exact GP, and minibatches of SVGP and its kin."""

import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from experiments.ingredients.exact import ExactGPR
from experiments.ingredients.model import _block_labels, title
from experiments.ingredients.training import minibatches
from experiments.recording.experiment import run_directory
from experiments.recording.scores import objective_per_point
from experiments.regression import ex
from gpflow_pep import BTSGPR, BTSVGP, TSVGP


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
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        gradients = tape.gradient(loss, model.trainable_variables)
        values.append(
            np.concatenate([np.ravel(loss), *(np.ravel(gradient) for gradient in gradients)])
        )
    # The covariance has a conditioning of about 55 × 1.3/0.05, 1e3: 1e-16 grows to less than 1e-12.
    np.testing.assert_allclose(*values, rtol=1e-11)


@pytest.mark.slow
def test_objective_of_all_rows_by_blocks(rows):
    Z = rows[0][:5].copy()
    model = BTSVGP(
        gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1), Z, num_data=55
    )
    batches = minibatches(model, 55, 20, seed=3)
    blocks = batches.blocks
    assert sorted(map(len, blocks)) == [18, 18, 19]
    collapsed = BTSGPR(
        rows, gpflow.kernels.SquaredExponential(), Z, noise_variance=0.1, blocks=blocks
    )
    q_mu, q_cov = collapsed.compute_qu()
    L = np.linalg.cholesky(
        gpflow.covariances.Kuu(model.inducing_variable, model.kernel, jitter=1e-6)
    )
    model.q_mu.assign(np.linalg.solve(L, q_mu))
    white = np.linalg.solve(L, np.linalg.solve(L, q_cov).T)
    model.q_sqrt.assign(np.linalg.cholesky(white)[None])
    # At the optimal q(u) the bound is the collapsed one; Kuu, with a conditioning below 1e4, is solved with twice.
    expected = float(collapsed.maximum_log_likelihood_objective()) / 55
    assert objective_per_point(model, rows, batches) == pytest.approx(expected, rel=1e-7)


def test_blocks_of_neighbors_and_in_order():
    X = np.arange(10.0)[::-1, None]
    labels = [_block_labels(X, 5, blocks) for blocks in ("order", "neighbors")]
    np.testing.assert_array_equal(labels, [[0] * 5 + [1] * 5, [1] * 5 + [0] * 5])
    config = {"model": "BTSGPR", "alpha": 0.5, "block_size": 5, "blocks": "order"}
    assert title(config) == "BT-SGPR, blocks of 5 in order"


def test_minibatches_are_fixed_where_they_are_blocks(rows):
    arguments = (
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(),
        rows[0][:5].copy(),
    )
    assert minibatches(TSVGP(*arguments), 55, 20, 0).blocks is None
    assert minibatches(gpflow.models.SVGP(*arguments), 55, 20, 0).blocks is None
    # All rows, where they are fewer.
    assert len(minibatches(BTSVGP(*arguments), 55, 100, 0).blocks) == 1


@pytest.mark.slow
def test_tighter_bounds_are_ordered(runs):
    """At equal parameters, as they are before training: SVGP ≤ T-SVGP ≤ BT-SVGP. Blocks stay what they are."""
    bounds = []
    for model in ("SVGP", "TSVGP", "BTSVGP"):
        updates = {
            "dataset": "diabetes",
            "model": model,
            "M": 4,
            "maxiter": 20,
            "batch_size": 200,
            "progress": False,
        }
        options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
        run = ex.run(config_updates=updates | {"log_interval": 20, "seed": 0}, options=options)
        metrics = json.loads((run_directory(run) / "metrics.json").read_text())[
            "objective_per_point"
        ]
        before, after = metrics["values"]
        assert (
            metrics["steps"] == [0, 20]
            and after > before
            and after == run.result["objective_per_point"]
        )
        bounds.append(before)
    assert bounds[0] < bounds[1] < bounds[2]
