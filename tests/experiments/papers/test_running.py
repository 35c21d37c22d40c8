"""The command of the protocols: what runs, what is skipped, what is run again, and what is refused."""

import sys
from types import SimpleNamespace

import acting
import pytest

from experiments import papers
from experiments.cells import processes
from experiments.papers import PROTOCOLS
from experiments.papers.__main__ import main
from experiments.papers.grid import grid
from experiments.papers.running import selected
from experiments.papers.tables import Table


@pytest.fixture
def protocol(monkeypatch):
    """A protocol of cells that act, without TensorFlow; the second one is killed when it first runs."""

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
    return module


def begun(runs):
    return "".join((runs.parent / "begun").read_text().split())


def names(runs, folder="X1"):
    return (runs / "papers" / folder / "00-names.csv").read_text().split()[1:]


def test_a_killed_run_is_run_again_and_completed_runs_are_not(protocol, runs):
    with pytest.raises(
        SystemExit, match=r"1 of 2 runs have no result(.|\n)*killed: none with .*name=b"
    ):
        main(["X1", "--runs", str(runs)])
    assert names(runs) == ["a"] and begun(runs) == "ab"
    main(["X1", "--stored", "--runs", str(runs)])
    assert names(runs) == ["a"] and begun(runs) == "ab"
    main(["X1", "--runs", str(runs)])
    assert names(runs) == ["a", "b"] and begun(runs) == "abb"
    main(["X1", "--full", "--runs", str(runs), "--to", str(runs / "papers")])
    assert names(runs, "X1-full") == ["a", "b", "c"] and begun(runs) == "abbc"
    assert (
        runs / "papers" / "X1" / "title.txt"
    ).read_text() == "X1: a test\n\nText.\n\npython -m experiments.papers X1\n"


def test_values_and_settings_are_chosen(protocol, runs, capsys):
    main(
        [
            "X1",
            "--full",
            "--only",
            "name=a,c",
            "--with",
            "act=return",
            "note=two words",
            "--runs",
            str(runs),
        ]
    )
    text = (runs / "papers" / "X1" / "title.txt").read_text()
    assert text.endswith("X1 --full --only name=a,c --with act=return 'note=two words'\n")
    assert begun(runs) == "ac" and "| a    |\n| c    |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [["name=a,c"], ["name=a", "name=c"], ["name=a", "--only", "name=c"]]
)
def test_all_values_of_an_axis_are_taken(protocol, runs, options):
    main(["X1", "--full", "--only", *options, "--with", "act=return", "--runs", str(runs)])
    assert begun(runs) == "ac"


def test_runs_without_an_axis_stay():
    sparse, exact = grid("none", {}, split=(0, 1), M=(5, 20)), grid("none", {}, split=(0, 1))
    chosen = selected(sparse + exact, {"M": [20], "split": [1]}, {})
    assert [job.labels for job in chosen] == [{"split": 1, "M": 20}, {"split": 1}]


def test_axes_are_listed_without_runs(protocol, runs, capsys):
    main(["X1", "--only", "axes=list", "--runs", str(runs)])
    assert capsys.readouterr().out == "The axes of X1: name=a,b\n" and not runs.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "name=d"], "--only: name is 'd'; accepted are a, b"),
        (["--only", "alpha=0.5"], "there is no axis 'alpha'; the axes are name=a,b"),
        (
            ["--stored"],
            "has no run of X1. Start some: python -m experiments.papers X1\nThe axes of X1: name=a,b",
        ),
        (["--with", "M=1,2"], "--with accepts one value for each entry, got several for M"),
        (["--with", "M=1", "M=2"], "--with accepts one value for each entry, got several for M"),
        (["--only", "name"], "2"),
        (["--jobs", "1000"], "jobs must take no more than"),
    ],
)
def test_refuses(protocol, runs, options, message):
    with pytest.raises(SystemExit, match=message):
        main(["X1", *options, "--runs", str(runs)])
    assert not runs.exists()
