"""
The plan of the package in CONTRIBUTING.md: imports point down its table, private modules may be
missing, a loss enters few files, and classes have few bases.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest

import gpflow_pep

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpflow_pep"
TRAINING = """
import builtins

import_module = builtins.__import__
hidden = {"util.tf_stack", "framework.ops", "ops.collective_ops", "ops.resource_variable_ops"}

def hiding(name, importer=None, local=None, fromlist=(), level=0):
    names = {name, *(f"{name}.{each}" for each in fromlist or ())}
    if (importer or {}).get("__name__", "").startswith("gpflow_pep"):
        for each in hidden:
            if "tensorflow.python." + each in names:
                raise ImportError(each)
    return import_module(name, importer, local, fromlist, level)

builtins.__import__ = hiding
import gpflow
import numpy as np
from gpflow_pep import PEPR, fit

X = np.linspace(0.0, 1.0, 30)[:, None]
model = PEPR((X, np.sin(6.0 * X)), gpflow.kernels.SquaredExponential(), X[::6])
print(fit(model, max_iterations=2).iterations)
"""


def imported(path):
    """The modules of the package that a file imports anywhere, as paths below the package."""
    folder = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (
                each.name.split(".")[1:] for each in node.names if "gpflow_pep" in each.name
            )
        elif isinstance(node, ast.ImportFrom) and node.level:
            above = list(folder[: len(folder) - node.level + 1])
            if node.module is not None:
                yield [*above, *node.module.split(".")]
            else:
                yield from ([*above, each.name] for each in node.names)


def upward(path, order):
    """Imports of a file that do not point down the table."""
    below = order[order.index(path.relative_to(PACKAGE).with_suffix("").parts[0]) :]
    return [
        f"{path.relative_to(ROOT)}: {'.'.join(each)}"
        for each in imported(path)
        if each[0] not in below
    ]


def test_imports_point_down_the_table():
    table = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("Imports point down")[2]
    )
    order = re.findall(r"^\| `(\w+)(?:\.py)?` \|", table, re.MULTILINE)
    parts = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert set(order) == parts - {"__init__", "__pycache__", "py"}
    files = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    assert len(files) > 90
    assert [each for path in files for each in upward(path, order)] == []


def test_a_model_is_trained_without_private_modules():
    """Modules of TensorFlow that are cosmetic, or for several workers or devices, may move."""
    command = [sys.executable, "-c", TRAINING]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.stdout.split() == ["2"], done.stderr


@pytest.mark.parametrize(("model", "most"), [("PEPR", 14), ("PEPClassifier", 22)])
def test_a_first_loss_enters_few_files(model, most):
    X = np.linspace(0.0, 1.0, 30)[:, None]
    data = (X, (X > 0.5).astype(float))
    kernel = gpflow.kernels.SquaredExponential()
    made = getattr(gpflow_pep, model)(data, kernel, inducing_variable=X[::6])
    entered = set()

    def note(frame, event, argument):
        entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        made.training_loss()
    finally:
        sys.setprofile(None)
    own = sorted(path for path in entered if Path(path).is_relative_to(PACKAGE))
    assert 0 < len(own) <= most, own


def test_classes_inherit_from_at_most_five_of_the_package():
    for module in pkgutil.walk_packages(gpflow_pep.__path__, "gpflow_pep."):
        classes = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        for _, kind in classes:
            own = [each for each in kind.__mro__ if each.__module__.startswith("gpflow_pep.")]
            assert len(own) <= 5, own


def test_the_list_of_slow_tests_names_tests():
    listed = [line for line in (ROOT / "tests" / "slow.txt").open() if not line.startswith("#")]
    assert listed == sorted(set(listed))
    for path, function in (line.strip().split("::") for line in listed):
        assert f"\ndef {function}(" in (ROOT / path).read_text()
