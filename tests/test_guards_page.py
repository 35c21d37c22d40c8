"""docs/numerical-guards.md against the code: what it names exists, values are the code's, nothing is left out."""

import ast
import functools
import math
import operator
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpflow_pep"
PAGE = ROOT / "docs" / "numerical-guards.md"
TEXT = PAGE.read_text(encoding="utf-8")

CODE = re.compile(r"`([^`]+)`")
FILE = re.compile(r"`(gpflow_pep/[\w/]+\.py)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
FUNCTIONS = {"np.log": math.log, "range": lambda stop: tuple(range(stop))}


# --- the code, which is read and not imported ------------------------------------------------------------------------


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def evaluated(node: ast.expr, known: dict[str, Any]) -> Any:
    """What a constant expression is worth; ValueError of any other."""
    inner = functools.partial(evaluated, known=known)
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.Attribute() if ast.unparse(node) == "np.pi":
            return math.pi
        case ast.UnaryOp(op=ast.USub()):
            return -inner(node.operand)
        case ast.BinOp() if type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](inner(node.left), inner(node.right))
        case ast.Tuple() | ast.List() | ast.Set():
            return tuple(map(inner, node.elts))
        case ast.Dict() if None not in node.keys:
            return dict(zip(map(inner, node.keys), map(inner, node.values), strict=True))
        case ast.Subscript():
            return inner(node.value)[inner(node.slice)]
        case ast.Call() if ast.unparse(node.func) in FUNCTIONS and not node.keywords:
            return FUNCTIONS[ast.unparse(node.func)](*map(inner, node.args))
    raise ValueError(f"{ast.unparse(node)} is not constant")


def value_of(text: str) -> Any:
    return evaluated(ast.parse(text, mode="eval").body, {})


def is_number(value: Any) -> bool:
    """Whether it is one, or made of numbers; keys may be anything."""
    if isinstance(value, dict | tuple):
        return bool(value) and all(map(is_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


@functools.cache
def constants(path: Path) -> dict[str, Any]:
    """Values of the module's own upper-case names; None of those that are not constant expressions."""
    found: dict[str, Any] = {}
    for statement in tree(path).body:
        match statement:
            case ast.Assign(targets=[target]):
                pass
            case ast.AnnAssign(target=target, value=ast.expr()):
                pass
            case _:
                continue
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        try:
            value = evaluated(statement.value, found)
            values = value if isinstance(target, ast.Tuple) else (value,)
        except (ValueError, TypeError, KeyError):
            values = (None,) * len(names)
        named = zip(names, values, strict=True)
        found |= {name.id: value for name, value in named if isinstance(name, ast.Name) and CONSTANT.fullmatch(name.id)}
    return found


@functools.cache
def definitions(path: Path) -> dict[str, ast.AST]:
    """Functions and classes by name, methods as Class.method."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}": each for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def literals(node: ast.AST) -> list[Any]:
    """All constant numbers in a function."""
    found = []
    for each in ast.walk(node):
        if isinstance(each, ast.expr):
            try:
                found.append(evaluated(each, {}))
            except (ValueError, TypeError, KeyError, IndexError, OverflowError, ZeroDivisionError):
                continue
    return [value for value in found if is_number(value)]


# --- the page --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of a table about one or several guards of one file."""

    guard: str
    value: str
    where: str
    test: str

    @property
    def names(self) -> list[str]:
        """The constants in it."""
        return [name for name in CODE.findall(self.guard) if CONSTANT.fullmatch(name)]

    @property
    def path(self) -> Path:
        (path,) = FILE.findall(self.where)
        return ROOT / path

    @property
    def function(self) -> str | None:
        found = re.search(r"function `([\w.]+)`", self.where)
        return None if found is None else found.group(1)

    @property
    def values(self) -> list[Any]:
        """Those in backticks that are numbers."""
        found = []
        for text in CODE.findall(self.value):
            try:
                found.append(value_of(text))
            except (ValueError, SyntaxError):
                continue
        return [value for value in found if is_number(value)]


def rows() -> list[Row]:
    found = []
    for line in TEXT.splitlines():
        if line.startswith("|") and not set(line) <= set("|- ") and not line.startswith("| Guard |"):
            guard, value, where, _, _, test = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append(Row(guard, value, where, test))
    return found


ROWS = rows()
MODULES = sorted(PACKAGE.rglob("*.py"))


def identity(row: Row) -> str:
    return f"{row.where}: {row.guard}"


def test_there_are_rows():
    assert len(ROWS) > 150 and len(MODULES) > 90


def test_every_file_exists():
    missing = [path for path in FILE.findall(TEXT) if not (ROOT / path).is_file()]
    assert not missing


@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_what_a_row_names_is_in_its_file(row):
    for name in row.names:
        assert name in constants(row.path), f"{name} is no constant of {row.path}"
    assert row.function is None or row.function in definitions(row.path)
    assert row.names or row.function, "neither a constant nor a function says where it is"


@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_values_are_those_of_the_code(row):
    """Of constants one by one; of expressions without a name, each number stands in the function."""
    if row.names:
        assert row.values == [constants(row.path)[name] for name in row.names]
    elif "GPflow's" not in row.value and "lower bound" not in row.value:
        known = literals(definitions(row.path)[row.function]) + list(constants(row.path).values())
        assert [value for value in row.values if value not in known] == []


def test_every_test_exists():
    references = TEST.findall(TEXT)
    assert len(references) > 200
    assert TEXT.count("::") == len(references), "a reference to a test is not of the form tests/....py::name"
    missing = []
    for path, name in sorted(set(references)):
        functions = [node.name for node in tree(ROOT / path).body if isinstance(node, ast.FunctionDef)]
        missing += [] if name in functions else [f"{path}::{name}"]
    assert not missing


def test_every_numeric_constant_of_the_package_is_mentioned():
    """In a row of its own file."""
    mentioned = {(row.path, name) for row in ROWS for name in row.names}
    there = {(path, name) for path in MODULES for name, value in constants(path).items() if is_number(value)}
    left_out = [f"{path.relative_to(ROOT)}: {name}" for path, name in sorted(there - mentioned)]
    assert not left_out


def test_what_has_no_test_is_listed():
    """Every row that has none, under the heading that says so, and nothing else."""
    section = TEXT.split("\n## Without a test\n")[1].split("\n## ")[0]
    listed = [line for line in section.splitlines() if line.startswith("- ")]
    expected = [f"- {row.guard}, {FILE.search(row.where).group()}" for row in ROWS if row.test == "none"]
    assert listed == expected
    assert all(row.test == "none" or TEST.search(row.test) for row in ROWS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A, B = 1e-9, -3 * 2**4", {"A": 1e-9, "B": -48}),
        ("_C = {1: 2.5}\n_D = _C[1]", {"_C": {1: 2.5}, "_D": 2.5}),
        ("E = 0.5 * np.log(2.0 * np.pi)", {"E": 0.5 * math.log(2.0 * math.pi)}),
        ("F: int = 1\ng = 2\nH = made()", {"F": 1, "H": None}),
        ("I, J = range(2)", {"I": 0, "J": 1}),
    ],
)
def test_constants_are_read(tmp_path, text, expected):
    (tmp_path / "module.py").write_text(text)
    assert constants(tmp_path / "module.py") == expected
