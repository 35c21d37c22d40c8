"""A panel with the fit of a regression model with a single input."""

import numpy as np
from matplotlib.axes import Axes

from experiments.datasets import Dataset
from experiments.ingredients.initialization import Floats
from experiments.report.recorded import RecordedRun
from gpflow_pep.plotting import INDUCING, ROWS


def draw_fit(axes: Axes, run: RecordedRun, dataset: Dataset, color: str) -> None:
    """
    Draw training data, predictive mean and 2 s.d. band, and inducing points, in published units.
    """
    arrays = run.predictions
    x, Z = (dataset.published_x(arrays[name]).ravel() for name in ("x", "Z"))
    mean = dataset.published_y(arrays["x_mean"]).ravel()
    sd = (np.sqrt(arrays["x_variance"]) * dataset.y_scale).ravel()
    rows = dataset.published_x(dataset.X_train), dataset.published_y(dataset.Y_train)
    axes.plot(*rows, ".", color=ROWS, markersize=3)
    draw_band(axes, x, mean, sd, color)
    draw_points(axes, Z)
    axes.set_xlim(x[0], x[-1])


def draw_band(axes: Axes, x: Floats, mean: Floats, sd: Floats, color: str) -> None:
    """Draw a mean and a band of 2 s.d."""
    axes.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=color, alpha=0.2, linewidth=0)
    axes.plot(x, mean, color=color)


def draw_points(axes: Axes, Z: Floats) -> None:
    """Draw inducing points along the lower edge."""
    place = np.full(Z.size, 0.04)
    axes.plot(
        Z.ravel(), place, "^", color=INDUCING, markersize=6, transform=axes.get_xaxis_transform()
    )
