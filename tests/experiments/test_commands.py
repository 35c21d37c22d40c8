"""
Experiments as commands: each is in their README; Sacred runs a main function as soon as it is
defined.
"""

import ast
import re
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MODULES = sorted(
    path.name for path in EXPERIMENTS.glob("*.py") if "@ex.automain" in path.read_text()
)


def test_the_readme_names_every_command():
    named = set(
        re.findall(
            r"python -m experiments\.(\w+)(?![\w.])", (EXPERIMENTS / "README.md").read_text()
        )
    )
    assert named == {path.stem for path in EXPERIMENTS.glob("*.py")} - {"__init__"} | {"papers"}


def test_there_are_some():
    assert {"regression.py", "classification.py", "streaming.py", "labeling.py"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_main_function_is_the_last_thing_in_its_module(name):
    last = ast.parse((EXPERIMENTS / name).read_text()).body[-1]
    assert isinstance(last, ast.FunctionDef)
    assert [ast.unparse(decorator) for decorator in last.decorator_list] == ["ex.automain"]
