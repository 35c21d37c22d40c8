"""The documentation against the package: its scripts run, every public name is in the API, links lead somewhere.

The Python blocks of a page, in their order, are one script.
"""

import importlib
import inspect
import re
import socket
import subprocess
import sys
from pathlib import Path

import gpflow
import pytest

import gpflow_pep

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(
    r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


DIRECTIVE = re.compile(r"^\.\. auto(class|function|module):: ([\w.]+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def text_of(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in PAGES[1:] if BLOCK.search(text_of(path))], ids=lambda path: path.stem
)
def test_page(path, tmp_path, monkeypatch):
    text = text_of(path)
    monkeypatch.chdir(tmp_path)
    with gpflow.config.as_context():
        exec("\n".join(BLOCK.findall(text)), {"__name__": "__main__"})
    for name, script in FILE.findall(text):  # the only one: that of a worker
        (tmp_path / name).write_text(script)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        subprocess.run([sys.executable, name, "0", address], check=True, cwd=tmp_path, timeout=300)


def test_lines_of_python_fit_the_page():
    """88 columns, in code of pages and notebooks; text cells of notebooks are comments."""
    lines = {
        (path.name, line)
        for path in PAGES
        for block in BLOCK.findall(text_of(path))
        for line in block.splitlines()
    }
    for path in (ROOT / "notebooks").glob("*.py"):
        lines |= {
            (path.name, line) for line in text_of(path).splitlines() if not line.startswith("#")
        }
    assert [found for found in lines if len(found[1]) > 88] == []


def test_every_picture_of_the_site_is_drawn_by_a_script():
    drawn = set(
        re.findall(
            r"^def (\w+)\(\) -> Figure",
            "".join(map(text_of, (ROOT / "docs" / "pictures").glob("*.py"))),
            re.M,
        )
    )
    drawn.add("tensorboard")  # by docs/tensorboard_picture.py, which needs a browser
    assert {path.stem for path in (ROOT / "docs" / "images").glob("*.*")} == drawn
    shown = set(re.findall(r"images/(\w+)\.png\)", "".join(map(text_of, PAGES))))
    assert shown == drawn


def public(module):
    """What a module offers: its __all__, or else what it defines."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    ]
    return [
        getattr(module, name)
        for name in getattr(module, "__all__", own)
        if not name.startswith("_")
    ]


def called(module):
    return [
        value for value in public(module) if inspect.isclass(value) or inspect.isfunction(value)
    ]


def test_every_public_name_is_in_the_api_and_no_other():
    documented = []
    for kind, name in DIRECTIVE.findall(
        "".join(text_of(path) for path in (ROOT / "docs" / "api").glob("*.md"))
    ):
        if kind == "module":
            documented += called(importlib.import_module(name))
            continue
        owner, _, own = name.rpartition(".")
        documented.append(getattr(importlib.import_module(owner), own))
        assert documented[-1] in called(importlib.import_module(owner)), f"{name} is not public"
    assert [value for value in called(gpflow_pep) if value not in documented] == []
    assert len(documented) == len(set(documented)), "a name is in the API twice"


def test_links_lead_somewhere():
    """To files of the repository, and to headings in them, in GitHub's and the site's form."""
    for path in PAGES:
        for target, anchor in LINK.findall(text_of(path)):
            file = path.parent / target if target else path
            assert file.is_file(), f"{path.name}: {target}"
            if anchor:
                words = [
                    re.sub(r"[^\w\- ]", "", heading.lower())
                    for heading in HEADING.findall(text_of(file))
                ]
                assert anchor in [heading.replace(" ", "-") for heading in words], (
                    f"{path.name}: {target}#{anchor}"
                )
