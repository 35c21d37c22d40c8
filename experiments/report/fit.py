"""A panel with the fit of a regression model with a single input."""

import numpy as np
from matplotlib.axes import Axes

from experiments.datasets import Dataset
from experiments.report.recorded import RecordedRun


def draw_fit(axes: Axes, run: RecordedRun, dataset: Dataset, color: str) -> None:
    """Draw training data, predictive mean and 2 s.d. band, and inducing points, in published units."""
    arrays = run.predictions
    x = (arrays["x"] * dataset.x_scale + dataset.x_mean).ravel()
    mean = (arrays["x_mean"] * dataset.y_scale + dataset.y_mean).ravel()
    sd = (np.sqrt(arrays["x_variance"]) * dataset.y_scale).ravel()
    axes.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=color, alpha=0.2, linewidth=0)
    axes.plot(
        dataset.X_train * dataset.x_scale + dataset.x_mean,
        dataset.Y_train * dataset.y_scale + dataset.y_mean,
        ".",
        color="0.4",
        markersize=3,
    )
    axes.plot(x, mean, color=color)
    Z = (arrays["Z"] * dataset.x_scale + dataset.x_mean).ravel()
    axes.plot(Z, np.full_like(Z, 0.04), "^", color="black", markersize=6, transform=axes.get_xaxis_transform())
    axes.set_xlim(x[0], x[-1])
