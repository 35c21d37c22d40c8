"""
Figures of pairs of alphas, all else equal: scatter, differences, counts by data set.
"""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.papers.grid import Label, Records, by_label, matched
from experiments.papers.pictures import Picture, add_legend, line_label
from experiments.papers.tables import Score
from experiments.report.style import color, marker, tidy

Pair = tuple[Label, Label]


def matrix(records: Records, score: Score, title: str) -> Picture:
    """Draw a score at each alpha against the score at every other alpha."""
    values = list(by_label(records, "alpha"))
    size = len(values) - 1
    figure = Figure(figsize=(1.7 * size + 1.0, 1.7 * size + 1.0), layout="constrained")
    axes = figure.subplots(size, size, squeeze=False, sharex=True, sharey=True)
    for (row, column), here in np.ndenumerate(axes):
        here.set_visible(column <= row)
        _scatter(here, records, (values[column], values[row + 1]), score)
        here.label_outer()
    add_legend(figure)
    return Picture(title, figure, f"{score.heading}; a point is a run, its color the data set.")


def comparisons(records: Records, score: Score, pairs: Iterable[Pair], title: str) -> Picture:
    """Draw a row for each pair of alphas: scatter, histogram of differences, and counts by set."""
    values = set(by_label(records, "alpha"))
    complete = [pair for pair in pairs if values.issuperset(pair)]
    figure = Figure(figsize=(11.0, 3.0 * len(complete) + 0.6), layout="constrained")
    axes = figure.subplots(len(complete), 3, squeeze=False)
    for pair, (scatter, histogram, counts) in zip(complete, axes, strict=True):
        _scatter(scatter, records, pair, score)
        runs = matched(records, "alpha", *pair)
        gain = np.array([score.loss(other) - score.loss(one) for one, other in runs])
        names = [line_label("alpha", value) for value in pair]
        clipped = np.clip(gain, *np.quantile(gain, (0.02, 0.98)))
        histogram.hist(clipped, 30, color="0.6", zorder=3)
        histogram.axvline(0.0, color="black", zorder=4)
        tidy(histogram, f"{score.heading}: gain of {names[0]}", "runs")
        sets = np.array([one["dataset"] for one, _ in runs])
        for sign in (-1, 1):
            won, number = np.unique(sets[sign * gain > 0.0], return_counts=True)
            counts.barh(won, sign * number, color="0.6", zorder=3)
        counts.axvline(0.0, color="black", zorder=4)
        tidy(counts, f"wins: {names[1]} left, {names[0]} right", "")
    add_legend(figure)
    return Picture(title, figure, "Gains beyond the quantiles of 2 and 98 % are drawn at these.")


def _scatter(axes: Axes, records: Records, pair: Pair, score: Score) -> None:
    for position, (name, group) in enumerate(by_label(records, "dataset").items()):
        points = [(score(one), score(other)) for one, other in matched(group, "alpha", *pair)]
        x, y = np.reshape(points, (-1, 2)).T
        # The colors repeat.
        axes.plot(x, y, marker(position // 4), color=color(position), markersize=3, label=name)
    axes.axline((0.0, 0.0), slope=1.0, color="0.7", linewidth=0.8, zorder=0)
    tidy(axes, *(line_label("alpha", value) for value in pair))
