"""
A pytest plugin that measures which lines and branches of the package the tests run, in all test
processes.

Tests may run in two parts: the first one saves its coverage, the second one adds that to its own.

SlipCover takes a few per cent of the time: it stops to measure a line that has run. By itself
(1.1.0) it loses what processes of pytest-xdist measure. Here each of them measures from before the
package is imported, and the first adds up.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from slipcover import FileMatcher, ImportManager, Slipcover, merge_coverage, print_coverage

_PACKAGE = Path(__file__).parents[2] / "gpflow_pep"
_REQUIRED = 95.0  # per cent

_here = Slipcover(branch=True, source=[str(_PACKAGE)])  # lines run by this process
_reported: list[dict[str, Any]] = []  # reports of the remaining test processes
# Now, for the rest of the process: pytest imports conftest.py, and with it the package, before it
# calls any hook.
ImportManager(_here, FileMatcher(sources=[_PACKAGE])).__enter__()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of tests in two parts."""
    group = parser.getgroup("coverage")
    group.addoption(
        "--save-coverage",
        type=Path,
        help="write what these tests run to this file; require nothing",
    )
    group.addoption(
        "--add-coverage", type=Path, help="add the coverage of the tests that wrote this file"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """
    Load no conftest.py in the process that only distributes tests: it would import TensorFlow and
    start late.
    """
    options = early_config.known_args_namespace
    options.noconftest |= (
        bool(getattr(options, "numprocesses", None)) and "PYTEST_XDIST_WORKER" not in os.environ
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take the report of the other part of the tests, in the first process."""
    if config.getoption("add_coverage") is not None and not hasattr(config, "workerinput"):
        _reported.append(json.loads(config.getoption("add_coverage").read_text()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the report of a test process that has ended; one that crashed has none."""
    if hasattr(node, "workeroutput"):
        _reported.append(json.loads(node.workeroutput["coverage"]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """
    Report to the first process; in that one, save the measurement, or fail if too little has run.
    """
    saved: Path | None = session.config.getoption("save_coverage")
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["coverage"] = json.dumps(_here.get_coverage())
    elif saved is not None:
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(json.dumps(_total()))
    elif (
        session.exitstatus == pytest.ExitCode.OK
        and _total()["summary"]["percent_covered"] < _REQUIRED
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print lines and branches that no part of the tests has run."""
    if config.getoption("save_coverage") is not None:
        return
    total = _total()
    terminalreporter.section(
        f"coverage {total['summary']['percent_covered']:.1f} %; {_REQUIRED:.0f} % required"
    )
    print_coverage(total, skip_covered=True, missing_width=60)


def _total() -> dict[str, Any]:
    total: dict[str, Any] = _here.get_coverage()
    for report in _reported:
        merge_coverage(total, report)
    return total
