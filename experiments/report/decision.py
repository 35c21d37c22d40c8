"""
A panel with the decision of a classifier with two inputs, and its inducing points before and after
training.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.datasets import Dataset, Floats
from experiments.report.recorded import RecordedRun
from gpflow_pep.plotting import CLASSES

Style = dict[str, Any]

_DATA: Style = {
    "linestyle": "",
    "marker": ".",
    "alpha": 0.45,
    "markersize": 5,
    "markeredgewidth": 0,
}
_REGION = 0.2  # opacity
_HALF: Style = {"color": "black", "linewidth": 1.6}
_QUARTERS: Style = {"color": "0.45", "linewidth": 0.9, "linestyle": "dashed"}
_START: Style = {
    "color": "black",
    "marker": "o",
    "linestyle": "",
    "markersize": 3.5,
    "markerfacecolor": "white",
}
_END: Style = {
    "color": "black",
    "marker": "o",
    "linestyle": "",
    "markersize": 5.5,
    "markeredgecolor": "white",
}
_WAY: Style = {"color": "black", "linewidth": 0.8}


def draw_decision(axes: Axes, run: RecordedRun, dataset: Dataset) -> None:
    """
    Draw training data, contours of the predictive probability or regions of the most probable
    class, and inducing points from start to end, in published units.
    """
    arrays = run.predictions
    x1, x2 = dataset.published_x(np.stack([arrays["x1"], arrays["x2"]], axis=1)).T
    X, start, end = map(dataset.published_x, (dataset.X_train, arrays["Z_start"], arrays["Z"]))
    for label, color in enumerate(CLASSES):
        axes.plot(*X[dataset.Y_train[:, 0] == label].T, color=color, **_DATA)
    if arrays["x_probability"].ndim == 2:
        for levels, style in (([0.25, 0.75], _QUARTERS), ([0.5], _HALF)):
            axes.contour(x1, x2, arrays["x_probability"], levels, **_contours(style))
    else:
        _draw_regions(axes, x1, x2, arrays["x_probability"])
    sets = (
        [(start, end, "black")] if end.ndim == 2 else list(zip(start, end, CLASSES, strict=False))
    )
    outside = [_draw_inducing_points(axes, x1, x2, *points) for points in sets]
    if any(outside):
        text = f"{sum(outside)} of {end.size // 2} end outside"
        axes.text(
            0.02,
            0.02,
            text,
            fontsize=8,
            transform=axes.transAxes,
            bbox={"color": "white", "pad": 1},
        )
    axes.set_title(run.title, fontsize=10)
    axes.set(xlabel="input 1", ylabel="input 2", xlim=x1[[0, -1]], ylim=x2[[0, -1]])
    axes.label_outer()
    axes.spines[["top", "right"]].set_visible(False)


def _draw_regions(axes: Axes, x1: Floats, x2: Floats, probability: Floats) -> None:
    """Draw the region in which each class is the most probable, given probabilities [x2, x1, C]."""
    for label, color in enumerate(CLASSES[: probability.shape[2]]):
        lead = probability[..., label] - np.delete(probability, label, axis=2).max(axis=2)
        axes.contourf(x1, x2, lead, [0.0, 1.0], colors=[color], alpha=_REGION)
        axes.contour(x1, x2, lead, [0.0], **_contours(_HALF))


def _contours(style: Style) -> Style:
    """Translate the style of a line to arguments of contours."""
    return {f"{name}s": value for name, value in style.items()}


def _draw_inducing_points(
    axes: Axes, x1: Floats, x2: Floats, start: Floats, end: Floats, color: str
) -> int:
    """
    Draw inducing points from start to end [M, 2]; return the number that end outside of the figure.
    """
    outside = ((end < [x1[0], x2[0]]) | (end > [x1[-1], x2[-1]])).any(axis=1)  # [M]
    for path, fades in zip(np.stack([start, end], 1), outside, strict=True):  # [2, 2] each
        axes.plot(*path.T, alpha=0.25 if fades else 0.7, **_WAY | {"color": color})
    axes.plot(*start.T, markeredgewidth=0.7, **_START | {"color": color})
    axes.plot(*end.T, markeredgewidth=0.6, **_END | {"color": color})
    return outside.sum()


def add_legend(figure: Figure, num_classes: int, columns: int) -> None:
    """Write the legend below the figure, in so many columns."""
    styles = {f"class {k}": _DATA | {"color": CLASSES[k]} for k in range(num_classes)}
    if num_classes == 2:
        styles |= {"p = ½": _HALF, "p = ¼, ¾": _QUARTERS}
    else:
        styles["most probable class changes"] = _HALF
    styles |= {"inducing points at the start": _START, "at the end": _END}
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=9, frameon=False
    )
