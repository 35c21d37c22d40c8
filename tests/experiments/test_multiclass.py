"""Experiments with more than two classes: runs, confusion matrices, and the table beside the published figures."""

import numpy as np
import pytest

from experiments import datasets, multiclass
from experiments.cells.child import perform
from experiments.classification import ex
from experiments.ingredients.classifier import _likelihood
from experiments.recording.predictions import FILE
from experiments.recording.scores import most_probable
from experiments.report import recorded
from experiments.report.confusion import confusion
from experiments.report.published import MULTICLASS

SETS = ("glass", "new-thyroid", "satellite", "svmguide2", "vehicle", "vowel", "waveform", "wine")


@pytest.mark.slow
def test_a_split_is_trained_scored_and_recorded(runs):
    result = perform(multiclass._cell("iris", 0, "PEP", 0.5, 5, maxiter=2), runs)
    # Guessing errs on two rows of three, with log 3 nats.
    assert result["error"] < 0.5 and result["nlpd"] < np.log(3.0)
    assert result["log_likelihood"] == pytest.approx(-15 * result["nlpd"], rel=1e-12)
    assert np.isfinite(result["loo_nlpd"]) and result["sites_change"] >= 0.0
    assert (result["N"], result["N_test"], result["D"]) == (135, 15, 4)

    run = recorded.read_run(runs / "1")
    Z, Z_start, probability = (run.predictions[name] for name in ("Z", "Z_start", "probability"))
    assert Z.shape == Z_start.shape == (3, 5, 4) and (Z_start != Z).any(axis=(1, 2)).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-9)  # each has a relative error below 1e-10
    assert np.mean(most_probable(probability) != datasets.load("iris").Y_test[:, 0]) == result["error"]
    assert "x1" not in run.predictions and (runs / "1" / FILE).is_file()


@pytest.mark.slow
def test_shared_kernel_and_inducing_points(runs):
    options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
    run = ex.run(
        config_updates={"dataset": "iris", "M": 4, "model": "APEP", "separate": False, "maxiter": 15}, options=options
    )
    assert run.result["error"] < 0.5 and run.result["nlpd"] < np.log(3.0)
    assert run.result["loo_nlpd"] is None and run.result["sites_change"] is None
    assert recorded.read_run(runs / "1").predictions["Z"].shape == (4, 4)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"likelihood": "probit"}, "likelihood is 'probit'; accepted are robust-max for 3 classes"),
        ({"model": "QP"}, "projection"),
        ({"dataset": "breast-cancer", "likelihood": "robust-max"}, "accepted are probit, logit for 2 classes"),
        ({"epsilon": 1.0}, "epsilon"),
    ],
)
def test_bad_configuration_names_the_entry(runs, updates, message):
    options = {"--file_storage": str(runs), "--loglevel": "ERROR"}
    with pytest.raises(ValueError, match=message):
        ex.run(config_updates={"dataset": "iris", "M": 4} | updates, options=options)


@pytest.mark.parametrize("train_epsilon", [True, False])
def test_epsilon(train_epsilon):
    likelihood = _likelihood(None, 3, 0.01, train_epsilon)
    assert likelihood.num_classes == 3 and likelihood.epsilon.trainable == train_epsilon
    assert float(likelihood.epsilon.numpy()) == pytest.approx(0.01, rel=1e-12)


def test_most_probable_label():
    np.testing.assert_array_equal(most_probable(np.array([[0.2], [0.7]])), [0, 1])
    np.testing.assert_array_equal(most_probable(np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])), [1, 2])


def test_confusion_has_the_true_class_along_its_rows():
    probability = np.eye(3)[[0, 1, 1, 2, 0]]  # [5, 3]
    counts = confusion(probability, np.array([[0.0], [1.0], [1.0], [1.0], [2.0]]))
    np.testing.assert_array_equal(counts, [[1, 0, 0], [0, 2, 1], [1, 0, 0]])


def test_published_figures():
    assert tuple(MULTICLASS) == SETS
    assert all(set(of_set) == {0.0, 0.5, 1.0} for of_set in MULTICLASS.values())
    assert MULTICLASS["wine"][1.0] == (0.05, 0.49)


def score(error, nlpd):
    return {"error": error, "nlpd": nlpd}


def test_ties_share_their_rank():
    rows = [[[score(0.1, 0.3), score(0.1, 0.2)]], [[score(0.0, 0.2)] * 2]]
    lines = multiclass._average_ranks(rows, ["PEP"], [0.0, 1.0], axis=2).splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["PEP", "0", "1.50", "±", "0.00", "1.75", "±", "0.25"],
        ["PEP", "1", "1.50", "±", "0.00", "1.25", "±", "0.25"],
    ]


def test_ranks_of_alphas_and_of_methods():
    rows = [[[score(0.1, 0.1), score(0.2, 0.2)], [score(0.4, 0.4), score(0.3, 0.3)]]]  # the second method is worse
    of_alphas, of_methods = (
        [line.split()[:3] for line in multiclass._average_ranks(rows, ["PEP", "APEP"], [0.0, 1.0], axis).splitlines()]
        for axis in (2, 1)
    )
    assert of_alphas[2:] == [["PEP", "0", "1.00"], ["PEP", "1", "2.00"], ["APEP", "0", "2.00"], ["APEP", "1", "1.00"]]
    assert of_methods[2:] == [["PEP", "0", "1.00"], ["APEP", "0", "2.00"], ["PEP", "1", "1.00"], ["APEP", "1", "2.00"]]


def test_table(monkeypatch, capsys):
    asked = []

    def canned(cells, runs, jobs):
        for cell in cells:
            names = ("dataset", "split", "model", "alpha", "M")
            asked.append(tuple(cell.updates[name] for name in names))
            assert cell.updates["maxiter"] == 5 and cell.settings == "M1"
            _, split, _, alpha, _ = asked[-1]
            yield {
                "error": 0.1 + 0.1 * split, "nlpd": 0.5 - 0.1 * alpha, "seconds": 3.0, "converged": split == 0,
                "iterations": 5 if split == 1 else 4, "sites_change": 1e-3 if alpha else 1e-7,
            }  # fmt: skip

    monkeypatch.setattr(multiclass, "completed", canned)
    multiclass.main(["--sets", "iris", "--splits", "3", "--alphas", "0", "1", "--maxiter", "5", "--method", "APEP"])
    assert asked == [("iris", split, "APEP", alpha, 7) for alpha in (0.0, 1.0) for split in range(3)]  # 135 rows
    lines = capsys.readouterr().out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("set "))
    cells = "iris APEP {} 7 0.20 ± 0.06 – {} ± 0.00 – 3 1/3 1/3 {}/3"
    assert [" ".join(line.split()) for line in lines[start + 2 : start + 4]] == [
        cells.format(0, "0.50", 0),
        cells.format(1, "0.40", 3),
    ]
    ranks = [line.split() for line in lines[-2:]]
    assert [rank[5] for rank in ranks] == ["2.00", "1.00"]  # by NLPD


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sets", "diabetes"], "dataset 'diabetes' is for regression .* accepted for multiclass are glass"),
        (["--sets", "iris", "--splits", "21"], "split is 20"),
    ],
)
def test_table_refuses(runs, arguments, message):
    with pytest.raises(SystemExit, match=message):
        multiclass.main([*arguments, "--runs", str(runs)])
    assert not runs.exists()
