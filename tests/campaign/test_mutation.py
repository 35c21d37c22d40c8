"""Mutation tests: their mutants, their seeds and their table."""

import ast
import inspect
import json
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from itertools import islice

import pytest

from campaign import mutation
from campaign.mutation import TESTS, Mutant, Mutations, drawn, modules, noticing, run
from campaign.running import Outcome


def expressions(source):
    """Return the changed sources."""
    mutations = Mutations("", source)
    return [
        change.source.strip() for number in range(len(mutations)) for change in mutations.at(number)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b", {"a - b", "a", "b"}),
        ("a - b", {"a + b", "a", "-b"}),
        ("a * b", {"a / b"}),
        ("a / b", {"a * b"}),
        ("a // b", {"a * b"}),
        ("a & ~b", {"a | ~b", "a & b"}),
        ("a and b", {"a or b"}),
        ("a < b", {"a <= b", "a > b"}),
        ("a >= b", {"a > b"}),
        ("a == b", {"a != b"}),
        ("-a", {"a"}),
        ("3.0", {"6.0", "4.0", "-3.0"}),
        ("0", {"1"}),
        ("1.0", {"0.0"}),
        ("tf.minimum(a, b)", {"tf.maximum(a, b)"}),
        ("tf.reduce_max(a)", {"tf.reduce_min(a)"}),
        ("tf.where(a, b, c)", {"tf.where(a, c, b)"}),
        ("f(a, lower=True)", {"f(a, lower=False)"}),
    ],
)
def test_changes_of_an_expression(source, expected):
    found = expressions(f"x = {source}")
    assert len(found) == len(expected)
    assert set(found) == {f"x = {each}" for each in expected}


def test_statements_are_left_out_if_the_rest_can_run():
    found = expressions("def f(a, b):\n    c = a\n    a = g(a)\n    c += b\n    h(a)\n    return c")
    assert [each.splitlines().index("    pass") for each in found] == [2, 3, 4]


def test_docstrings_types_messages_and_decorators_are_left_alone():
    source = '''
        """One + 1."""
        __all__ = ["a" + "b"]
        number: Literal[1] = two
        @check_shapes(1)
        def f(a: Tensor[1 + 1]) -> Tensor[2]:
            """One + 1."""
            raise ValueError(1 + 1)
            return f"{a + 1:.2f}", zip(a, strict=True)
    '''
    assert not expressions(inspect.cleandoc(source))


def test_mutants_differ_from_the_package_and_follow_from_the_seed():
    one, again, other = (
        list(islice(drawn(["maths/normal.py", "maths/linalg.py"], seed), 20)) for seed in (1, 1, 2)
    )
    assert one == again != other
    assert len(set(one)) == len(one)
    for mutant in one:
        intact = ast.unparse(ast.parse((mutation._PACKAGE / mutant.module).read_text()))
        assert ast.unparse(ast.parse(mutant.source)) != intact


def test_every_module_has_tests():
    found = modules(TESTS)
    assert "maths/linalg.py" in found
    assert "ep/sweep.py" in found
    assert not any("__init__" in name for name in found)
    for module in found:
        assert noticing(module)
        for path in noticing(module):
            assert mutation.Path(path).exists()


def test_a_module_is_loaded_from_the_mutated_source(monkeypatch, tmp_path):
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    mutation.install(Mutant("maths/normal.py", 1, "number", "1", "2", "answer = 42"), tmp_path)

    def names(module):
        namespace = {"__name__": module, "__package__": module.rpartition(".")[0]}
        exec(find_spec(module).loader.get_code(module), namespace)
        return namespace

    assert names("gpflow_pep.maths.normal")["answer"] == 42
    assert "answer" not in names("gpflow_pep.maths.linalg")


def test_the_command(monkeypatch, capsys, tmp_path):
    """Without processes: the first of three mutants is not noticed, and the table says so."""
    ends = iter(["survived", "survived", "killed", "too long"])
    monkeypatch.setattr(
        mutation, "run", lambda *_: Outcome(next(ends), 1.0, "tests/maths/test_normal.py::test")
    )
    output = tmp_path / "mutants.json"
    monkeypatch.setattr(
        "sys.argv", f"mutation --mutants 3 --modules maths/normal.py --output {output}".split()
    )
    mutation.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("0 maths") and "survived" in lines[1]
    assert lines[-1].split()[:5] == ["all", "3", "1", "1", "1"]
    assert len(json.loads(output.read_text())) == 1


def test_a_mutant_is_killed():
    """In a process of its own, whose tests pass without the change."""
    tests = ["tests/maths/test_normal.py"]
    assert run(None, tests).verdict == "survived"
    source = (mutation._PACKAGE / "maths/normal.py").read_text().replace("0.5", "0.6")
    outcome = run(Mutant("maths/normal.py", 1, "number", "0.5", "0.6", source), tests)
    assert outcome.verdict == "killed" and "test_normal" in outcome.message


def test_tests_that_fail_without_a_change_end_it(monkeypatch):
    monkeypatch.setattr(
        mutation, "run", lambda *_: Outcome("killed", 1.0, "tests/maths/test_normal.py::test")
    )
    monkeypatch.setattr("sys.argv", ["mutation", "--modules", "maths/normal.py"])
    with pytest.raises(SystemExit, match="fail without a change: tests/maths/test_normal"):
        mutation.main()
