"""A figure of recorded runs on one data set: their scores and, with one or two inputs, their fits or decisions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from experiments.report import decision, fit
from experiments.report.recorded import RecordedRun
from experiments.report.scores_panels import colour, draw_scores, height
from experiments.report.table import heading
from gpflow_pep.datasets import Dataset

_PANELS_A_ROW = 3
_ROW_HEIGHT = {"regression": 2.3, "classification": 3.4}
_NUM_INPUTS = {"regression": 1, "classification": 2}  # that can be drawn


def draw(runs: Sequence[RecordedRun], dataset: Dataset, path: Path) -> None:
    """
    Save the figure of the runs' scores and, where there are few enough inputs, of their predictions.

    :param dataset: what the runs were trained on.
    :param path: of the PNG file.
    """
    task = runs[0].task
    num_rows = -(-len(runs) // _PANELS_A_ROW) if dataset.X_train.shape[1] == _NUM_INPUTS[task] else 0
    heights = [height(runs), *[_ROW_HEIGHT[task]] * num_rows]
    figure = Figure(figsize=(11.0, sum(heights) + 0.5), layout="constrained")
    figure.suptitle(heading(runs), fontsize=11)
    grid = figure.add_gridspec(1 + num_rows, 1, height_ratios=heights)
    draw_scores(figure, grid[0], runs)
    for row in range(num_rows):
        _draw_row(figure, grid[1 + row], runs, dataset, first=row * _PANELS_A_ROW)
    if num_rows:
        (fit.add_legend if task == "regression" else decision.add_legend)(figure)
    figure.savefig(path, dpi=150)


def _draw_row(figure: Figure, place: SubplotSpec, runs: Sequence[RecordedRun], dataset: Dataset, first: int) -> None:
    panels: Any = place.subgridspec(1, _PANELS_A_ROW).subplots(sharey=True)
    for position, axes in enumerate(panels, first):
        if position < len(runs):
            _draw_predictions(axes, runs[position], dataset, colour(position))
        else:
            axes.set_visible(False)
    panels[0].set_ylabel("y" if runs[0].task == "regression" else "input 2")


def _draw_predictions(axes: Axes, run: RecordedRun, dataset: Dataset, colour: str) -> None:
    if run.task == "regression":
        fit.draw_fit(axes, run, dataset, colour)
    else:
        decision.draw_decision(axes, run, dataset)
