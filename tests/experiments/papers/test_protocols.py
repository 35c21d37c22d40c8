"""Every protocol runs end to end at toy size, and the report is built from its runs."""

import os
from html import escape
from importlib import import_module

import pytest
from matplotlib.image import imread
from quick import partly_slow
from toy_protocols import toy

from experiments.cells.processes import perform
from experiments.papers import PROTOCOLS, report
from experiments.papers.grid import Record
from experiments.papers.running import write
from experiments.papers.stored import store, stored_results
from experiments.papers.tables import Score, Table

WITHOUT_FILES = ("U1", "T2", "T8", "M2", "A3")
has_data = bool(os.environ.get("GPFLOW_PEP_DATA"))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_larger_log_likelihoods_are_better(name):
    """Ranks and wins follow."""
    values = vars(import_module(f"experiments.papers.{name.lower()}")).values()
    parts = [part for value in values for part in (value if isinstance(value, tuple) else [value])]
    for score in parts:
        if isinstance(score, Score) and "log likelihood" in score.heading:
            assert score.larger_is_better, score


@partly_slow("name", PROTOCOLS, quick=["U1"])
def test_protocol_runs_and_is_shown(name, runs):
    if name not in WITHOUT_FILES and not has_data:
        pytest.skip("needs data sets: set GPFLOW_PEP_DATA")
    protocol = import_module(f"experiments.papers.{name.lower()}")
    jobs = toy(protocol.jobs(False))
    records = [Record(job.labels, perform(job.cell, runs), job.cell.key) for job in jobs]
    shown = list(protocol.show(records))
    folder = runs / "papers" / name
    write(name, protocol.__doc__, shown, folder)
    store(folder, records)
    tables = [part for part in shown if isinstance(part, Table)]
    assert tables and all(
        len(set(map(len, table.lines))) == 1 and len(table.lines) > 1 for table in tables
    )
    pictures = [imread(path) for path in folder.glob("*.png")]
    assert len(pictures) == len(shown) - len(tables) and all(
        picture.std() > 0.01 for picture in pictures
    )
    page = report.page(report.stored([folder.parent]))
    assert page.count("<img ") == len(pictures) and page.count("<table>") == len(tables)
    assert all(escape(part.title) in page for part in shown)
    kept = stored_results(folder)
    again = list(protocol.show([Record(each.labels, kept[each.key], each.key) for each in records]))
    assert [part.title for part in again if isinstance(part, Table)] == [
        table.title for table in tables
    ]
    assert len(again) == len(shown)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_published_size_has_more_runs(name):
    protocol = import_module(f"experiments.papers.{name.lower()}")
    if name == "M1" and not has_data:
        pytest.skip("reads the number of rows: set GPFLOW_PEP_DATA")
    small = protocol.jobs(False)
    full = protocol.jobs(True)
    assert (
        len({job.cell.key for job in small})
        == len(small)
        <= len(full)
        == len({job.cell.key for job in full})
    )
    assert protocol.__doc__.strip()
