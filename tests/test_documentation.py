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
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", re.DOTALL | re.MULTILINE)


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


def public(module):
    """What a module offers: its __all__, or else what it defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [getattr(module, name) for name in getattr(module, "__all__", own) if not name.startswith("_")]


def called(module):
    return [value for value in public(module) if inspect.isclass(value) or inspect.isfunction(value)]


def test_every_public_name_is_in_the_api_and_no_other():
    documented = []
    for kind, name in DIRECTIVE.findall("".join(text_of(path) for path in (ROOT / "docs" / "api").glob("*.md"))):
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
                words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text_of(file))]
                assert anchor in [heading.replace(" ", "-") for heading in words], f"{path.name}: {target}#{anchor}"
