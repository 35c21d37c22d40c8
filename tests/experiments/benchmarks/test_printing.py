"""Tables of benchmarks: printed, kept and written."""

import json

import pytest
from refusals import refused

from experiments.benchmarks.printing import Table, markdown, parser_of, write

COLUMNS = {"model": "<10", "seconds": ".2f", "N": ",d"}


@pytest.fixture
def table():
    made = Table("a title", COLUMNS)
    made.add("PEPR", 1.2345, 10_000)
    made.add("SGPR", None, 5)
    return made


def test_it_is_printed_as_rows_come(capsys):
    made = Table("a title", COLUMNS)
    assert capsys.readouterr().out == "\na title\nmodel        seconds         N\n"
    made.add("PEPR", 1.2345, 10_000)
    assert capsys.readouterr().out == "PEPR            1.23    10,000\n"
    made.add("SGPR", None, 5)
    assert capsys.readouterr().out == "SGPR                         5\n"


def test_it_is_kept_as_data(table, tmp_path):
    write([table], tmp_path / "tables.json")
    rows = [
        {"model": "PEPR", "seconds": 1.2345, "N": 10_000},
        {"model": "SGPR", "seconds": None, "N": 5},
    ]
    assert json.loads((tmp_path / "tables.json").read_text()) == [
        {"title": "a title", "columns": COLUMNS, "rows": rows}
    ]


def test_nothing_is_written_without_a_path(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write([table], parser_of("a benchmark").parse_args([]).json)
    assert not list(tmp_path.iterdir())


def test_markdown(table):
    assert markdown(table.as_data()).splitlines() == [
        "a title",
        "",
        "| model | seconds |      N |",
        "| ----- | ------: | -----: |",
        "| PEPR  |    1.23 | 10,000 |",
        "| SGPR  |         |      5 |",
    ]


def test_a_row_has_all_columns(table):
    with refused("argument"):
        table.add("PEPR", 1.0)
