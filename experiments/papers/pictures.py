"""
Figures of a protocol: curves of means over records, and pictures that `experiments.report` draws.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.papers.grid import Label, Records, by_label
from experiments.papers.tables import Score, shown
from experiments.report.columns import standard_error
from experiments.report.style import color, line_style, marker, tidy

Course = Mapping[str, tuple[Any, Any]]
"""Coordinates and values by scalar."""

REFERENCE: Mapping[str, Any] = {"color": "black", "linestyle": "dashed", "linewidth": 1.0}
"""Look of a line that others are compared with."""

_UNITS = {
    "M": "M, inducing points",
    "peak": "peak memory, MB",
    "carried": "memory carried from batch to batch, bytes",
    "seen": "training rows",
}
_FEW = 8  # places along an axis, each with its label
_ACROSS = 4  # panels a row, at most


@dataclass(frozen=True)
class Picture:
    """A figure with its caption."""

    title: str
    figure: Figure
    note: str = ""

    def save(self, stem: Path) -> None:
        """Write ``.png``, and ``.txt`` with title and caption."""
        self.figure.savefig(stem.with_suffix(".png"), dpi=110)
        stem.with_suffix(".txt").write_text(f"{self.title}\n\n{self.note}\n", encoding="utf-8")


def panels(number: int, *, height: float = 2.8, shared: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side, at most four a row, with shared axes or not."""
    columns = min(number, _ACROSS)
    rows = -(-number // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, height * rows + 0.7), layout="constrained")
    axes: list[Axes] = list(
        figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).flat
    )
    for unused in axes[number:]:
        unused.set_visible(False)
    return figure, axes[:number]


def add_legend(figure: Figure) -> None:
    """Write a legend of the lines of all panels below the figure."""
    lines: dict[Any, Any] = {}
    for axes in reversed(figure.axes):
        handles, labels = axes.get_legend_handles_labels()
        lines = dict(zip(labels, handles, strict=True)) | lines
    figure.legend(
        lines.values(),
        lines.keys(),
        loc="outside lower center",
        ncols=min(4, len(lines)),
        fontsize=9,
        frameon=False,
    )


def curves(
    records: Records,
    x: str,
    scores: Sequence[Score],
    line: str,
    title: str,
    *,
    panel: str | None = None,
    logarithmic: bool = False,
    reference: Mapping[Label, Records] = {},
) -> Picture:
    """
    Draw means of scores ± standard errors along an axis: a line for each label, a panel for each
    score.

    :param x: label or entry of the result along the horizontal axis.
    :param line: label that makes a line.
    :param panel: label with panels of its own for each value.
    :param reference: groups of records without x, whose means are horizontal lines.
    """
    parts = by_label(records, panel) if panel else {"": list(records)}
    figure, axes = panels(len(parts) * len(scores))
    names = list(by_label(records, line))
    for position, (part, of_part) in enumerate(parts.items()):
        for number, score in enumerate(scores):
            here = axes[position * len(scores) + number]
            for name, of_line in by_label(of_part, line).items():
                _draw(here, of_line, x, score, line_label(line, name), names.index(name))
            for name, group in reference.items():
                level = float(np.mean(list(map(score, group))))
                here.axhline(level, label=shown(name), **REFERENCE)
            tidy(here, _UNITS.get(x, x.replace("_", " ")), score.heading, logarithmic=logarithmic)
            if logarithmic and len(places := sorted({record[x] for record in of_part})) < _FEW:
                here.set_xticks(places, [f"{place:g}" for place in places])
                here.minorticks_off()
            here.set_title(shown(part), fontsize=10)
    add_legend(figure)
    return Picture(title, figure, "Means ± standard errors.")


def against_M(records: Records, scores: Sequence[Score], line: str) -> Iterator[Picture]:
    """Draw each score against the number of inducing points, a panel for each data set."""
    for score in scores:
        title = f"{score.heading} against M"
        yield curves(records, "M", (score,), line, title, panel="dataset", logarithmic=True)


def line_label(axis: str, value: Label) -> str:
    """Return the text of a legend: a name, or a number with its axis."""
    return f"{axis} = {shown(value)}" if isinstance(value, int | float) else shown(value)


def _draw(axes: Axes, records: Records, x: str, score: Score, label: str, position: int) -> None:
    by_x: dict[Label, list[float]] = {}
    for record in records:
        by_x.setdefault(record[x], []).append(score(record))
    places = sorted(by_x)
    mean = np.array([np.mean(by_x[place]) for place in places])
    error = [standard_error(by_x[place]) if len(by_x[place]) > 1 else 0.0 for place in places]
    axes.errorbar(places, mean, error, label=label, capsize=2, **line_style(position))


def courses(
    values: Mapping[str, Course],
    shown_scores: Mapping[str, str],
    along: str,
    title: str,
    *,
    logarithmic: bool = False,
    note: str = "",
) -> Picture:
    """
    Draw scalars in the course of runs: a line for each run, a panel for each scalar.

    :param values: the course of each run.
    :param shown_scores: scalars with the labels of their axes.
    """
    figure, axes = panels(len(shown_scores))
    for here, (name, label) in zip(axes, shown_scores.items(), strict=True):
        for position, (run, of_run) in enumerate(values.items()):
            if name in of_run:
                x, y = of_run[name]
                every = max(1, len(x) // 10)
                here.plot(x, y, label=run, markevery=every, **line_style(position))
        tidy(here, along, label, logarithmic=logarithmic)
    add_legend(figure)
    return Picture(title, figure, note)


def dots(records: Records, scores: Mapping[str, str], title: str) -> Picture:
    """
    Draw entries of the results, a panel for each, a line for each record, named by its method;
    missing values are left out.
    """
    figure = Figure(
        figsize=(2.6 * len(scores) + 1.5, 1.2 + 0.35 * len(records)), layout="constrained"
    )
    axes = figure.subplots(1, len(scores), sharey=True, squeeze=False)[0]
    for here, (name, label) in zip(axes, scores.items(), strict=True):
        for position, record in enumerate(records):
            if record[name] is not None:
                here.plot(
                    record[name], position, marker(position), color=color(position), markersize=7
                )
        tidy(here, label, "")
        here.locator_params(axis="x", nbins=4)
    axes[0].set_yticks(range(len(records)), [str(record["method"]) for record in records])
    axes[0].invert_yaxis()
    return Picture(title, figure)
