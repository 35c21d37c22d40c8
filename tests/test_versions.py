"""The versions that are tested are those that setup.cfg allows: the oldest ones, and those of constraints.txt."""

import configparser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
NEEDED = [Requirement(line) for line in SETUP["options"]["install_requires"].strip().splitlines()]
TOOLS = [Requirement(line) for line in SETUP["options.extras_require"]["dev"].strip().splitlines()]
IN_TESTS = {"pytest", "pytest-xdist", "pytest-cov", "hypothesis", "mpmath"}


def versions(name):
    """Of a file of constraints: {name: versions}, several where they depend on the Python."""
    found = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            package, version = line.split(";")[0].strip().split("==")
            found.setdefault(package, []).append(version)
    return found


def lowest(requirement):
    (specifier,) = (each for each in requirement.specifier if each.operator == ">=")
    return specifier.version


def test_the_oldest_versions():
    """All that the package needs, and what its tests import; where 1.4 is the minimum, 1.4.something."""
    expected = {each.name: lowest(each) for each in (*NEEDED, *TOOLS) if each in NEEDED or each.name in IN_TESTS}
    found = versions("constraints-oldest.txt")
    assert found.keys() == expected.keys()
    for name, (version,) in found.items():
        assert f"{version}.".startswith(f"{expected[name]}."), name


@pytest.mark.parametrize("requirement", [*NEEDED, *TOOLS], ids=str)
def test_the_usual_versions(requirement):
    """What is installed is pinned, and allowed."""
    found = versions("constraints.txt")[requirement.name]
    assert all(requirement.specifier.contains(version) for version in found)
