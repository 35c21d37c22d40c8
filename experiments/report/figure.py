"""A figure of recorded runs on one data set: their scores and, with a single input, their fits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from experiments.report.recorded import RecordedRun
from experiments.report.table import heading
from gpflow_pep.datasets import Dataset

_PANELS = (
    ("objective_per_point", "log evidence\n(nats per point)"),
    ("rmse", "test RMSE, standardised\n(← better)"),
    ("nlpd", "test NLPD, nats\n(← better)"),
    ("noise_sd", "noise s.d., standardised"),
)
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")  # Tol's bright scheme
_FITS_A_ROW = 3


def draw(runs: Sequence[RecordedRun], dataset: Dataset, path: Path) -> None:
    """
    Save the figure of the runs' scores and, where the data have one input, of their fits.

    :param dataset: what the runs were trained on.
    :param path: of the PNG file.
    """
    num_rows = -(-len(runs) // _FITS_A_ROW) if dataset.X_train.shape[1] == 1 else 0
    scores_height = 1.3 + 0.32 * len(runs)
    heights = [scores_height, *[2.3] * num_rows]
    figure = Figure(figsize=(11.0, sum(heights) + 0.5), layout="constrained")
    figure.suptitle(heading(runs), fontsize=11)
    grid = figure.add_gridspec(1 + num_rows, 1, height_ratios=heights)
    _draw_scores(figure, grid[0], runs)
    for row in range(num_rows):
        _draw_fits(figure, grid[1 + row], runs, dataset, first=row * _FITS_A_ROW)
    if num_rows:
        figure.supxlabel("● training data   — predictive mean, ± 2 s.d.   ▲ inducing points", fontsize=9)
    figure.savefig(path, dpi=150)


def _draw_scores(figure: Figure, place: SubplotSpec, runs: Sequence[RecordedRun]) -> None:
    panels: Any = place.subgridspec(1, len(_PANELS)).subplots(sharey=True)
    for axes, (name, label) in zip(panels, _PANELS, strict=True):
        values = [run.result[name] for run in runs]
        for position, (run, value) in enumerate(zip(runs, values, strict=True)):
            hollow = name == "objective_per_point" and not run.is_bound
            colour = _colour(position)
            axes.plot(value, position, "o", markersize=7, color=colour, markerfacecolor="white" if hollow else colour)
            text = f"{value:.3f}".replace("-", "−")
            axes.annotate(text, (value, position), (0, 6), textcoords="offset points", ha="center", fontsize=8)
        axes.set_xlabel(label)
        axes.margins(x=0.25)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(runs)), [run.title for run in runs])
    panels[0].set_ylim(len(runs) - 0.5, -0.8)
    panels[0].set_title("● lower bound   ○ approximation", fontsize=9)


def _draw_fits(figure: Figure, place: SubplotSpec, runs: Sequence[RecordedRun], dataset: Dataset, first: int) -> None:
    panels: Any = place.subgridspec(1, _FITS_A_ROW).subplots(sharey=True)
    for offset, axes in enumerate(panels):
        if first + offset >= len(runs):
            axes.set_visible(False)
            continue
        _draw_fit(axes, runs[first + offset], dataset, _colour(first + offset))
    panels[0].set_ylabel("y")


def _draw_fit(axes: Axes, run: RecordedRun, dataset: Dataset, colour: str) -> None:
    """Training data, predictive mean and 2 s.d. band, inducing points; in published units."""
    arrays = run.predictions
    x = (arrays["x"] * dataset.x_scale + dataset.x_mean).ravel()
    mean = (arrays["x_mean"] * dataset.y_scale + dataset.y_mean).ravel()
    sd = (np.sqrt(arrays["x_variance"]) * dataset.y_scale).ravel()
    axes.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=colour, alpha=0.2, linewidth=0)
    axes.plot(
        dataset.X_train * dataset.x_scale + dataset.x_mean,
        dataset.Y_train * dataset.y_scale + dataset.y_mean,
        ".",
        color="0.4",
        markersize=3,
    )
    axes.plot(x, mean, color=colour)
    Z = (arrays["Z"] * dataset.x_scale + dataset.x_mean).ravel()
    axes.plot(Z, np.full_like(Z, 0.04), "^", color="black", markersize=6, transform=axes.get_xaxis_transform())
    axes.set_title(run.title, fontsize=10)
    axes.set_xlabel("x")
    axes.set_xlim(x[0], x[-1])
    axes.spines[["top", "right"]].set_visible(False)


def _colour(position: int) -> str:
    return _COLOURS[position % len(_COLOURS)]
