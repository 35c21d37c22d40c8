"""A panel with the confusion matrix of a classifier of several classes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.datasets import Dataset, describe
from experiments.ingredients.initialization import Floats
from experiments.recording.scores import most_probable
from experiments.report.recorded import RecordedRun

_DARK = 0.5  # share from which text is white
_LONGEST = 3  # letters; longer names are replaced by the label


def add_legend(figure: Figure) -> None:
    """Write the legend below the figure."""
    figure.supxlabel("test rows by true and most probable class; shaded by the share of the row", fontsize=9)


def confusion(probability: Floats, Y: Floats) -> Floats:
    """Count the rows of each true class (row) by predicted class (column), [C, C], from probabilities [N, C]."""
    C = probability.shape[1]
    counts = np.zeros((C, C))
    np.add.at(counts, (Y[:, 0].astype(np.intp), most_probable(probability)), 1.0)
    return counts


def draw_confusion(axes: Axes, run: RecordedRun, dataset: Dataset) -> None:
    """Draw the counts of the test rows; zeros are left blank."""
    counts = confusion(run.predictions["probability"], dataset.Y_test)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    axes.imshow(shares, vmin=0.0, vmax=1.0, cmap="Blues")
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > _DARK else "black"
            axes.text(column, row, f"{count:.0f}", color=color, fontsize=8, ha="center", va="center")
    names = [name if len(name) <= _LONGEST else str(k) for k, name in enumerate(describe(dataset.name).classes)]
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.set_title(run.title, fontsize=10)
    axes.set_xlabel("predicted class")
