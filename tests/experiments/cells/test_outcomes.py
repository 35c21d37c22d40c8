"""Files of outcomes: complete or not there, and of the cell that they are asked for."""

import os

import pytest
from refusals import refused

from experiments.cells.cell import Cell, Outcome
from experiments.cells.outcomes import read_outcome, write_outcome

CELL = Cell("regression", {"dataset": "boston", "alpha": 0.5})
FAILED = Outcome(CELL, "failed", "ValueError: M")
COMPLETED = Outcome(CELL, "completed", None, {"rmse": 0.1, "scale": None, "message": "σ"})


def test_the_last_record_written_is_read(tmp_path):
    assert read_outcome(tmp_path, CELL) is None
    for outcome in (FAILED, COMPLETED):
        write_outcome(tmp_path, outcome)
        assert read_outcome(tmp_path, CELL) == outcome
    assert len(list((tmp_path / "cells").iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [
        Cell("classification", CELL.updates),
        Cell("regression", {**CELL.updates, "alpha": 0.6}),
        Cell("regression", {**CELL.updates, "M": 3}),
    ],
)
def test_another_cell_has_another_file(tmp_path, other):
    write_outcome(tmp_path, COMPLETED)
    assert read_outcome(tmp_path, other) is None
    assert (
        read_outcome(tmp_path, Cell("regression", dict(reversed(CELL.updates.items()))))
        == COMPLETED
    )


def test_a_write_that_is_killed_leaves_the_earlier_file(tmp_path, monkeypatch):
    write_outcome(tmp_path, FAILED)

    def killed(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_outcome(tmp_path, COMPLETED)
    assert read_outcome(tmp_path, CELL) == FAILED


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"status": "completed"}',
        '{"cell": {"name": 1}}',
        '{"cell": {"experiment": "regression", "updates": []}, "status": "completed"}',
        '{"cell": {"experiment": "regression"}, "status": "completed", "result": "text"}',
        '{"cell": {"experiment": "regression"}, "status": "completed", "result": [1]}',
        '{"cell": {"experiment": "regression"}, "status": "completed", "result": {"directory": 1}}',
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, text):
    write_outcome(tmp_path, FAILED)
    (path,) = (tmp_path / "cells").iterdir()
    path.write_text(text)
    with refused(rf"{path} is not the outcome of a run .*: delete it"):
        read_outcome(tmp_path, CELL)
    other = Cell("classification")
    write_outcome(tmp_path, Outcome(other, "failed", "no reason"))
    ((tmp_path / "cells") / f"{other.key}.json").rename(path)
    with refused(r"of classification.*, not of regression with dataset=boston alpha=0\.5"):
        read_outcome(tmp_path, CELL)


def test_a_run_without_its_folder_is_named(tmp_path):
    write_outcome(tmp_path, Outcome(CELL, "completed", None, {"directory": str(tmp_path / "1")}))
    with refused(r"json .*the folder of its run, .*1, is missing.: delete it"):
        read_outcome(tmp_path, CELL)
    (tmp_path / "1").mkdir()
    assert read_outcome(tmp_path, CELL).status == "completed"
