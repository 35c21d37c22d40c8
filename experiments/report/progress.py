"""A figure of streams: scores in the course of time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.report.recorded import RecordedRun
from experiments.report.scores_panels import color
from experiments.report.table import heading

_SCORES = (
    ("rmse", "RMSE, standardized (↓ better)"),
    ("error", "error, fraction (↓ better)"),
    ("log_likelihood", "mean log likelihood, nats (↑ better)"),
)
_LOWEST = 3.0  # the axis ends this many standard deviations below the better half of log likelihoods


def draw_progress(runs: Sequence[RecordedRun], path: Path) -> None:
    """
    Save a figure of the scores against seconds of training (left) and training rows (right).

    :param path: PNG file.
    """
    shown = [(name, label) for name, label in _SCORES if name in runs[0].predictions]
    figure = Figure(figsize=(11.0, 3.0 * len(shown) + 0.8), layout="constrained")
    figure.suptitle(f"{heading(runs)}; test points passed so far", fontsize=11)
    panels = figure.subplots(len(shown), 2, sharey="row", squeeze=False)
    for row, (name, label) in zip(panels, shown, strict=True):
        for axes, (against, unit) in zip(row, (("seconds", "seconds"), ("seen", "training rows")), strict=True):
            for position, run in enumerate(runs):
                x, y = run.predictions[against], run.predictions[name]
                marker = "o" if len(x) == 1 else "."
                axes.plot(x, y, marker, color=color(position), linestyle="-", markersize=4, label=run.title)
            if against == "seconds":
                axes.set_xscale("log")
            axes.set_xlabel(unit)
            axes.grid(color="0.93")
            axes.spines[["top", "right"]].set_visible(False)
        if name == "log_likelihood":
            values = np.concatenate([run.predictions[name] for run in runs])
            upper = values[values >= np.median(values)]
            row[0].set_ylim(bottom=max(values.min(), np.median(values) - _LOWEST * (np.ptp(upper) + 0.1)) - 0.05)
        row[0].set_ylabel(label)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(runs), 4), fontsize=9, frameon=False)
    figure.savefig(path, dpi=150)
