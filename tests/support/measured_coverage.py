"""A pytest plugin that measures which lines and branches of the package the tests run, in all test processes.

SlipCover takes a few per cent of the time: it stops to measure a line that has run. By itself (1.1.0) it loses what
processes of pytest-xdist measure. Here each of them measures from before the package is imported, and the first adds
up.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from slipcover import FileMatcher, ImportManager, Slipcover, merge_coverage, print_coverage

_PACKAGE = Path(__file__).parents[2] / "gpflow_pep"
_REQUIRED = 95.0  # per cent

_here = Slipcover(branch=True, source=[str(_PACKAGE)])  # what this process has run
_reported: list[dict[str, Any]] = []  # what other test processes have
# Now, for the rest of the process: pytest imports conftest.py, and with it the package, before it calls any hook.
ImportManager(_here, FileMatcher(sources=[_PACKAGE])).__enter__()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the report of a test process that has ended; one that crashed has none."""
    if hasattr(node, "workeroutput"):
        _reported.append(json.loads(node.workeroutput["coverage"]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report to the first process; in that one, fail if too little has run."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["coverage"] = json.dumps(_here.get_coverage())
    elif session.exitstatus == pytest.ExitCode.OK and _total()["summary"]["percent_covered"] < _REQUIRED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what has not run."""
    total = _total()
    terminalreporter.section(f"coverage {total['summary']['percent_covered']:.1f} %; {_REQUIRED:.0f} % required")
    print_coverage(total, skip_covered=True, missing_width=60)


def _total() -> dict[str, Any]:
    total: dict[str, Any] = _here.get_coverage()
    for report in _reported:
        merge_coverage(total, report)
    return total
