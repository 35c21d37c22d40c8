"""
The Makefile installs into an environment of this checkout only, and only if the requirements have
changed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("Makefile", "setup.cfg", "pyproject.toml", "constraints.txt")
PYTHON = """#!/bin/sh
case "$*" in
*direct_url*) cat '{owner}' 2>/dev/null ;;
*install*) echo "$*" >>'{installs}' ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


class Checkout:
    """
    A copy of the requirements, and an environment whose Python notes installations instead of
    making them.
    """

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment
        folder.mkdir()
        for name in FILES:
            shutil.copy(ROOT / name, folder)

    def make(self):
        command = ["make", "lint", f"VENV={self.environment}"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def require(self):
        """Change the requirements."""
        with (self.folder / "setup.cfg").open("a") as file:
            file.write("# another\n")
        self.touch()

    def touch(self):
        """Make the requirements newer than any stamp."""
        for name in FILES:
            later = (self.environment / ".made").stat().st_mtime + 1e6
            os.utime(self.folder / name, (later, later))


@pytest.fixture
def environment(tmp_path):
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    major, minor = sys.version_info[:2]
    (folder / ".made").write_text(f"{major}.{minor}\n")
    python = folder / "bin" / "python"
    python.write_text(PYTHON.format(owner=folder / "owner", installs=folder / "installs"))
    python.chmod(0o755)
    return folder


def installs(environment):
    path = environment / "installs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_requirements_are_installed_when_their_content_changes(tmp_path, environment):
    own = Checkout(tmp_path / "own", environment)
    expected = 1
    for act in (own.touch, lambda: None, own.touch, own.require, own.touch):
        act()
        expected += act == own.require
        assert own.make().returncode == 0
        (environment / "owner").write_text(str(own.folder))
        assert installs(environment) == expected


@pytest.mark.parametrize("stamp", ["of this version", "of an earlier version"])
def test_the_environment_of_another_checkout_is_never_changed(tmp_path, environment, stamp):
    own, copy = (Checkout(tmp_path / name, environment) for name in ("own", "copy"))
    assert own.make().returncode == 0
    (environment / "owner").write_text(str(own.folder))
    if stamp == "of an earlier version":
        (environment / ".installed-dev").write_text("")
    copy.touch()
    assert copy.make().returncode == 0  # the same requirements
    copy.require()
    refused = copy.make()
    assert refused.returncode != 0
    assert f"{environment} is the environment of {own.folder}" in refused.stderr
    assert installs(environment) == 1
