"""
The command: a sweep of real runs, its table, and its messages about failed runs and unusable files.
"""

import json

import pytest
from recorded_runs import TINY
from refusals import refused

from experiments import sweep
from experiments.cells import processes, running
from experiments.cells.cell import Cell

PLAN = """
experiment = "regression"
dataset = ["diabetes"]
split = [0, 1]
model = ["SGPR", "PEPR"]
alpha = [0.5]
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


def test_a_sweep_of_real_runs(plan, runs, capfd, monkeypatch):
    """M = 70 is more than there are training rows."""
    monkeypatch.setattr(running, "cpu_count", lambda: 2)
    command = [str(plan), "--jobs", "2", "--runs", str(runs)]
    with pytest.raises(
        SystemExit,
        match=r"4 of 8 runs have no result(.|\n)*failed: regression with .*: ValueError: M",
    ):
        sweep.main(command)
    printed = capfd.readouterr()
    rows = [
        [cell.strip() for cell in line.split("|")]
        for line in printed.out.splitlines()
        if line.startswith("| dia")
    ]
    assert [[*row[1:5], row[9]] for row in rows] == [
        ["diabetes", "SGPR", "–", "4", "2"],
        ["diabetes", "PEPR", "0.5", "4", "2"],
    ]
    assert "±" in rows[0][6] and "8/8" in printed.err and "4 failed or killed" in printed.err
    statuses = [json.loads(path.read_text())["status"] for path in runs.glob("[0-9]*/run.json")]
    assert sorted(statuses) == ["COMPLETED"] * 4 + ["FAILED"] * 4

    plan.write_text(PLAN.replace("[4, 70]", "[4]"))
    sweep.main(command)
    assert capfd.readouterr().out.splitlines() == printed.out.splitlines()
    assert len(list(runs.glob("[0-9]*"))) == 8  # nothing ran


def test_the_result_is_that_of_the_experiment(runs, run_experiment):
    result = processes.perform(Cell("regression", TINY), runs)
    expected = run_experiment("regression").result
    assert result["directory"] == str(runs / "1")
    # The order of floating-point sums may differ between runs (threads): allow 1e-16 to have grown
    # a millionfold.
    assert result["rmse"] == pytest.approx(expected["rmse"], rel=1e-10)
    assert result.keys() == {*expected, "directory"}


def jobs_of(plan, text):
    plan.write_text(text)
    return sweep.read_plan(plan)


def test_models_without_alpha_or_inducing_points_run_once(plan):
    jobs = jobs_of(
        plan,
        PLAN.replace('["SGPR", "PEPR"]', '["GPR", "SGPR", "PEPR"]').replace("[0.5]", "[0.0, 0.5]"),
    )
    assert [
        sum(job.labels["model"] == name for job in jobs) for name in ("GPR", "SGPR", "PEPR")
    ] == [2, 4, 8]
    assert all(job.cell.updates["maxiter"] == 2 and job.cell.updates["seed"] == 0 for job in jobs)
    assert "alpha" not in jobs[0].cell.updates and "M" not in jobs[0].cell.updates


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "split = [0, 1]",
            "",
            "has the keys .*; accepted are experiment, dataset, model, alpha, M, split and options",
        ),
        (
            '"regression"',
            '"streaming"',
            "experiment is 'streaming'; accepted are regression, classification",
        ),
        ("[4, 70]", "4", "M is 4; a list of at least one value is accepted"),
        ("maxiter", "maxitre", "options has 'maxitre'"),
        ("maxiter", "alpha", "options has 'alpha'"),
        ("[options]", "[options", "is not TOML"),
    ],
)
def test_a_bad_plan_is_refused(plan, old, new, message):
    with refused(message):
        jobs_of(plan, PLAN.replace(old, new))


def test_refuses(plan, runs, capsys, tmp_path):
    with pytest.raises(SystemExit, match="No such file"):
        sweep.main([str(tmp_path / "other.toml"), "--runs", str(runs)])
    with pytest.raises(SystemExit, match="2"):
        sweep.main([str(plan), "--jobs", "2", "--scheduler", "tcp://127.0.0.1:1"])
    assert "--jobs is for this machine" in capsys.readouterr().err
    assert not runs.exists()
