"""
Mutation tests: small random changes of the mathematical modules, one at a time. Do the tests
notice?

A mutant is a module with one change: another operator, comparison, number or sign, a term or a
statement left out, exchanged branches. It is killed if a test of the module fails or the tests take
too long. If it survives, either the change does not matter (a tuning constant, say) or a test is
missing. The mutants follow from the seed.

    python -m campaign.mutation [--mutants 200] [--minutes 60] [--seed 0] [--modules engine ...]
        [--output FILE.json]

Each mutant is tried in a fork of a process that has imported TensorFlow (6 s, once) but neither
`gpflow_pep` nor run any operation: TensorFlow's threads would not survive the fork.

Why no package: mutmut leaves out decorated functions, and so most that TensorFlow compiles;
cosmic-ray starts a process for each mutant, draws no random sample, and most of its mutants apply
operators that tensors lack.
"""

import ast
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import gpflow
import hypothesis
import mpmath
import numpy as np
import pytest
import scipy
import sklearn
import tensorflow as tf

from campaign.running import Campaign, Outcome, options

_IMPORTED = (gpflow, hypothesis, mpmath, scipy, sklearn, tf)  # once, for all processes
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([each.__name__ for each in (*_IMPORTED, np, pytest)])
_SECONDS = 300.0  # that the tests of a mutant may take
_MEMORY = 12 * 2**30  # bytes that a child may address
_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "gpflow_pep"

TESTS = {
    "engine/old_posterior.py": "models/test_streaming.py engine",
    "engine": "models/test_oracle.py engine models/test_limits.py",
    "ep": "models/test_pep_oracle.py ep models/test_pep_dense.py",
    "maths": "maths likelihoods/test_robust_max.py engine",
    "softmax": "softmax",
    "tilted": "tilted",
    "models": "models/test_oracle.py models/test_limits.py models/test_streaming.py models/test_tied.py",
}
"""
Files and folders of the package, and the tests that must notice a change, after the test file of
the module.
"""

_DEFAULT = ("engine", "ep", "maths", "softmax", "tilted", "models/tied.py")


class Mutant(NamedTuple):
    """A module with one change."""

    module: str
    """Path of the module in the package."""
    line: int
    kind: str
    old: str
    new: str
    source: str
    """The module with the change."""


# --- changes --------------------------------------------------------------------------------------


def _both_ways(*pairs: tuple[Any, Any]) -> dict[Any, Any]:
    return dict([*pairs, *(pair[::-1] for pair in pairs)])


_OPERATORS = {ast.FloorDiv: ast.Mult} | _both_ways(
    (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or)
)
_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.LtE: (ast.Lt,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_FUNCTIONS = _both_ways(
    ("minimum", "maximum"),
    ("reduce_min", "reduce_max"),
    ("min", "max"),
    ("reduce_any", "reduce_all"),
)
_Edit = tuple[str, ast.AST]


def _edits(node: Any) -> Iterator[_Edit]:
    """Return replacements of a node, each with its kind."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield "operator", ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
        if isinstance(node.op, ast.Add | ast.Sub):
            yield "term", node.left
        if isinstance(node.op, ast.Add):
            yield "term", node.right
        elif isinstance(node.op, ast.Sub):
            yield "term", ast.UnaryOp(ast.USub(), node.right)
    elif isinstance(node, ast.BoolOp):
        yield "operator", ast.BoolOp(_OPERATORS[type(node.op)](), node.values)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in _COMPARISONS.get(type(node.ops[0]), ()):
            yield "comparison", ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield "sign", node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        c: Any = node.value
        others = (1 - c,) if c in (0, 1) else (2 * c, c + 1, -c)
        yield from (("number", ast.Constant(value)) for value in others)
    elif (
        isinstance(node, ast.keyword)
        and isinstance(node.value, ast.Constant)
        and type(node.value.value) is bool
    ):
        if node.arg != "strict":  # of zip: a check
            yield "flag", ast.keyword(node.arg, ast.Constant(not node.value.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _FUNCTIONS:
            function = ast.Attribute(node.func.value, _FUNCTIONS[node.func.attr], ast.Load())
            yield "function", ast.Call(function, node.args, node.keywords)
        if node.func.attr == "where" and len(node.args) == 3:
            yield "branches", ast.Call(node.func, [node.args[0], *node.args[:0:-1]], node.keywords)
    elif _may_be_left_out(node):
        yield "statement", ast.Pass()


def _names(nodes: Sequence[ast.AST]) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def _may_be_left_out(node: Any) -> bool:
    """Return whether a statement is a call or reassigns names from their old values."""
    if isinstance(node, ast.Assign):
        names = _names(node.targets)
        return bool(names) and names <= _names([node.value])
    return isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )


def _places(node: ast.AST) -> Iterator[tuple[Any, Any, Any]]:
    """
    Yield positions of nodes as (list or attributes, index or name, node), without types and
    messages.
    """
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        holder, children = (
            (value, enumerate(value)) if isinstance(value, list) else (vars(node), [(field, value)])
        )
        for key, child in children:
            if (
                isinstance(child, ast.AST)
                and not isinstance(child, ast.JoinedStr | ast.Raise)
                and not (
                    isinstance(child, ast.Assign) and ast.unparse(child).startswith("__all__ =")
                )
            ):
                yield holder, key, child
                yield from _places(child)


class Mutations:
    """All changes of a module."""

    def __init__(self, module: str, source: str):
        self._module, self._tree = module, ast.parse(source)
        self._places = [
            place for place in _places(self._tree) if any(True for _ in _edits(place[2]))
        ]

    def __len__(self) -> int:
        """Return the number of places that can be changed."""
        return len(self._places)

    def at(self, number: int) -> list[Mutant]:
        """Return the changes of one place."""
        holder, key, node = self._places[number]
        line = getattr(node, "lineno", None) or node.value.lineno
        mutants = []
        for kind, new in _edits(node):
            holder[key] = new
            source = ast.unparse(self._tree)
            holder[key] = node
            mutants.append(
                Mutant(self._module, line, kind, ast.unparse(node), ast.unparse(new), source)
            )
        return mutants


def modules(names: Sequence[str]) -> list[str]:
    """Return the paths of files and folders' modules in the package."""
    paths = (_PACKAGE / name for name in names)
    files = (
        file for path in paths for file in ([path] if path.suffix else sorted(path.glob("*.py")))
    )
    return [str(file.relative_to(_PACKAGE)) for file in files if file.name != "__init__.py"]


def drawn(names: Sequence[str], seed: int) -> Iterator[Mutant]:
    """Draw mutants of files and folders; every place is equally likely, and none comes twice."""
    rng = np.random.default_rng([seed, 11])
    mutations = {name: Mutations(name, (_PACKAGE / name).read_text()) for name in modules(names)}
    places = [(name, number) for name, each in mutations.items() for number in range(len(each))]
    for index in rng.permutation(len(places)):
        name, number = places[index]
        mutants = mutations[name].at(number)
        yield mutants[rng.integers(len(mutants))]


# --- running --------------------------------------------------------------------------------------


def noticing(module: str) -> list[str]:
    """Return the tests that must notice a change of a module, the nearest first."""
    folder, name = module.split("/")
    names = TESTS.get(module) or TESTS.get(folder, folder)
    paths = (_ROOT / "tests" / path for path in (f"{folder}/test_{name}", *names.split()))
    return [str(path) for path in paths if path.exists()]


def run(mutant: Mutant | None, tests: Sequence[str], seconds: float | None = _SECONDS) -> Outcome:
    """Run tests with a mutant, or with the package as it is, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        began, said = time.monotonic(), Path(folder) / "said"
        process = _PROCESSES.Process(target=_perform, args=(mutant, tests, said))
        process.start()
        process.join(seconds)
        process.kill()
        process.join()
        text = said.read_text(errors="replace")
    verdict = {0: "survived", -signal.SIGKILL: "too long"}.get(process.exitcode or 0, "killed")
    by = re.findall(r"^(?:FAILED|ERROR) (.*)", text, flags=re.MULTILINE)
    return Outcome(verdict, time.monotonic() - began, (by or [text[-200:]])[-1][:300])


def install(mutant: Mutant, folder: Path) -> None:
    """
    Load the mutant in place of its module, in this process, from a file in `folder`, which
    AutoGraph reads.
    """
    name = ".".join(("gpflow_pep", *Path(mutant.module).with_suffix("").parts))
    file = folder / "mutant.py"
    file.write_text(mutant.source)
    load = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return compile(mutant.source, file, "exec") if fullname == name else load(self, fullname)

    setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010


def _perform(mutant: Mutant | None, tests: Sequence[str], said: Path) -> None:
    with said.open("w") as file:
        for place in (1, 2):
            os.dup2(file.fileno(), place)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.chdir(_ROOT)
    os.environ["COLUMNS"] = "300"  # of messages
    if mutant is not None:
        install(mutant, said.parent)
    sys.exit(
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", *tests])
    )


def _tried(mutant: Mutant) -> Outcome:
    outcome = run(mutant, noticing(mutant.module))
    change = f"{mutant.module}:{mutant.line}: {mutant.old[:60]} -> {mutant.new[:60]}"
    return outcome._replace(message=f"{change}; {outcome.message}")


def main() -> None:
    """Run the tests with mutants, and print a table."""
    parser = options(__doc__, 200, "mutants")
    parser.add_argument(
        "--modules",
        nargs="+",
        default=_DEFAULT,
        help="files and folders of the package (%(default)s)",
    )
    arguments = parser.parse_args()
    tests = {path for name in modules(arguments.modules) for path in noticing(name)}
    intact = run(None, sorted(tests), None)
    if intact.verdict != "survived":
        sys.exit(f"The tests fail without a change: {intact.message}")
    print(f"the tests pass without a change, in {intact.error:.0f} s", flush=True)
    campaign = Campaign(
        _tried, lambda mutant: (mutant.module.split("/")[0], mutant.kind), ("killed", "too long")
    )
    mutants = islice(drawn(arguments.modules, arguments.seed), arguments.mutants)
    campaign.print_table(campaign.run_all(mutants, arguments))


if __name__ == "__main__":
    main()
