"""The demonstration, shortened: two runs, one table, one figure."""

import dataclasses
import json

import numpy as np
import pytest
from matplotlib.image import imread

from experiments import demo
from experiments.datasets import Dataset
from experiments.protocols import demonstrations
from experiments.report import figure, recorded, table


def test_short_demonstration(runs, capfd, monkeypatch):
    only(monkeypatch, "regression", 0, 3)
    demo.main(["--short", "--runs", str(runs)])
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("method"))
    body = lines[start + 2 : start + 4]
    assert [line.split("  ")[0] for line in body] == ["SGPR", "PEP α=0.5"]
    assert len({len(line) for line in [lines[start], *body]}) == 1
    assert all(np.isfinite(float(line.split()[-1])) for line in body)
    assert any(line.startswith("diabetes, split 0: N = 398 training and 44 test points, D = 10") for line in lines)
    assert "nats per point" in printed.err  # progress
    assert "tensorboard" in printed.out and "experiments.regression with dataset=diabetes" in printed.out
    assert imread(runs / "demo-diabetes.png").shape[2] == 4
    statuses = [json.loads((runs / str(number) / "run.json").read_text())["status"] for number in (1, 2)]
    assert statuses == ["COMPLETED"] * 2


def only(monkeypatch, task, *numbers):
    """Some of the methods of a demonstration; each is compiled anew, which takes most of its time."""
    whole = demonstrations.DEMONSTRATIONS[task]
    some = dataclasses.replace(whole, methods=tuple(whole.methods[number] for number in numbers))
    monkeypatch.setitem(demonstrations.DEMONSTRATIONS, task, some)


@pytest.mark.slow
def test_short_demonstration_of_classification(runs, capfd, monkeypatch):
    only(monkeypatch, "classification", 0, 4)
    demo.main(["--task", "classification", "--short", "--runs", str(runs)])
    lines = capfd.readouterr().out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("method"))
    body = lines[start + 2 : start + 4]
    assert [line.split("  ")[0] for line in body] == ["SVGP", "QP α=1"]
    assert ["≥" in line for line in body] == [True, False]
    assert len({len(line) for line in [lines[start], *body]}) == 1
    assert any(line.startswith("breast-cancer, split 0: N = 512 training and 57 test") for line in lines)
    assert any("experiments.classification with dataset=breast-cancer" in line for line in lines)
    assert imread(runs / "demo-breast-cancer.png").shape[2] == 4


@pytest.mark.slow
def test_short_demonstration_of_several_classes(runs, capfd, monkeypatch):
    only(monkeypatch, "multiclass", 0, 1)
    demo.main(["--task", "multiclass", "--short", "--runs", str(runs)])
    lines = capfd.readouterr().out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("method"))
    body = lines[start + 2 : start + 4]
    assert [line.split("  ")[0] for line in body] == ["SVGP", "PEP α=0.5"]
    assert ["≥" in line for line in body] == [True, False]
    assert any(line.startswith("digits, split 0: N = 400 training and 180 test points, D = 64") for line in lines)
    assert any("experiments.classification with dataset=digits" in line for line in lines)
    # The scores, then a row of confusion matrices.
    assert imread(runs / "demo-digits.png").shape[0] == pytest.approx(150 * (0.5 + 1.3 + 2 * 0.32 + 3.4), abs=1)


@pytest.mark.slow
def test_short_demonstration_of_streaming(runs, capfd, monkeypatch):
    only(monkeypatch, "streaming", 1, 2)
    whole = demonstrations.DEMONSTRATIONS["streaming"]
    sizes = {"jacksboro": demonstrations.Size(M=10, max_train=300, maxiter=2)}
    settings = whole.settings | {"batch_size": 100, "window": 150, "first_maxiter": 3}
    small = dataclasses.replace(whole, sizes=sizes, settings=settings)
    monkeypatch.setitem(demonstrations.DEMONSTRATIONS, "streaming", small)
    demo.main(["--task", "streaming", "--short", "--runs", str(runs)])
    lines = capfd.readouterr().out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("method"))
    body = lines[start + 2 : start + 4]
    assert ["PEP" in line or "α=0.5" in line for line in body] == [True, False]
    assert len({len(line) for line in [lines[start], *body]}) == 1
    assert any(line.startswith("jacksboro") for line in lines)
    assert any("experiments.streaming with dataset=jacksboro" in line for line in lines)
    assert imread(runs / "demo-jacksboro.png").shape[2] == 4


def test_data_set_of_another_task_ends_the_demonstration(runs):
    with pytest.raises(SystemExit, match="dataset 'breast-cancer' is for classification"):
        demo.main(["--dataset", "breast-cancer", "--runs", str(runs)])
    with pytest.raises(SystemExit, match="dataset 'diabetes' is for regression"):
        demo.main(["--task", "classification", "--dataset", "diabetes", "--runs", str(runs)])
    assert not runs.exists()


def test_unknown_data_set_ends_the_demonstration_with_advice(runs):
    with pytest.raises(SystemExit, match="Did you mean 'diabetes'"):
        demo.main(["--dataset", "diabets", "--runs", str(runs)])
    assert not runs.exists()


@pytest.fixture
def line():
    """A set with a single input, so that fits are drawn, in units of its own."""
    x = np.linspace(-1.0, 1.0, 20)[:, None]
    one = np.ones(1)
    return Dataset("line", x, x, x[:3], x[:3], x_mean=2.0 * one, x_scale=3.0 * one, y_mean=4.0 * one, y_scale=5.0 * one)


@pytest.fixture
def fits():
    x = np.linspace(-1.1, 1.1, 10)[:, None]
    arrays = {"Z": x[:2], "x": x, "x_mean": x, "x_variance": np.full_like(x, 0.25)}
    config = {"data": {"dataset": "line", "split": 0, "standardize": True}, "gp": {"M": 2}}
    result = {
        "objective_per_point": -1.25, "rmse": 0.5, "nlpd": 1.0, "noise_sd": 0.1, "N": 20, "N_test": 3, "D": 1,
        "iterations": 7, "seconds": 0.25, "objective_kind": "lower bound", "converged": False,
    }  # fmt: skip
    approximate = result | {"objective_kind": "approximate log evidence", "converged": True}
    return [
        recorded.RecordedRun("first", config, result, arrays),
        recorded.RecordedRun("second, longer", config, approximate, arrays),
    ]


def test_figure_of_a_single_input_is_taller_by_the_fits(line, fits, tmp_path):
    figure.draw(fits, line, tmp_path / "figure.png")
    height, width, _ = imread(tmp_path / "figure.png").shape
    assert width == 1650 and height == pytest.approx(150 * (0.5 + 1.3 + 2 * 0.32 + 2.3), abs=1)


def test_table_tells_bounds_from_approximations(fits):
    assert table.table(fits).splitlines() == [
        "method          log evidence    RMSE    NLPD  noise s.d.  iterations  seconds",
        "-----------------------------------------------------------------------------",
        "first              ≥ -1.2500  0.5000  1.0000      0.1000          7+      0.2",
        "second, longer     ≈ -1.2500  0.5000  1.0000      0.1000          7       0.2",
    ]


def test_run_that_failed_has_no_results(tmp_path):
    (tmp_path / "run.json").write_text('{"status": "FAILED"}')
    with pytest.raises(ValueError, match="status FAILED"):
        recorded.read_run(tmp_path)
