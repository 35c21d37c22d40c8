"""Memory of this process; its peak on Linux."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

MEGABYTE = 2**20
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
T = TypeVar("T")


def peak_of(function: Callable[[], T]) -> tuple[T, float | None]:
    """
    Call the function; return its result, and its peak memory beyond the memory before, in MB; None
    unless on Linux.
    """
    if not _RESET.exists():
        return function(), None
    _RESET.write_text("5")  # reset the peak
    before = psutil.Process().memory_info().rss
    result = function()
    (peak,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return result, (1024 * int(peak.split()[1]) - before) / MEGABYTE
