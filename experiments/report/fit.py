"""A panel with the fit of a regression model with a single input."""

import numpy as np
from matplotlib.axes import Axes

from experiments.datasets import Dataset, Floats
from experiments.report.recorded import RecordedRun
from gpflow_pep.plotting import INDUCING, ROWS


def draw_fit(axes: Axes, run: RecordedRun, dataset: Dataset, color: str) -> None:
    """Draw training data, the posterior and inducing points, in published units."""
    rows = dataset.published_x(dataset.X_train), dataset.published_y(dataset.Y_train)
    axes.plot(*rows, ".", color=ROWS, markersize=3)
    arrays = (run.predictions[name] for name in ("x", "x_mean", "x_variance", "Z"))
    draw_posterior(axes, dataset, color, *arrays)


def draw_posterior(
    axes: Axes, dataset: Dataset, color: str, x: Floats, mean: Floats, variance: Floats, Z: Floats
) -> None:
    """
    Draw mean and a band of 2 s.d. over a grid x, and inducing points along the lower edge, in
    published units.
    """
    x, Z = (dataset.published_x(places).ravel() for places in (x, Z))
    mean = dataset.published_y(mean).ravel()
    sd = (np.sqrt(variance) * dataset.y_scale).ravel()
    axes.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=color, alpha=0.2, linewidth=0)
    axes.plot(x, mean, color=color)
    edge = axes.get_xaxis_transform()
    axes.plot(Z, np.full(Z.size, 0.04), "^", color=INDUCING, markersize=6, transform=edge)
    axes.set_xlim(x[0], x[-1])
