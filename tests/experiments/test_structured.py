"""Structured approximations: the exact GP, minibatches of SVGP and its kin, and the tables of the protocols."""

import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.image import imread
from quick import some_slow

from experiments import datasets, structured
from experiments.ingredients.exact import ExactGPR
from experiments.ingredients.model import _block_labels, title
from experiments.ingredients.training import minibatches
from experiments.recording.experiment import run_directory
from experiments.recording.scores import objective
from experiments.regression import ex
from experiments.report.published import STRUCTURED_KIN40K
from experiments.report.structured_tables import beside_published, scales
from gpflow_pep import BTSGPR, BTSVGP, TSVGP

TINY = ["--sets", "diabetes", "--max-train", "60", "--M", "4", "--maxiter", "2"]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(55, 2))
    return X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(55, 1))


# --- models ---------------------------------------------------------------------------------------------------------


def test_exact_gp_is_that_of_gpflow(rows):
    values = []
    for constructor in (ExactGPR, gpflow.models.GPR):
        model = constructor(rows, gpflow.kernels.Matern52(1.3, lengthscales=[0.7, 2.0]), noise_variance=0.05)
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        gradients = tape.gradient(loss, model.trainable_variables)
        values.append(np.concatenate([np.ravel(loss), *(np.ravel(gradient) for gradient in gradients)]))
    # The covariance has a conditioning of about 55 × 1.3/0.05, 1e3: 1e-16 grows to less than 1e-12.
    np.testing.assert_allclose(*values, rtol=1e-11)


@pytest.mark.slow
def test_objective_of_all_rows_by_blocks(rows):
    Z = rows[0][:5].copy()
    model = BTSVGP(gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1), Z, num_data=55)
    blocks = minibatches(model, 55, 20, seed=3).blocks
    assert sorted(map(len, blocks)) == [18, 18, 19]
    collapsed = BTSGPR(rows, gpflow.kernels.SquaredExponential(), Z, noise_variance=0.1, blocks=blocks)
    q_mu, q_cov = collapsed.compute_qu()
    L = np.linalg.cholesky(gpflow.covariances.Kuu(model.inducing_variable, model.kernel, jitter=1e-6))
    model.q_mu.assign(np.linalg.solve(L, q_mu))
    white = np.linalg.solve(L, np.linalg.solve(L, q_cov).T)
    model.q_sqrt.assign(np.linalg.cholesky(white)[None])
    # At the optimal q(u) the bound is the collapsed one; Kuu, with a conditioning below 1e4, is solved with twice.
    assert objective(model, rows, blocks) == pytest.approx(
        float(collapsed.maximum_log_likelihood_objective()), rel=1e-7
    )


def test_blocks_of_neighbors_and_in_order():
    X = np.arange(10.0)[::-1, None]
    labels = [_block_labels(X, 5, blocks) for blocks in ("order", "neighbors")]
    np.testing.assert_array_equal(labels, [[0] * 5 + [1] * 5, [1] * 5 + [0] * 5])
    config = {"model": "BTSGPR", "alpha": 0.5, "block_size": 5, "blocks": "order"}
    assert title(config) == "BT-SGPR, blocks of 5 in order"


def test_minibatches_are_fixed_where_they_are_blocks(rows):
    arguments = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), rows[0][:5].copy()
    assert minibatches(TSVGP(*arguments), 55, 20, 0).blocks is None
    assert minibatches(gpflow.models.SVGP(*arguments), 55, 20, 0).blocks is None
    assert len(minibatches(BTSVGP(*arguments), 55, 100, 0).blocks) == 1  # all rows, where they are fewer


@pytest.mark.slow
def test_tighter_bounds_are_ordered(runs):
    """At equal parameters, as they are before training: SVGP ≤ T-SVGP ≤ BT-SVGP. Blocks stay what they are."""
    bounds = []
    for model in ("SVGP", "TSVGP", "BTSVGP"):
        updates = {"dataset": "diabetes", "model": model, "M": 4, "maxiter": 20, "batch_size": 200, "progress": False}
        options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
        run = ex.run(config_updates=updates | {"log_interval": 20, "seed": 0}, options=options)
        metrics = json.loads((run_directory(run) / "metrics.json").read_text())["objective_per_point"]
        before, after = metrics["values"]
        assert metrics["steps"] == [0, 20] and after > before and after == run.result["objective_per_point"]
        bounds.append(before)
    assert bounds[0] < bounds[1] < bounds[2]


# --- protocols ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "options", "repeats", "methods"),
    some_slow(
        [
            ("S2", ["--methods", "T-SGPR"], 2, ["T-SGPR"]),
            ("S1", ["--methods", "exact GP", "BT-SGPR, 10 blocks"], 1, ["exact GP", "BT-SGPR, 10 blocks"]),
            ("S3", ["--methods", "BT-SVGP"], 1, ["BT-SVGP"]),
            ("S4", ["--alphas", "0.5"], 1, ["0.5"]),
        ],
        1,
    ),
)
def test_command(protocol, options, repeats, methods, runs, in_this_process, capsys):
    structured.main([protocol, *TINY, *options, "--repeats", str(repeats), "--runs", str(runs)])
    printed = capsys.readouterr().out
    heading = f"{protocol}: diabetes, 60 training rows, M = 4, repeats: {repeats}"
    lines = printed[printed.index(heading) :].splitlines()[4:]  # of the table
    assert [line for line, method in zip(lines, methods, strict=False) if not line.startswith(f"{method} ")] == []
    assert ("±" in lines[0]) == (repeats > 1) and "minutes" in printed
    configs = [json.loads(path.read_text()) for path in sorted(runs.glob("[0-9]*/config.json"))]
    assert len(configs) == (1 if protocol == "S3" else 2)
    assert {config["seed"] for config in configs} == set(range(repeats))
    for config in configs:
        assert config["seed"] == config["data"]["split"] and config["data"]["max_train"] == 60
        if config["gp"]["model"] == "BTSGPR":
            assert config["gp"]["block_size"] == 6
        if protocol == "S3":
            assert config["training"]["learning_rate"] == 0.005 and config["training"]["maxiter"] == 2
    figure = runs / "structured-S1-diabetes-4.png"
    assert imread(figure).shape[1] == 1950 if protocol == "S1" else not figure.exists()


@pytest.mark.parametrize("protocol", ["S1", "S2", "S3", "S4"])
def test_protocols_name_sets_and_settings(protocol):
    found = structured._PROTOCOLS[protocol]
    assert protocol in ex.named_configs
    for name in {*found.usual.sets, *found.full.sets}:
        info = datasets.describe(name)
        assert info.task == "regression" and info.num_splits >= found.full.repeats


def result(objective, rmse, nlpd, noise_sd, **others):
    scores = {"objective_per_point": objective, "rmse": rmse, "nlpd": nlpd, "noise_sd": noise_sd}
    return {**scores, "seconds": 3.0, "iterations": 5, "converged": True, **others}


def test_beside_published():
    assert tuple(STRUCTURED_KIN40K) == tuple(structured._PROTOCOLS["S2"].methods)
    table = beside_published({"SGPR": [result(-0.44, 0.25, 0.10, 0.29), result(-0.45, 0.27, 0.12, 0.30)]}, 5)
    cells = "SGPR 0.445 ± 0.005 0.883 0.260 ± 0.010 0.256 -0.110 ± 0.010 -0.136 0.295 ± 0.005 0.299 1.98 3 5 0/2 0/2"
    assert " ".join(table.splitlines()[2].split()) == cells
    assert table.endswith("within 0.02 of the published except SGPR: LL +0.026.")
    assert beside_published({"SGPR": [result(-0.44, 0.26, 0.13, 0.29)]}, 5).endswith("of the published.")


def test_scales():
    results = {
        "PEP 0.5": [result(-0.4, 0.25, 0.1, 0.3, scale=1.0), result(-0.4, 0.35, 0.1, 0.3, scale=1.0)],
        "T-PEP 0.5": [result(-0.3, 0.20, 0.2, 0.3, scale=0.4), result(-0.3, 0.30, 0.2, 0.3, scale=0.6)],
    }
    cells = (
        "0.5 0.300 ± 0.050 0.250 ± 0.050 -0.050 ± 0.000 -0.100 ± 0.000 -0.200 ± 0.000 -0.100 ± 0.000 0.500 ± 0.100 3"
    )
    assert " ".join(scales(results).splitlines()[2].split()) == cells


def test_command_refuses(runs, capsys):
    with pytest.raises(SystemExit, match="2"):
        structured.main(["S5"])
    with pytest.raises(SystemExit, match="2"):
        structured.main(["S2", "--methods", "FITC", "--runs", str(runs)])
    assert "--methods: no FITC among exact GP, SGPR" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        structured.main(["S1", "--alphas", "0.5", "--runs", str(runs)])
    assert "--alphas is for S4 only." in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        structured.main(["S2", *TINY, "--M", "61", "--runs", str(runs)])
    assert "--M is 61, but there are only 60 training rows." in capsys.readouterr().err
    with pytest.raises(SystemExit, match="dataset 'iris' is for multiclass"):
        structured.main(["S4", "--sets", "iris", "--runs", str(runs)])
    assert not runs.exists()
