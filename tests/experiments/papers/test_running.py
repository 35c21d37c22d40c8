"""The command of the protocols: runs, skipped runs, repeated runs and refusals."""

import os
import shlex
import sys
from types import SimpleNamespace

import acting
import pytest
from refusals import refused

from experiments import papers
from experiments.cells import processes
from experiments.papers import PROTOCOLS, next, running
from experiments.papers.__main__ import main
from experiments.papers.grid import Record, grid
from experiments.papers.running import selected
from experiments.papers.stored import store, stored_results
from experiments.papers.tables import Table
from experiments.recording.experiment import RecordedExperiment


@pytest.fixture
def protocol(monkeypatch, runs):
    """
    A protocol of cells that act, without TensorFlow; the second one is killed when it first runs.
    """

    def jobs(full):
        acts = {"a": "return", "b": "die once", "c": "return"}
        names = {
            name: {"name": name, "act": act} for name, act in acts.items() if full or name != "c"
        }
        return grid("none", {}, name=names)

    def show(records):
        yield Table("Names", [("name",), *((record["name"],) for record in records)])

    monkeypatch.setattr(processes, "perform", acting.perform)
    monkeypatch.setitem(PROTOCOLS, "X1", "a test")
    module = SimpleNamespace(__doc__="Text.", jobs=jobs, show=show)
    monkeypatch.setitem(sys.modules, "experiments.papers.x1", module)
    monkeypatch.setattr(papers, "x1", module, raising=False)
    experiment = RecordedExperiment("none", [])
    experiment.add_config(name="", act="", note="", M=1)
    monkeypatch.setitem(sys.modules, "experiments.none", SimpleNamespace(ex=experiment))
    monkeypatch.setattr(next, "RESULTS", runs.parent / "results")
    monkeypatch.setattr(running, "RESULTS", runs.parent / "results")
    monkeypatch.setattr(next, "PARTS", [("X1", {"name": ["c"]}), ("X1", {})])
    monkeypatch.setattr(os, "nice", lambda increment: None)
    return module


def command(text, runs):
    main([*shlex.split(text), "--runs", str(runs)])


def begun(runs):
    return "".join((runs.parent / "begun").read_text().split())


def names(runs, folder="X1"):
    return (runs / "papers" / folder / "00-names.csv").read_text().split()[1:]


def test_a_killed_run_is_run_again_and_completed_runs_are_not(protocol, runs):
    with pytest.raises(
        SystemExit, match=r"1 of 2 runs have no result(.|\n)*killed: none with .*name=b"
    ):
        command("X1", runs)
    assert names(runs) == ["a"] and begun(runs) == "ab"
    command("X1 --stored", runs)
    assert names(runs) == ["a"] and begun(runs) == "ab"
    command("X1", runs)
    assert names(runs) == ["a", "b"] and begun(runs) == "abb"
    command(f"X1 --full --to {runs / 'papers'}", runs)
    assert names(runs, "X1-full") == ["a", "b", "c"] and begun(runs) == "abbc"
    assert (
        runs / "papers" / "X1" / "title.txt"
    ).read_text() == "X1: a test\n\nText.\n\npython -m experiments.papers X1\n"


def test_values_and_settings_are_chosen(protocol, runs, capsys):
    command("X1 --full --only name=a,c --with act=return 'note=two words'", runs)
    text = (runs / "papers" / "X1" / "title.txt").read_text()
    assert text.endswith("X1 --full --only name=a,c --with act=return 'note=two words'\n")
    assert begun(runs) == "ac" and "| a    |\n| c    |" in capsys.readouterr().out


@pytest.mark.parametrize("options", ["name=a,c", "name=a name=c", "name=a --only name=c"])
def test_all_values_of_an_axis_are_taken(protocol, runs, options):
    command(f"X1 --full --only {options} --with act=return", runs)
    assert begun(runs) == "ac"


def test_runs_without_an_axis_stay():
    sparse = grid("none", {}, split=(0, 1), M=(5, 20))
    chosen = selected(sparse + grid("none", {}, split=(0, 1)), {"M": [20], "split": [1]}, {})
    assert [job.labels for job in chosen] == [{"split": 1, "M": 20}, {"split": 1}]


def test_axes_are_listed_without_runs(protocol, runs, capsys):
    command("X1 --only axes=list", runs)
    assert capsys.readouterr().out == "The axes of X1: name=a,b\n" and not runs.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--only name=d", "--only: name is 'd'; accepted are a, b"),
        ("--only alpha=0.5", "there is no axis 'alpha'; the axes are name=a,b"),
        (
            "--stored",
            "has no run of X1. Start some: python -m experiments.papers X1\nThe axes of X1: "
            "name=a,b",
        ),
        ("--with M=1,2", "--with accepts one value for each entry, got several for M"),
        ("--with M=1 M=2", "--with accepts one value for each entry, got several for M"),
        (
            "--with nota=1",
            "the experiment none has no setting 'nota'; its settings are M, act, name, note",
        ),
        ("--only name", "2"),
        ("--jobs 1000", "jobs must take no more than"),
    ],
)
def test_refuses(protocol, runs, options, message):
    with pytest.raises(SystemExit, match=message):
        command(f"X1 {options}", runs)
    assert not runs.exists()


def test_what_is_stored_is_not_run_again_on_another_machine(protocol, runs):
    with pytest.raises(SystemExit, match=r"1 of 3 runs have no result(.|\n)*killed: none with"):
        command("next", runs)
    results = runs.parent / "results" / "X1"
    headings, *lines = (results / "runs.csv").read_text().splitlines()
    assert headings == "name,key,process,threads" and [line[:2] for line in lines] == ["c,", "a,"]
    # A part whose runs are all stored has its tables.
    assert begun(runs) == "cab" and (results / "00-names.csv").read_text().split() == ["name", "c"]
    other = runs.parent / "other machine" / "runs"
    other.parent.mkdir()
    with pytest.raises(SystemExit, match="1 of 3 runs have no result"):
        command("next", other)
    command("next", other)
    assert begun(other) == "bb"
    assert (results / "00-names.csv").read_text().split() == ["name", "a", "b", "c"]
    third = runs.parent / "third machine"
    command("X1 --full", third)
    assert names(third, "X1-full") == ["a", "b", "c"] and not (third / "cells").exists()


def test_no_run_starts_after_the_last_hour(protocol, runs):
    command("next --hours 1e-9", runs)
    assert not (runs.parent / "begun").exists()


RUNS = 'name,key,rmse\na,k1,0.25\nb,k2,"[1, 2]"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a table of runs .*: delete it"),
        ("name,rmse\na,1\n", "is not a table of runs .*: delete it"),
        ("\0", "is not a table of runs .*: delete it"),
        (RUNS + "c,k3\n", "the line of the run k3 is damaged .*: delete the line"),
        (RUNS + "c,k3,1,2\n", "the run k3 is damaged .it has more cells.*: delete the line"),
        (RUNS + "c,k3,[1\n", "the line of the run k3 is damaged .*: delete the line"),
        (RUNS + f"c,k3,{'[' * 10**5}\n", "the line of the run k3 is damaged .*: delete the line"),
    ],
)
def test_damaged_results_are_named(protocol, runs, text, message):
    path = runs.parent / "results" / "X1" / "runs.csv"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for name in ("X1", "next"):
        with pytest.raises(SystemExit, match=rf"runs\.csv.*{message}"):
            command(name, runs)
    assert not (runs.parent / "begun").exists()


def test_results_are_stored_to_six_digits(tmp_path):
    values = {"a": 1 / 3, "b": [2 / 3, None], "c": True, "text": "left out", "n": 12345678}
    store(tmp_path, [Record({"split": 0}, values, "k1")])
    assert stored_results(tmp_path) == {
        "k1": {"a": 0.333333, "b": [0.666667, None], "c": True, "n": 12345678}
    }
    store(
        tmp_path,
        [Record({"M": 5}, {"a": float("nan")}, "k2"), Record({"split": 0}, {"d": 1}, "k1")],
    )
    text = "split,M,key,a,b,c,n,d\n0,,k1,,,,,1\n,5,k2,NaN,,,,\n"
    assert (tmp_path / "runs.csv").read_text() == text


def test_a_record_without_a_score_is_named():
    with refused(r"record k1 of the run .* has no rmse: delete"):
        Record({"split": 0}, {}, "k1")["rmse"]
