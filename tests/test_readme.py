"""The README: each block of Python is a complete script that runs; pictures are small; CITATION.cff has the version."""

import re
import shutil
from pathlib import Path

import gpflow
import pytest

import gpflow_pep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "script",
    SCRIPTS,
    ids=lambda script: re.search(r"^model = (\w+)", script, re.MULTILINE).group(1),
)
def test_script(script, tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "terrain.csv", tmp_path / "docs")  # read by the first script
    monkeypatch.chdir(tmp_path)
    with gpflow.config.as_context():
        exec(script, {"__name__": "__main__"})


def test_there_are_scripts_and_small_pictures():
    assert len(SCRIPTS) == 3
    pictures = re.findall(r"!\[[^]]*\]\((docs/images/\w+\.png)\)", README)
    assert len(pictures) == 4
    assert all((ROOT / path).stat().st_size < 200_000 for path in pictures)


def test_the_version_to_cite():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [gpflow_pep.__version__]
