"""The posterior of a regression model with a single input, in a panel."""

import numpy as np
from matplotlib.axes import Axes

from experiments.datasets import Dataset, Floats
from gpflow_pep.plotting import draw_inducing_points


def draw_posterior(
    axes: Axes, dataset: Dataset, color: str, x: Floats, mean: Floats, variance: Floats, Z: Floats
) -> None:
    """
    Draw mean and a band of 2 s.d. over a grid x, and inducing points along the lower edge, in
    published units.
    """
    x = dataset.published_x(x).ravel()
    mean = dataset.published_y(mean).ravel()
    sd = (np.sqrt(variance) * dataset.y_scale).ravel()
    axes.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=color, alpha=0.2, linewidth=0)
    axes.plot(x, mean, color=color)
    if Z.size:
        draw_inducing_points(axes, dataset.published_x(Z))
    axes.set_xlim(x[0], x[-1])
