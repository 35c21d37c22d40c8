"""The demonstration, shortened: two runs, one table, one figure."""

import dataclasses
import json

import numpy as np
import pytest
from matplotlib.image import imread

from experiments import demo
from experiments.protocols import demonstrations
from experiments.report import recorded


@pytest.mark.slow
def test_short_demonstration(runs, capfd, monkeypatch):
    only(monkeypatch, "regression", 0, 3)
    demo.main(["--short", "--runs", str(runs)])
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("method"))
    body = lines[start + 2 : start + 4]
    assert [line.split("  ")[0] for line in body] == ["SGPR", "PEP α=0.5"]
    assert len({len(line) for line in [lines[start], *body]}) == 1
    assert all(np.isfinite(float(line.split()[-1])) and "5+" in line for line in body)
    assert any(
        line.startswith("diabetes, split 0: N = 398 training and 44 test points, D = 10")
        for line in lines
    )
    assert "nats per point" in printed.err  # progress
    assert (
        "tensorboard" in printed.out
        and "experiments.regression with dataset=diabetes" in printed.out
    )
    assert imread(runs / "demo-diabetes.png").shape[2] == 4
    statuses = [
        json.loads((runs / str(number) / "run.json").read_text())["status"] for number in (1, 2)
    ]
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
    assert any(
        line.startswith("breast-cancer, split 0: N = 512 training and 57 test") for line in lines
    )
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
    assert any(
        line.startswith("digits, split 0: N = 400 training and 180 test points, D = 64")
        for line in lines
    )
    assert any("experiments.classification with dataset=digits" in line for line in lines)
    assert imread(runs / "demo-digits.png").shape[0] == pytest.approx(150 * (1.2 + 2 * 0.35), abs=1)


@pytest.mark.slow
def test_short_demonstration_of_streaming(runs, capfd, monkeypatch):
    only(monkeypatch, "streaming", 1, 2)
    whole = demonstrations.DEMONSTRATIONS["streaming"]
    size = {
        "M": 10,
        "max_train": 300,
        "maxiter": 2,
        "batch_size": 100,
        "window": 150,
        "first_maxiter": 3,
    }
    small = dataclasses.replace(whole, of_sets={"jacksboro": size})
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


def test_run_that_failed_has_no_results(tmp_path):
    (tmp_path / "run.json").write_text('{"status": "FAILED"}')
    with pytest.raises(ValueError, match="status FAILED"):
        recorded.read_run(tmp_path)
