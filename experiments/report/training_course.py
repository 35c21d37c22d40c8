"""A figure of the objective, the noise and the kernel's variance against iterations of training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.report.scores_panels import color
from experiments.report.structured_tables import Course

_PANELS = {
    "objective_per_point": "objective, nats per point",
    "noise_sd": "noise s.d., standardized",
    "parameters/kernel.variance": "kernel variance, standardized",
}


def draw_course(courses: Mapping[str, Course], title: str, path: Path) -> None:
    """
    Save a figure with a panel for each scalar.

    :param courses: courses by text of the legend.
    :param path: PNG file.
    """
    figure = Figure(figsize=(13.0, 4.4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels: Any = figure.subplots(1, len(_PANELS))
    for axes, (name, label) in zip(panels, _PANELS.items(), strict=True):
        for position, (method, course) in enumerate(courses.items()):
            steps, values = course[name]
            line = "dashed" if position >= 6 else "solid"  # colors repeat
            axes.plot(steps, values, color=color(position), linestyle=line, label=method)
        axes.set_xlabel("iteration")
        axes.set_ylabel(label)
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(7, len(labels)), fontsize=9, frameon=False)
    figure.savefig(path, dpi=150)
