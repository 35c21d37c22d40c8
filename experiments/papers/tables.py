"""
Tables of a protocol: means, pairwise win fractions and average ranks, beside published figures.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from experiments.papers.grid import Label, Record, Records, by_label, grouped, matched
from experiments.protocols.records import read_toml
from experiments.report.columns import markdown, mean_and_error, standard_error

PUBLISHED = read_toml(Path(__file__).with_name("published.toml"))
"""Published figures by protocol."""


@dataclass(frozen=True)
class Score:
    """A column of a table, or an axis of a figure."""

    entry: str
    """Entry of the result."""

    heading: str
    """Name and unit."""

    digits: int = 3
    """Digits after the point."""

    sign: float = 1.0
    """-1: the negative entry is shown."""

    larger_is_better: bool = False
    """True if a larger shown value is better."""

    def __call__(self, record: Record) -> float:
        """Return the shown value; NaN if the run has none."""
        value = record[self.entry]
        return float("nan") if value is None else self.sign * value

    def loss(self, record: Record) -> float:
        """Return the value with the sign for which smaller is better."""
        return -self(record) if self.larger_is_better else self(record)


RMSE = Score("rmse", "RMSE")
SMSE = Score("smse", "SMSE", 4)
SMLL = Score("smll", "SMLL, nats")
LL = Score("nlpd", "log likelihood, nats", sign=-1.0, larger_is_better=True)
NLPD = Score("nlpd", "NLPD, nats")
ERROR = Score("error", "error")
EVIDENCE = Score("objective_per_point", "log evidence a row, nats", larger_is_better=True)
NOISE = Score("noise_sd", "noise s.d.")
SECONDS = Score("seconds", "seconds", 1)


Lines = list[Sequence[str]]
"""Cells of a table, headings first."""


@dataclass(frozen=True)
class Table:
    """A table of strings."""

    title: str
    lines: Lines
    note: str = ""

    def save(self, stem: Path) -> None:
        """Write ``.csv`` and ``.md``."""
        with stem.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(self.lines)
        stem.with_suffix(".md").write_text(f"{self}\n", encoding="utf-8")

    def __str__(self) -> str:
        """Return title, table and note in Markdown."""
        return "\n\n".join(filter(None, [f"**{self.title}**", markdown(self.lines), self.note]))


def means(
    records: Records,
    by: Sequence[str],
    scores: Sequence[Score],
    title: str,
    published: Mapping[tuple[Label, ...], Sequence[float]] = {},
    note: str = "",
) -> Table:
    """
    Return means over the records of each group ± standard errors.

    :param by: labels that make a line.
    :param published: published values of the first scores, by the labels of a line.
    """
    num_published = max(map(len, published.values()), default=0)
    headings = [score.heading for score in scores]
    for number in range(num_published):
        headings.insert(2 * number + 1, "published")
    lines: Lines = [(*by, *headings, "runs", "not converged")]
    for labels, group in grouped(records, *by).items():
        cells = list(map(shown, labels))
        for number, score in enumerate(scores):
            cells.append(mean_and_error([score(record) for record in group], score.digits))
            if number < num_published:
                known = labels in published
                cells.append(f"{published[labels][number]:.{score.digits}f}" if known else "–")
        unfinished = sum(not record.result.get("converged", True) for record in group)
        lines.append((*cells, str(len(group)), str(unfinished)))
    return Table(title, lines, note)


def wins(
    records: Records,
    axis: str,
    score: Score,
    pairs: Mapping[tuple[Label, Label], int | None],
    title: str,
) -> Table:
    """
    Return the fraction of runs in which one value of an axis is better than another, all else
    equal; ties count half.

    :param pairs: pairs (better, worse) with the published percentage.
    """
    sets = next(name for name in records[0].labels if name != axis)
    lines: Lines = [("better, worse", f"{score.heading}: %", "published", "pairs")]
    for (first, second), published in pairs.items():
        by_set: dict[Label, list[float]] = {}
        for one, other in matched(records, axis, first, second):
            sign = np.sign(score.loss(other) - score.loss(one))
            by_set.setdefault(one[sets], []).append(50.0 * (1.0 + sign))
        values = [value for of_set in by_set.values() for value in of_set]
        if not values:  # --only has left out one of the two
            continue
        of_sets = [float(np.mean(of_set)) for of_set in by_set.values()]
        error = f" ± {standard_error(of_sets):.0f}" if len(of_sets) > 1 else ""
        pair = f"{shown(first)}, {shown(second)}"
        lines.append((pair, f"{np.mean(values):.0f}{error}", shown(published), str(len(values))))
    return Table(title, lines, f"± standard error of the mean over {sets}s.")


def ranks(records: Records, axis: str, scores: Sequence[Score], title: str) -> Table:
    """
    Return average ranks of the values of an axis, all else equal, ± standard errors; 1 is best,
    ties share ranks.
    """
    others = [name for name in records[0].labels if name != axis]
    values = list(by_label(records, axis))
    groups = [group for group in grouped(records, *others).values() if len(group) == len(values)]
    lines: Lines = [(axis, *(f"rank by {score.heading}" for score in scores))]
    note = f"Over {len(groups)} groups of runs that differ in {axis} alone."
    if not groups:
        return Table(title, lines, note)
    found = [
        rankdata([list(map(score.loss, group)) for group in groups], axis=1) for score in scores
    ]  # [groups, values] for each score
    for position, value in enumerate(values):
        lines.append(
            (shown(value), *(mean_and_error(rank[:, position].tolist()) for rank in found))
        )
    return Table(title, lines, note)


def shown(value: Label) -> str:
    """Format a label."""
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
