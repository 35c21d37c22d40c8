"""
The README: each block of Python is a complete script that runs; pictures are small; CITATION.cff
has the version.
"""

import configparser
import re
from pathlib import Path

import gpflow
from quick import partly_slow

import gpflow_pep

ROOT = Path(__file__).parents[1]
SETTINGS = configparser.ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")
SETUP = SETTINGS["metadata"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@partly_slow(
    "script",
    SCRIPTS,
    1,
    ids=lambda script: re.search(r"^model = (\w+)", script, re.MULTILINE).group(1),
)
def test_script(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with gpflow.config.as_context():
        exec(script, {"__name__": "__main__"})


def test_there_are_scripts_and_small_pictures():
    assert len(SCRIPTS) == 3
    pictures = re.findall(r"!\[[^]]*\]\((docs/images/\w+\.png)\)", README)
    assert len(pictures) == 4
    assert all((ROOT / path).stat().st_size < 200_000 for path in pictures)


def test_the_version_and_the_address_to_cite():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [gpflow_pep.__version__]
    assert re.findall(r"^repository-code: (.+)$", citation, re.MULTILINE) == [SETUP["url"]]


def test_badges_are_true():
    """They are pictures, so that they need no network: docs/pictures/marks.py draws them."""
    classifiers = re.findall(r"Python :: (3\.\d+)", SETUP["classifiers"])
    said = {"python": " | ".join(classifiers), "license": SETUP["license"]}
    said["version"] = gpflow_pep.__version__
    shown = re.findall(r"docs/images/badges/(\w+)\.svg", README)
    assert shown == list(said)
    for name in shown:
        badge = (ROOT / "docs" / "images" / "badges" / f"{name}.svg").read_text(encoding="utf-8")
        assert re.findall(r"<text[^>]*>([^<]*)</text>", badge) == [name, said[name]]
