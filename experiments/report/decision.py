"""A panel with the decision of a classifier with two inputs, and where its inducing points went."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.report.recorded import RecordedRun
from experiments.report.table import heading
from gpflow_pep.datasets import Dataset

_CLASSES = ("#4477aa", "#ee6677")
_DATA: dict[str, Any] = {"linestyle": "", "marker": ".", "alpha": 0.45, "markersize": 5, "markeredgewidth": 0}
_HALF: dict[str, Any] = {"color": "black", "linewidth": 1.6}
_QUARTERS: dict[str, Any] = {"color": "0.45", "linewidth": 0.9, "linestyle": "dashed"}
_START: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 3.5, "markerfacecolor": "white"}
_END: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 5.5, "markeredgecolor": "white"}
_WAY: dict[str, Any] = {"color": "black", "linewidth": 0.8}


def draw_decision(axes: Axes, run: RecordedRun, dataset: Dataset) -> None:
    """Training data, contours of the predictive probability, inducing points from start to end; in published units."""
    arrays = run.predictions
    x1, x2 = (
        arrays[name] * scale + mean
        for name, scale, mean in zip(("x1", "x2"), dataset.x_scale, dataset.x_mean, strict=True)
    )
    X, start, end = (Z * dataset.x_scale + dataset.x_mean for Z in (dataset.X_train, arrays["Z_start"], arrays["Z"]))
    for label, colour in enumerate(_CLASSES):
        axes.plot(*X[dataset.Y_train[:, 0] == label].T, color=colour, **_DATA)
    for levels, style in (([0.25, 0.75], _QUARTERS), ([0.5], _HALF)):
        contours = {f"{name}s": value for name, value in style.items()}
        axes.contour(x1, x2, arrays["x_probability"], levels, **contours)
    outside = ((end < [x1[0], x2[0]]) | (end > [x1[-1], x2[-1]])).any(axis=1)  # [M]
    for path, fades in zip(np.stack([start, end], 1), outside, strict=True):  # [2, 2] each
        axes.plot(*path.T, alpha=0.25 if fades else 0.7, **_WAY)
    axes.plot(*start.T, linestyle="", markeredgewidth=0.7, **_START)
    axes.plot(*end.T, linestyle="", markeredgewidth=0.6, **_END)
    if outside.any():
        text = f"{outside.sum()} of {len(end)} end outside"
        axes.text(0.02, 0.02, text, fontsize=8, transform=axes.transAxes, bbox={"color": "white", "pad": 1})
    axes.set_title(run.title, fontsize=10)
    axes.set_xlim(x1[0], x1[-1])
    axes.set_ylim(x2[0], x2[-1])
    axes.set_xlabel("input 1")
    axes.spines[["top", "right"]].set_visible(False)


def add_legend(figure: Figure) -> None:
    """Say below the figure what the panels show."""
    handles = [
        *(Line2D([], [], color=colour, label=f"class {k}", **_DATA) for k, colour in enumerate(_CLASSES)),
        Line2D([], [], label="p = ½", **_HALF),
        Line2D([], [], label="p = ¼, ¾", **_QUARTERS),
        Line2D([], [], label="inducing points at the start", linestyle="", **_START),
        Line2D([], [], label="at the end", linestyle="", **_END),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False)


def draw_panels(runs: Sequence[RecordedRun], dataset: Dataset, path: Path) -> None:
    """
    Save a figure with a panel for each run, side by side.

    :param path: of the PNG file.
    """
    columns = min(len(runs), 4)
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(3.6 * columns, 3.7 * rows + 0.6), layout="constrained")
    figure.suptitle(heading(runs), fontsize=11)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, run in zip(panels.flat, runs, strict=False):
        draw_decision(axes, run, dataset)
    for axes in panels.flat[len(runs) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("input 2")
    add_legend(figure)
    figure.savefig(path, dpi=150)
