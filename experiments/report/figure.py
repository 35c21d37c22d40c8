"""A figure of recorded runs on one data set: scores, and fits, decisions or confusions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from experiments.datasets import Dataset
from experiments.report import confusion, decision, fit, progress
from experiments.report.recorded import RecordedRun
from experiments.report.scores_panels import color, draw_scores, height
from experiments.report.table import heading

_PANELS_A_ROW = 3
_ROW_HEIGHT = {"": 0.0, "fit": 2.3, "decision": 3.4, "confusion": 3.4}
_LEGENDS = {"fit": fit.add_legend, "decision": decision.add_legend, "confusion": confusion.add_legend}
_VERTICAL = {"fit": "y", "decision": "input 2", "confusion": "true class"}


def draw(runs: Sequence[RecordedRun], dataset: Dataset, path: Path) -> None:
    """
    Save the figure of the runs' scores and, with few enough inputs, of their predictions.

    :param dataset: data of the runs.
    :param path: PNG file.
    """
    if runs[0].task == "streaming":
        progress.draw_progress(runs, path)
        return
    kind = _kind(runs[0], dataset)
    num_rows = -(-len(runs) // _PANELS_A_ROW) if kind else 0
    heights = [height(runs), *[_ROW_HEIGHT[kind]] * num_rows]
    figure = Figure(figsize=(11.0, sum(heights) + 0.5), layout="constrained")
    figure.suptitle(heading(runs), fontsize=11)
    grid = figure.add_gridspec(1 + num_rows, 1, height_ratios=heights)
    draw_scores(figure, grid[0], runs)
    for row in range(num_rows):
        _draw_row(figure, grid[1 + row], runs, dataset, kind, first=row * _PANELS_A_ROW)
    if num_rows:
        _LEGENDS[kind](figure)
    figure.savefig(path, dpi=150)


def _kind(run: RecordedRun, dataset: Dataset) -> str:
    """Return the kind of panel for each run's predictions; empty if there are too many inputs."""
    num_inputs = dataset.X_train.shape[1]
    if run.task == "regression":
        return "fit" if num_inputs == 1 else ""
    if run.predictions["probability"].shape[1] > 1:
        return "confusion"
    return "decision" if num_inputs == 2 else ""


def _draw_row(
    figure: Figure, place: SubplotSpec, runs: Sequence[RecordedRun], dataset: Dataset, kind: str, first: int
) -> None:
    panels: Any = place.subgridspec(1, _PANELS_A_ROW).subplots(sharey=True)
    for position, axes in enumerate(panels, first):
        if position < len(runs):
            _draw_predictions(axes, runs[position], dataset, kind, color(position))
        else:
            axes.set_visible(False)
    panels[0].set_ylabel(_VERTICAL[kind])


def _draw_predictions(axes: Axes, run: RecordedRun, dataset: Dataset, kind: str, color: str) -> None:
    if kind == "fit":
        fit.draw_fit(axes, run, dataset, color)
    elif kind == "confusion":
        confusion.draw_confusion(axes, run, dataset)
    else:
        decision.draw_decision(axes, run, dataset)
