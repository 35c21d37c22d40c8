"""The command: a sweep of real runs, its table, and what it says of runs that fail and of files that cannot be used."""

import json

import pytest

from experiments import sweep
from experiments.cells import child, running
from experiments.cells.cell import Cell, Outcome
from experiments.report.sweep_table import sweep_table

PLAN = """
experiment = "regression"
datasets = ["diabetes"]
splits = [0, 1]
models = ["SGPR", "PEPR"]
alphas = [0.5]
M = [4, 70]
[options]
maxiter = 2
max_train = 60
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.slow
def test_a_sweep_of_real_runs(plan, runs, capfd, monkeypatch):
    """M = 70 is more than there are training rows."""
    monkeypatch.setattr(running, "cpu_count", lambda: 2)
    command = [str(plan), "--jobs", "2", "--runs", str(runs)]
    with pytest.raises(SystemExit, match=r"4 of 8 runs have no result(.|\n)*failed: regression with .*: ValueError: M"):
        sweep.main(command)
    printed = capfd.readouterr()
    rows = [[cell.strip() for cell in line.split("|")] for line in printed.out.splitlines() if line.startswith("| dia")]
    assert [[*row[1:5], row[9]] for row in rows] == [
        ["diabetes", "SGPR", "–", "4", "2/2"],
        ["diabetes", "SGPR", "–", "70", "0/2"],
        ["diabetes", "PEPR", "0.5", "4", "2/2"],
        ["diabetes", "PEPR", "0.5", "70", "0/2"],
    ]
    assert "±" in rows[0][6] and rows[1][6] == "–" and "8/8" in printed.err and "4 failed or killed" in printed.err
    statuses = [json.loads(path.read_text())["status"] for path in runs.glob("[0-9]*/run.json")]
    assert sorted(statuses) == ["COMPLETED"] * 4 + ["FAILED"] * 4

    plan.write_text(PLAN.replace("[4, 70]", "[4]"))
    sweep.main(command)
    again = capfd.readouterr()
    assert again.out.splitlines()[2:4] == [line for line in printed.out.splitlines() if " 2/2" in line]
    assert len(list(runs.glob("[0-9]*"))) == 8  # nothing ran


def test_the_result_is_that_of_the_experiment(runs, run_tiny):
    updates = {"dataset": "diabetes", "M": 4, "max_train": 60, "maxiter": 3, "log_interval": 2, "seed": 1}
    result = child.perform(Cell("regression", updates), runs)
    expected = run_tiny().result
    assert result["directory"] == str(runs / "1")
    # The order of floating-point sums may differ between runs (threads): allow 1e-16 to have grown a millionfold.
    assert result["rmse"] == pytest.approx(expected["rmse"], rel=1e-10)
    assert result.keys() == {*expected, "directory"}


def test_table():
    def outcome(split, alpha, rmse):
        cell = Cell("regression", {"dataset": "boston", "split": split, "model": "PEPR", "alpha": alpha, "M": 5})
        if rmse is None:
            return Outcome(cell, "killed", "why")
        return Outcome(
            cell, "completed", None, {"rmse": rmse, "nlpd": 1.0, "objective_per_point": -2.0, "seconds": 3.0}
        )

    outcomes = [outcome(0, 0.5, 0.3), outcome(1, 0.5, 0.5), outcome(0, 1.0, 0.25), outcome(1, 1.0, None)]
    assert sweep_table(outcomes).splitlines() == [
        "| data set | model |   α |   M |       evidence |          RMSE |          NLPD |   seconds | splits |",
        "| -------- | ----: | --: | --: | -------------: | ------------: | ------------: | --------: | -----: |",
        "| boston   |  PEPR | 0.5 |   5 | -2.000 ± 0.000 | 0.400 ± 0.100 | 1.000 ± 0.000 | 3.0 ± 0.0 |    2/2 |",
        "| boston   |  PEPR |   1 |   5 |         -2.000 |         0.250 |         1.000 |       3.0 |    1/2 |",
    ]


def test_refuses(plan, runs, capsys, tmp_path):
    plan.write_text(PLAN.replace("PEPR", "FITC"))
    with pytest.raises(SystemExit, match="models has 'FITC'; accepted are GPR"):
        sweep.main([str(plan), "--runs", str(runs)])
    with pytest.raises(SystemExit, match="No such file"):
        sweep.main([str(tmp_path / "other.toml"), "--runs", str(runs)])
    with pytest.raises(SystemExit, match="2"):
        sweep.main([str(plan), "--jobs", "2", "--scheduler", "tcp://127.0.0.1:1"])
    assert "--jobs is for this machine" in capsys.readouterr().err
    assert not runs.exists()
