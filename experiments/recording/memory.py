"""Peak memory of a part of a run."""

from collections.abc import Callable
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_of(function: Callable[[], None]) -> float | None:
    """Call the function; return its peak memory beyond the memory before, in MB; None unless on Linux."""
    if not _RESET.exists():
        function()
        return None
    _RESET.write_text("5")  # reset the peak
    before = _resident("VmRSS")
    function()
    return (_resident("VmHWM") - before) / 1024


def _resident(entry: str) -> int:
    """Return an entry of the status of this process in kB."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{entry}:"))
