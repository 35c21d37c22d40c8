"""Panels of a figure, one for each score, with all runs."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from experiments.report.recorded import RecordedRun

_PANELS = {
    "regression": (
        ("objective_per_point", "log evidence\n(nats per point)"),
        ("rmse", "test RMSE, standardized\n(← better)"),
        ("nlpd", "test NLPD, nats\n(← better)"),
        ("noise_sd", "noise s.d., standardized"),
    ),
    "classification": (
        ("objective_per_point", "log evidence\n(nats per point)"),
        ("error", "test error, fraction\n(← better)"),
        ("nlpd", "test NLPD, nats\n(← better)"),
        ("loo_nlpd", "leave-one-out NLPD, nats\n(← better)"),
    ),
}
_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")  # Tol's bright scheme


def color(position: int) -> str:
    """Return the color of a run, by its position in the figure."""
    return _COLORS[position % len(_COLORS)]


def height(runs: Sequence[RecordedRun]) -> float:
    """Return the height of the panels in inches."""
    return 1.3 + 0.32 * len(runs)


def draw_scores(figure: Figure, place: SubplotSpec, runs: Sequence[RecordedRun]) -> None:
    """Draw the scores of the runs' task; a run without a score leaves its place empty."""
    shown = _PANELS[runs[0].task]
    panels: Any = place.subgridspec(1, len(shown)).subplots(sharey=True)
    for axes, (name, label) in zip(panels, shown, strict=True):
        for position, run in enumerate(runs):
            value = run.result[name]
            if value is None:
                continue
            hollow = name == "objective_per_point" and not run.is_bound
            face = "white" if hollow else color(position)
            axes.plot(value, position, "o", markersize=7, color=color(position), markerfacecolor=face)
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
