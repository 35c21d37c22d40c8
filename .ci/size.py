"""
Print the size of the code, the rates of packed statements and the longest functions; fail above the
limits.

Size is counted in tokens of code, without strings, comments and layout. Rates are per 1,000 lines
of the package.

    python .ci/size.py
"""

import ast
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Limit today, and the goal that follows.
LIMITS = {
    "tokens, gpflow_pep": (151_150, 118_000),
    "tokens, experiments": (58_000, 58_000),
    "tokens, tests": (238_400, 240_000),
    ":= per 1,000 lines": (3, 3),
    "conditional expressions per 1,000 lines": (10, 10),
    "tuple assignments per 1,000 lines": (4, 8),
    "Any per 1,000 lines": (12, 12),
    "lines of the longest function": (60, 60),
}
_LONGEST = 10  # functions to print
_NOT_CODE = {"COMMENT", "DEDENT", "ENCODING", "ENDMARKER", "INDENT", "NEWLINE", "NL", "STRING"}


def main() -> None:
    """Print the table, and exit with status 1 if a number is above its limit."""
    trees = {path: ast.parse(path.read_bytes()) for path in files("gpflow_pep")}
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees)
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = sorted(longest(trees), reverse=True)

    def rate(is_counted: Callable[[ast.AST], bool]) -> float:
        return 1000 * sum(map(is_counted, nodes)) / lines

    found: dict[str, float] = {
        f"tokens, {folder}": sum(map(tokens, files(folder)))
        for folder in ("gpflow_pep", "experiments", "tests")
    }
    found[":= per 1,000 lines"] = rate(lambda node: isinstance(node, ast.NamedExpr))
    found["conditional expressions per 1,000 lines"] = rate(
        lambda node: isinstance(node, ast.IfExp)
    )
    found["tuple assignments per 1,000 lines"] = rate(assigns_tuple)
    found["Any per 1,000 lines"] = rate(
        lambda node: isinstance(node, ast.Name) and node.id == "Any"
    )
    found["lines of the longest function"] = functions[0][0]

    too_large = []
    print(f"{'':42}{'now':>12}{'limit':>12}{'goal':>12}")
    for name, value in found.items():
        limit, goal = LIMITS[name]
        print(f"{name:42}{round(value, 1):>12,}{limit:>12,}{goal:>12,}")
        if value > limit:
            too_large.append(name)
    print("\nLongest functions of the package, lines:")
    for length, place in functions[:_LONGEST]:
        print(f"{length:>6}  {place}")
    if too_large:
        sys.exit(f"Above the limit: {'; '.join(too_large)}. Limits are in .ci/size.py.")


def files(folder: str) -> list[Path]:
    """Return the Python files of a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


def tokens(path: Path) -> int:
    """Count the tokens of code of a file; an f-string is a string, as before Python 3.12."""
    count, depth = 0, 0
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            kind = tokenize.tok_name[token.type]
            depth += kind == "FSTRING_START"
            count += depth == 0 and kind not in _NOT_CODE
            depth -= kind == "FSTRING_END"
    return count


def assigns_tuple(node: ast.AST) -> bool:
    """Return whether a node is a, b = x, y."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    )


def longest(trees: dict[Path, ast.Module]) -> Iterator[tuple[int, str]]:
    """List lengths below the docstring, and places, of all functions."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                code = node.body[ast.get_docstring(node) is not None :]
                length = (node.end_lineno or 0) - code[0].lineno + 1 if code else 0
                yield length, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


if __name__ == "__main__":
    main()
