"""A panel with the decision of a classifier with two inputs, and where its inducing points went."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report.recorded import RecordedRun
from experiments.report.table import heading
from gpflow_pep.datasets import Dataset

LEGEND = "● training data, by class   — p = ½   ┄ p = ¼, ¾   ○—● inducing points, from start to end"
_CLASSES = ("#4477aa", "#ee6677")


def draw_decision(axes: Axes, run: RecordedRun, dataset: Dataset) -> None:
    """Training data, contours of the predictive probability, inducing points from start to end; in published units."""
    arrays = run.predictions
    x1, x2 = (
        arrays[name] * scale + mean
        for name, scale, mean in zip(("x1", "x2"), dataset.x_scale, dataset.x_mean, strict=True)
    )
    X, start, end = (Z * dataset.x_scale + dataset.x_mean for Z in (dataset.X_train, arrays["Z_start"], arrays["Z"]))
    for label, colour in enumerate(_CLASSES):
        axes.plot(*X[dataset.Y_train[:, 0] == label].T, ".", color=colour, alpha=0.45, markersize=5, markeredgewidth=0)
    probability = arrays["x_probability"]
    axes.contour(x1, x2, probability, [0.25, 0.75], colors="0.45", linewidths=0.9, linestyles="dashed")
    axes.contour(x1, x2, probability, [0.5], colors="black", linewidths=1.6)
    for path in np.stack([start, end], 1):  # [2, 2] each
        axes.plot(*path.T, color="black", linewidth=0.8, alpha=0.7)
    axes.plot(*start.T, "o", markersize=3.5, color="black", markerfacecolor="white", markeredgewidth=0.7)
    axes.plot(*end.T, "o", markersize=5.5, color="black", markeredgecolor="white", markeredgewidth=0.6)
    axes.set_title(run.title, fontsize=10)
    axes.set_xlim(x1[0], x1[-1])
    axes.set_ylim(x2[0], x2[-1])
    axes.set_xlabel("input 1")
    axes.spines[["top", "right"]].set_visible(False)


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
    figure.supxlabel(LEGEND, fontsize=9)
    figure.savefig(path, dpi=150)
