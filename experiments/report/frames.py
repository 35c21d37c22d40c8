"""Frames of the posterior and its inducing points in the course of a stream with one input."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.datasets import Dataset
from experiments.report.recorded import RecordedRun
from experiments.report.scores_panels import color

_MOST = 6  # largest number of frames


def draw_frames(runs: Sequence[RecordedRun], streams: Sequence[Dataset], path: Path) -> None:
    """
    Save a figure with a row for each run and a column for some of the batches, in published units.

    :param streams: data of each run, training rows in the order of arrival.
    :param path: PNG file.
    """
    total = len(runs[0].predictions["seen"])
    shown = np.unique(np.linspace(0, total - 1, min(total, _MOST)).astype(int))
    figure = Figure(figsize=(3.6 * len(shown), 2.1 * len(runs) + 0.5), layout="constrained")
    rows = figure.subplots(len(runs), len(shown), sharex=True, sharey=True, squeeze=False)
    for position, (row, run, stream) in enumerate(zip(rows, runs, streams, strict=True)):
        for axes, number in zip(row, shown, strict=True):
            _draw_frame(axes, run, stream, int(number), color(position))
        row[0].set_ylabel(f"{run.title}\n{run.config['data']['order']}", fontsize=9)
    targets = streams[0].Y_train * streams[0].y_scale + streams[0].y_mean
    low, high = float(targets.min()), float(targets.max())
    rows[0, 0].set_ylim(1.3 * low - 0.3 * high, 1.15 * high - 0.15 * low)
    figure.supxlabel(
        "● rows of the batch (pale: before it)   — predictive mean, ± 2 s.d.   ▲ inducing points", fontsize=9
    )
    figure.savefig(path, dpi=150)


def _draw_frame(axes: Axes, run: RecordedRun, stream: Dataset, number: int, color: str) -> None:
    arrays = run.predictions
    seen = arrays["seen"].astype(int)
    batch = slice(seen[number - 1] if number else 0, seen[number])
    X, Z = (values * stream.x_scale + stream.x_mean for values in (stream.X_train, arrays["Z"][number]))
    x = (arrays["x"] * stream.x_scale + stream.x_mean).ravel()
    Y = stream.Y_train * stream.y_scale + stream.y_mean
    mean = (arrays["x_mean"][number] * stream.y_scale + stream.y_mean).ravel()
    sd = (np.sqrt(arrays["x_variance"][number]) * stream.y_scale).ravel()
    axes.plot(X[: batch.start], Y[: batch.start], ".", color="0.8", markersize=4)
    axes.plot(X[batch], Y[batch], ".", color="0.25", markersize=4)
    axes.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=color, alpha=0.2, linewidth=0)
    axes.plot(x, mean, color=color)
    axes.plot(Z.ravel(), np.full(len(Z), 0.05), "^", color="black", markersize=5, transform=axes.get_xaxis_transform())
    axes.set_title(f"{seen[number]} rows", fontsize=10)
    axes.set_xlim(x[0], x[-1])
    axes.spines[["top", "right"]].set_visible(False)
