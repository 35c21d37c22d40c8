"""Active learning: how rows are divided, which of them are asked about, and the command."""

import numpy as np
import pytest
from matplotlib.image import imread

from experiments import active_learning, datasets
from experiments.labeling import divided, entropy, ex

SMALL = ["--set", "iris", "--initial", "10", "--num-test", "100", "--additions", "6", "--per-round", "3", "--M", "5"]


def test_rows_are_divided_and_standardized_without_the_test_rows():
    data, rows, pool = divided("iris", 3, initial=20, num_test=60, additions=30)
    assert (len(data.X_test), len(rows), len(pool)) == (60, 20, 70)
    np.testing.assert_array_equal(np.concatenate([rows, pool]), np.arange(90))
    # Columns are below 10 in units of their deviation before centering: rounding of the mean stays under 10 eps.
    np.testing.assert_allclose(data.X_train.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(data.X_train.std(axis=0), 1.0, rtol=1e-14)
    whole = datasets.load("iris", standardize=False)
    X = np.vstack([data.X_train, data.X_test]) * data.x_scale + data.x_mean
    published = np.vstack([whole.X_train, whole.X_test])
    np.testing.assert_allclose(np.sort(X, axis=0), np.sort(published, axis=0), rtol=1e-14)


def test_entropy():
    np.testing.assert_allclose(entropy(np.array([[0.5], [1.0], [0.25]])), [np.log(2.0), 0.0, 0.562335], atol=1e-6)
    np.testing.assert_allclose(entropy(np.array([[0.25, 0.25, 0.5], [0.0, 1.0, 0.0]])), [1.039721, 0.0], atol=1e-6)


@pytest.mark.slow
def test_rows_are_asked_about(runs):
    options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
    updates = {"dataset": "breast-cancer", "initial": 10, "num_test": 400, "additions": 5, "per_round": 3, "seed": 0}
    result = ex.run(config_updates=updates | {"model": "SVGP", "M": 4, "maxiter": 2}, options=options).result
    assert result["labels"] == [10, 13, 15]
    assert all(len(result[name]) == 3 and np.isfinite(result[name]).all() for name in ("error", "nlpd", "seconds"))


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"rule": "variance"}, "rule is 'variance'; accepted are entropy, random"),
        ({"per_round": 200}, "per_round is 200; whole numbers from 1 to additions, 100, are accepted"),
        ({"dataset": "iris"}, "initial is 100, additions 100, num_test 500; .* at most 150"),
        ({"dataset": "diabetes"}, "dataset 'diabetes' is for regression"),
    ],
)
def test_bad_configuration_names_the_entry(runs, updates, message):
    with pytest.raises(ValueError, match=message):
        ex.run(config_updates=updates, options={"--file_storage": str(runs), "--loglevel": "ERROR"})


def test_command(monkeypatch, capsys, runs):
    asked = []

    def canned(cells, runs, jobs):
        for cell in cells:
            asked.append(tuple(cell.updates[name] for name in ("model", "rule", "repetition")))
            assert (cell.experiment, cell.updates["initial"], cell.updates["per_round"]) == ("labeling", 10, 3)
            scores = {"error": [0.3, 0.2, 0.1 * asked[-1][2]], "nlpd": [0.9, 0.6, 0.3]}
            yield {"labels": [10, 13, 16], "seconds": [2.0, 2.0, 2.0]} | scores

    monkeypatch.setattr(active_learning, "completed", canned)
    runs.mkdir()
    active_learning.main([*SMALL, "--methods", "APEP", "--repetitions", "2", "--runs", str(runs)])
    assert asked == [("APEP", rule, repetition) for rule in ("entropy", "random") for repetition in range(2)]
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    cells = "APEP entropy 0.30 ± 0.00 0.18 ± 0.02 0.05 ± 0.05 0.90 ± 0.00 0.60 ± 0.00 0.30 ± 0.00 2"
    assert cells in lines and cells.replace("entropy", "random") in lines
    assert imread(runs / "active-learning-iris.png").shape[1] == 1500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "iris"], "initial is 100"),
        (["--set", "irises"], "name is 'irises'; accepted are"),
        (["--set", "diabetes"], "dataset 'diabetes' is for regression"),
        ([*SMALL, "--per-round", "7"], "2"),
        ([*SMALL, "--repetitions", "0"], "2"),
        ([*SMALL, "--M", "11"], "2"),
    ],
)
def test_command_refuses(runs, arguments, message):
    with pytest.raises(SystemExit, match=message):
        active_learning.main([*arguments, "--runs", str(runs)])
    assert not runs.exists()
