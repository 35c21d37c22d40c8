"""
setup.cfg lists all imported packages; the versions that are tested are its oldest and those of
constraints.txt.
"""

import ast
import configparser
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")


def requirements(section, name):
    return [Requirement(line) for line in SETUP[section][name].strip().splitlines()]


NEEDED = requirements("options", "install_requires")
EXPERIMENTS = requirements("options.extras_require", "experiments")
CLUSTER = requirements("options.extras_require", "cluster")
FILES = requirements("options.extras_require", "files")
DOCS = requirements("options.extras_require", "docs")
EXTRA, *TOOLS = requirements("options.extras_require", "dev")
IN_TESTS = {"pytest", "pytest-xdist", "slipcover", "hypothesis", "mpmath", "pandas"}
NEEDED_BY_OTHERS = {
    "setuptools": "distutils, of TF Probability; pkg_resources, of Sacred",
    "tensorboard": "tf.summary",
    "tf-keras": "gpflow.keras",
}


def names(*groups):
    return {canonicalize_name(each.name) for group in groups for each in group}


def imported(files):
    """
    The distributions that the files import, but for this repository's packages and the standard
    library.
    """
    modules = set()
    for node in (
        node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    ):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules.add(node.module.partition(".")[0])
    of = packages_distributions()
    others = (
        modules - sys.stdlib_module_names - {"gpflow_pep", "experiments", "campaign", "support"}
    )
    # What stands in for a module of a later Python is installed with an earlier one only.
    return {canonicalize_name(name) for module in others for name in of.get(module, [module])}


def test_the_package_needs_what_it_imports():
    assert (
        names(NEEDED, FILES) == imported(ROOT.glob("gpflow_pep/**/*.py")) | NEEDED_BY_OTHERS.keys()
    )


def test_the_experiments_need_what_they_import():
    """
    Campaigns, which test the package, may import the tools; records in databases SQLAlchemy, if it is
    installed.
    """
    optional = {"sqlalchemy"}
    found = imported(ROOT.glob("experiments/**/*.py"))
    assert found - names(NEEDED) - optional == names(EXPERIMENTS, CLUSTER) - NEEDED_BY_OTHERS.keys()
    campaigns = set(ROOT.glob("tests/campaign/*.py")) - set(ROOT.glob("tests/campaign/test_*.py"))
    assert imported(campaigns) <= names(NEEDED, EXPERIMENTS, TOOLS)


def test_the_tools_are_installed_with_the_experiments():
    assert (EXTRA.name, EXTRA.extras) == (
        "gpflow_pep",
        {"cluster", "databases", "docs", "experiments", "files"},
    )


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
    """
    All required packages, and those that the tests import; where 1.4 is the minimum, 1.4.something.
    """
    tested = [
        *NEEDED,
        *EXPERIMENTS,
        *CLUSTER,
        *FILES,
        *(each for each in TOOLS if each.name in IN_TESTS),
    ]
    expected = {each.name: lowest(each) for each in tested}
    found = versions("constraints-oldest.txt")
    assert found.keys() == expected.keys()
    for name, (version,) in found.items():
        assert f"{version}.".startswith(f"{expected[name]}."), name


def test_the_usual_versions():
    """Everything that is installed is pinned, and allowed."""
    pinned = versions("constraints.txt")
    for requirement in (*NEEDED, *EXPERIMENTS, *CLUSTER, *FILES, *DOCS, *TOOLS):
        assert all(
            requirement.specifier.contains(version) for version in pinned[requirement.name]
        ), requirement
