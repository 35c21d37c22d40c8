"""The page of stored tables and figures: its content, and no reference to another file."""

import re

import pytest

from experiments.papers import report
from experiments.papers.grid import Record
from experiments.papers.pictures import dots
from experiments.papers.running import write
from experiments.papers.tables import RMSE, Table, means


@pytest.fixture
def results(tmp_path):
    records = [
        Record({"method": name}, {"rmse": value})
        for name, value in {"A & B": 0.25, "C": 0.5}.items()
    ]
    parts = [
        means(records, ("method",), (RMSE,), "Scores", {("C",): [0.4]}, "A note."),
        dots(records, {"rmse": "RMSE"}, "Dots"),
        Table("Long", [("n",), *((str(n),) for n in range(30))]),
    ]
    for folder in ("old/U2", "new/U2", "new/T1-full"):
        write(f"{folder[4:6]}: title", f"{folder} <text>", parts, tmp_path / folder)
    return tmp_path


def test_page_has_tables_figures_and_published_values(results, capsys):
    page = results / "page.html"
    report.main([str(results / "old"), str(results / "new"), "--to", str(page)])
    text = page.read_text()
    assert re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', text) == [
        ("U2", "U2: title"), ("T1-full", "T1: title (published size)"),
    ]  # fmt: skip
    assert "new/U2 &lt;text&gt;" in text and "old/U2" not in text
    assert "<th>RMSE</th><th>published</th>" in text
    assert "<td>A &amp; B</td><td>0.250</td><td>–</td>" in text
    assert "<td>C</td><td>0.500</td><td>0.400</td>" in text
    assert '<p class="note">A note.</p>' in text
    assert "<summary><b>Long</b>, 30 lines</summary>" in text
    assert set(re.findall(r'(?:src|href)="([^"]{8})', text)) == {"data:ima", "#T1-full"[:8]}
    assert text.count("<figcaption>Dots") == 2


def test_no_results_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="No protocol has results"):
        report.main([str(tmp_path)])


@pytest.mark.parametrize("text", ["", "**Scores**", "**Scores**\n\n| a |"])
def test_a_damaged_table_is_named(results, text):
    path = next((results / "new/U2").glob("00-*.md"))
    path.write_text(text)
    with pytest.raises(SystemExit, match=rf"{path.name} is not a table of a protocol: delete it"):
        report.main([str(results / "new"), "--to", str(results / "page.html")])


def test_results_are_replaced(results):
    folder = results / "new/U2"
    write("U2: title", "", [Table("Only", [("n",), ("1",)]), None], folder)
    assert {path.name for path in folder.iterdir()} == {
        "00-only.csv",
        "00-only.md",
        # None keeps what an earlier call has written.
        "01-dots.png",
        "01-dots.txt",
        "title.txt",
    }
