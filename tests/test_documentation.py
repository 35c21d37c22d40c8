"""
The documentation against the package: its scripts run, every public name is in the API, links lead
somewhere.

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


RECIPES = sorted((ROOT / "recipes").glob("plot_*.py"))
DIRECTIVE = re.compile(r"^\.\. auto(class|function|module):: ([\w.]+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def text_of(path):
    return path.read_text(encoding="utf-8")


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
    scripts = [*(ROOT / "notebooks").glob("*.py"), *RECIPES]
    for path in scripts:
        code = re.sub(r'\A""".*?"""', "", text_of(path), flags=re.DOTALL)
        lines |= {(path.name, line) for line in code.splitlines() if not line.startswith("#")}
    assert [found for found in lines if len(found[1]) > 88] == []
    broken = re.compile(r"\w\[\n")  # `labels[` and its index on another line
    assert [path.name for path in scripts if broken.search(text_of(path))] == []


def test_every_picture_of_the_site_is_drawn_by_a_script():
    drawn = set(
        re.findall(
            r"^def (\w+)\(\) -> Figure",
            "".join(map(text_of, (ROOT / "docs" / "pictures").glob("*.py"))),
            re.M,
        )
    )
    drawn.remove("logo")  # in docs/static
    drawn.add("tensorboard")  # by docs/tensorboard_picture.py, which needs a browser
    assert {path.stem for path in (ROOT / "docs" / "images").glob("*.*")} == drawn
    shown = set(re.findall(r"images/(\w+)\.png\)", "".join(map(text_of, PAGES))))
    assert shown == drawn


def test_titles_are_unique():
    titles = []
    for path in PAGES[1:]:
        titles += re.findall(r"\A# (.*)$", text_of(path), re.MULTILINE)
    for path in (ROOT / "notebooks").glob("*.py"):
        titles += re.findall(r"^# # (.*)$", text_of(path), re.MULTILINE)[:1]
    for path in RECIPES:
        titles += re.findall(r'\A"""\n(.*)\n=+\n', text_of(path))
    assert len(titles) == len(set(titles)), sorted(titles)


def test_searches_for_a_task_find_the_guide():
    """The site's search ranks a main entry of its index before everything else."""
    entries = {
        entry: path.stem
        for path in PAGES
        for block in re.findall(r"^```\{index\} (.*)$", text_of(path), re.MULTILINE)
        for entry in block.removeprefix("! ").split(", ! ")
    }
    assert entries["save model"] == "saving"
    assert {path.stem for path in (ROOT / "docs" / "guide").glob("*.md")} <= set(entries.values())


def test_recipes_explain_check_and_draw():
    """They run in `make docs`, where an error ends the build."""
    assert len(RECIPES) >= 12
    for path in RECIPES:
        text = text_of(path)
        assert re.match(r'"""\n(.+)\n=+\n\n(.+\n)+"""\n', text), f"{path.name}: title and text"
        assert text.count("# %%\n#") >= 2, f"{path.name}: explanations"
        assert text.count("figsize=(5, 3.5)") == 1, (
            f"{path.name}: a picture in the size of a thumbnail"
        )
        assert "plt.show()" in text


def public(module):
    """The public names of a module: its __all__, or else its definitions."""
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
    tables = re.findall(
        r"^\.\. (autosummary|currentmodule):: ?(.*)\n((?:\n|   .*\n)*)",
        text_of(ROOT / "docs" / "api" / "index.md"),
        re.MULTILINE,
    )
    listed = []
    module = ""
    for kind, name, rows in tables:
        if kind == "currentmodule":
            module = name
        for row in rows.replace(":nosignatures:", "").split():
            owner, _, own = f"{module}.{row.removeprefix('~')}".rpartition(".")
            listed.append(getattr(importlib.import_module(owner), own))
    assert set(listed) == set(documented), "the first page of the API"
    for value in listed:  # its tables show the first sentence, which an abbreviation would end
        sentence = re.split(
            r"\.\s", inspect.getdoc(value).replace("et al.", "et al") + "\n", maxsplit=1
        )[0]
        assert sentence.count("(") == sentence.count(")"), f"{value.__name__}: {sentence}"


def test_papers_lead_to_tests():
    found = re.findall(r"`(\S+\.py)::(\w+)`", text_of(ROOT / "docs" / "papers.md"))
    assert len(found) > 40
    for file, test in found:
        path = ROOT / "tests" / file
        assert f"def {test}(" in text_of(path), f"{file}::{test}"


def test_links_lead_somewhere():
    """To files and folders of the repository, and to headings, in GitHub's and the site's form."""
    for path in PAGES:
        for target, anchor in LINK.findall(text_of(path)):
            file = path.parent / target if target else path
            assert file.exists(), f"{path.name}: {target}"
            if anchor:
                words = [
                    re.sub(r"[^\w\- ]", "", heading.lower())
                    for heading in HEADING.findall(text_of(file))
                ]
                assert anchor in [heading.replace(" ", "-") for heading in words], (
                    f"{path.name}: {target}#{anchor}"
                )
