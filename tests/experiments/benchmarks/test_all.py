"""All benchmarks in one command, at tiny sizes: its files, and the report of one that fails."""

import json
import shlex
from pathlib import Path

import pytest

from experiments.benchmarks import all as everything
from experiments.benchmarks.machine import PACKAGES

FOLDER = Path(everything.__file__).parent
TINY = shlex.split("--rounds 1 --rows 30 --inducing 4 --kernel Matern32 --cores 1")


def test_every_benchmark_is_among_them():
    commands = {path.stem for path in FOLDER.glob("*.py") if "def main()" in path.read_text()}
    assert set(everything.BENCHMARKS) == commands - {"all"}


def test_files(tmp_path):
    """Rows and their ratios as data, and the same in Markdown, with machine and versions."""
    everything.run({"collapsed_step": TINY, "memory": ["--rows", "none"]}, tmp_path)
    found = json.loads((tmp_path / "benchmarks.json").read_text())
    assert all(f"{name} " in found["machine"] for name in PACKAGES)
    (table,) = found["benchmarks"]["collapsed_step"]["tables"]
    rows = {row["model"]: row for row in table["rows"]}
    assert rows["PEPR 0"]["as"] == "SGPR" and rows["PEPR 0"]["times as fast"] > 0.0
    assert rows["PEPR 0"]["share"] == pytest.approx(1.5 / rows["PEPR 0"]["units"])
    failed = found["benchmarks"]["memory"]
    assert "'none' is not a whole number from 1" in failed["error"] and "tables" not in failed
    text = (tmp_path / "benchmarks.md").read_text()
    assert (
        "## collapsed_step" in text
        and "| PEPR 0 " in text
        and "'none' is not a whole number from 1" in text
    )


@pytest.mark.parametrize("failing", [False, True])
def test_the_exit_status_says_whether_all_succeeded(failing, monkeypatch, tmp_path):
    result = {
        "arguments": [],
        "seconds": 1.0,
        **({"error": "exit status 2"} if failing else {"tables": []}),
    }
    monkeypatch.setattr(everything, "measure", lambda name, options: result)
    monkeypatch.setattr(
        "sys.argv", ["all", "--quick", "--only", "memory", "large", "--to", str(tmp_path)]
    )
    if failing:
        with pytest.raises(SystemExit, match="1"):
            everything.main()
    else:
        everything.main()
    assert set(json.loads((tmp_path / "benchmarks.json").read_text())["benchmarks"]) == {
        "memory",
        "large",
    }
