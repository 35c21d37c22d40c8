"""Colors, markers and axes of figures; lines differ without color, too."""

from typing import Any

from matplotlib.axes import Axes

from gpflow_pep.plotting import CLASSES, PREDICTION

_COLORS = (PREDICTION, *CLASSES)
_MARKERS = "os^Dv*X"
_DASHES = ("solid", "dashed", "dashdot", "dotted")


def color(position: int) -> str:
    """Return the color of a line, by its position in the figure."""
    return _COLORS[position % len(_COLORS)]


def marker(position: int) -> str:
    """Return the marker of a line, by its position in the figure."""
    return _MARKERS[position % len(_MARKERS)]


def line_style(position: int) -> dict[str, Any]:
    """
    Return the look of a line, by its position in the figure; lines below each other stay visible.
    """
    return {
        "color": color(position),
        "marker": marker(position),
        "markersize": 4,
        "linewidth": 1.2,
        "linestyle": _DASHES[position % len(_DASHES)],
    }


def tidy(axes: Axes, x: str, y: str, *, logarithmic: bool = False) -> None:
    """Label the axes and draw a grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if logarithmic:
        axes.set_xscale("log")
    axes.grid(color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
