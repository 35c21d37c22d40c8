"""The README: each block of Python is a complete script that runs; pictures are small; CITATION.cff has the version."""

import re
from pathlib import Path

import gpflow
import pytest

import gpflow_pep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "script", SCRIPTS, ids=lambda script: re.search(r"^model = (\w+)", script, re.MULTILINE).group(1)
)
def test_script(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with gpflow.config.as_context():
        exec(script, {"__name__": "__main__"})


def test_there_are_scripts_and_pictures():
    assert len(SCRIPTS) == 2
    pictures = re.findall(r"!\[[^]]*\]\((docs/images/\w+\.png)\)", README)
    assert sorted(pictures) == sorted(f"docs/images/{path.name}" for path in (ROOT / "docs" / "images").glob("*.png"))
    assert all((ROOT / path).stat().st_size < 60_000 for path in pictures)


def test_the_version_to_cite():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [gpflow_pep.__version__]
