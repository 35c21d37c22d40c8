"""Tables in Markdown, means and standard errors."""

from collections.abc import Sequence

import numpy as np


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown; the first column is left-aligned, the rest right-aligned."""
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    first, *others = (
        [cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])] for cells in lines
    )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [first, rule, *others])


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of two values or more."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def mean_and_error(values: Sequence[float], digits: int = 2) -> str:
    """Format mean and standard error."""
    error = f" ± {standard_error(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{error}"
