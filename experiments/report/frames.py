"""
Frames of the posterior and its inducing points in the course of a stream with one input, or of
labels with two.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.datasets import Dataset
from experiments.report.fit import draw_posterior
from experiments.report.recorded import RecordedRun
from experiments.report.style import color
from gpflow_pep.plotting import CLASSES, OLD_ROWS, ROWS, draw_inducing_points

_MOST = 6  # largest number of frames


def draw_frames(runs: Sequence[RecordedRun], streams: Sequence[Dataset]) -> Figure:
    """
    Return a figure with a row for each run and a column for some of the batches, in published
    units.

    One input: mean and 2 s.d. of the posterior. Two inputs and labels: the boundary.

    :param streams: data of each run, training rows in the order of arrival.
    """
    total = len(runs[0].predictions["seen"])
    shown = np.unique(np.linspace(0, total - 1, min(total, _MOST)).astype(int))
    one_input = runs[0].predictions["x"].shape[1] == 1
    height = 2.1 if one_input else 2.8
    figure = Figure(figsize=(2.8 * len(shown), height * len(runs) + 0.3), layout="constrained")
    rows = figure.subplots(len(runs), len(shown), sharex=True, sharey=True, squeeze=False)
    for position, (row, run, stream) in enumerate(zip(rows, runs, streams, strict=True)):
        for axes, number in zip(row, shown, strict=True):
            seen = np.append(0, run.predictions["seen"]).astype(int)
            batch = slice(*seen[number : number + 2])
            _draw_frame(axes, run, stream, number, batch, color(position))
            axes.set_title(f"{batch.stop} rows", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(run.title, fontsize=9)
    if one_input:
        targets = streams[0].published_y(streams[0].Y_train)
        low, high = targets.min(), targets.max()
        rows[0, 0].set_ylim(1.3 * low - 0.3 * high, 1.15 * high - 0.15 * low)
    figure.supxlabel("x" if one_input else "input 1", fontsize=9)
    figure.supylabel("y" if one_input else "input 2", fontsize=9)
    return figure


def _draw_frame(
    axes: Axes, run: RecordedRun, stream: Dataset, number: int, batch: slice, color: str
) -> None:
    arrays = run.predictions
    mean, variance, Z = (arrays[name][number] for name in ("x_mean", "x_variance", "Z"))
    X, x = map(stream.published_x, (stream.X_train, arrays["x"]))
    if X.shape[1] == 1:
        Y = stream.published_y(stream.Y_train)
        for rows, shade in ((slice(batch.start), OLD_ROWS), (batch, ROWS)):
            axes.plot(X[rows], Y[rows], ".", color=shade, markersize=4)
        draw_posterior(axes, stream, color, arrays["x"], mean, variance, Z)
        return
    for rows, opacity in ((slice(batch.start), 0.25), (batch, 1.0)):
        for label, mark in enumerate("ox"):
            chosen = X[rows][stream.Y_train[rows, 0] == label]
            axes.plot(
                *chosen.T, mark, color=CLASSES[label], markersize=3, alpha=opacity, fillstyle="none"
            )
    side = int(len(x) ** 0.5)
    grid = mean.reshape(side, side)
    axes.contour(x[:side, 0], x[::side, 1], grid, [0.5], colors="black", linewidths=1.4)
    draw_inducing_points(axes, stream.published_x(Z))
