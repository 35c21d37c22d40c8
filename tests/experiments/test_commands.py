"""Experiments as commands: Sacred runs the main function as soon as it is defined, when what follows is not."""

import ast
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MODULES = sorted(path.name for path in EXPERIMENTS.glob("*.py") if "@ex.automain" in path.read_text())


def test_there_are_some():
    assert {"regression.py", "classification.py", "streaming.py", "labeling.py"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_main_function_is_the_last_thing_in_its_module(name):
    last = ast.parse((EXPERIMENTS / name).read_text()).body[-1]
    assert isinstance(last, ast.FunctionDef)
    assert [ast.unparse(decorator) for decorator in last.decorator_list] == ["ex.automain"]
