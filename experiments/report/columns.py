"""Text in aligned columns."""

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A table: headings, a rule, the other lines; the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = (_line(cells, widths) for cells in lines)
    return "\n".join([first, "-" * len(first), *others])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left, *right = zip(cells, widths, strict=True)
    return "  ".join([left[0].ljust(left[1]), *(cell.rjust(width) for cell, width in right)])
