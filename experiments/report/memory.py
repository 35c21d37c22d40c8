"""A figure of streams: final scores against the memory that a model carries from batch to batch."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.report.recorded import RecordedRun
from experiments.report.scores_panels import color

_SCORES = {"rmse": "RMSE, standardized (↓ better)", "log_likelihood": "mean log likelihood, nats (↑ better)"}


def draw_memory(runs: Sequence[RecordedRun], path: Path) -> None:
    """
    Save a figure with a point for each run of regression; points of one model are connected.

    :param path: PNG file.
    """
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, len(_SCORES))
    models = list(dict.fromkeys(run.config["gp"]["model"] for run in runs))
    for axes, (score, label) in zip(panels, _SCORES.items(), strict=True):
        for position, model in enumerate(models):
            own = sorted((run for run in runs if run.config["gp"]["model"] == model), key=_kilobytes)
            kilobytes = [_kilobytes(run) for run in own]
            title = own[0].title.split(",")[0]
            axes.plot(kilobytes, [run.result[score] for run in own], "o-", color=color(position), label=title)
            for run, x in zip(own, kilobytes, strict=True):
                place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
                axes.annotate(f"M = {run.config['gp']['M']}", (x, run.result[score]), fontsize=8, **place)
        axes.set_xscale("log")
        axes.set_xticks(sorted({_kilobytes(run) for run in runs}), minor=False)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("kB kept from batch to batch")
        axes.set_ylabel(label)
        axes.margins(x=0.15, y=0.15)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(models), frameon=False)
    figure.savefig(path, dpi=150)


def _kilobytes(run: RecordedRun) -> float:
    return float(run.result["carried"]) / 1e3
