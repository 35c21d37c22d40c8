"""A figure of test error and NLPD against another quantity, for several methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.ingredients.initialization import Floats
from experiments.report.scores_panels import color

PANELS = {"error": "test error, fraction", "nlpd": "test NLPD, nats"}
_LINES = ("solid", "dashed", "dotted", "dashdot")


@dataclass(frozen=True)
class Curve:
    """Scores of a method along an axis."""

    label: str
    """Text of the legend."""

    x: Floats
    """Coordinates along the axis [n]."""

    scores: dict[str, Floats]
    """Values [repetitions, n] for each of `PANELS`, drawn as mean and standard error."""

    color: int
    """Index of its color."""

    line: int = 0
    """Index of its line style."""


def draw_curves(curves: Sequence[Curve], title: str, along: str, path: Path, *, log_axis: bool = False) -> None:
    """
    Save a figure with a panel for each score.

    :param along: label of the axis.
    :param path: PNG file.
    """
    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels: Any = figure.subplots(1, len(PANELS))
    for axes, (name, label) in zip(panels, PANELS.items(), strict=True):
        for curve in curves:
            values, line = curve.scores[name], _LINES[curve.line % len(_LINES)]
            mean = values.mean(axis=0)
            axes.plot(curve.x, mean, color=color(curve.color), linestyle=line, label=curve.label)
            if len(values) > 1:
                error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
                axes.fill_between(curve.x, mean - error, mean + error, color=color(curve.color), alpha=0.15, lw=0)
        axes.set_xlabel(along)
        axes.set_ylabel(label)
        if log_axis:
            axes.set_xscale("log")
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize=9, frameon=False)
    figure.savefig(path, dpi=150)
