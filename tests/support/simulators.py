"""Functions of computer experiments, without noise."""

import numpy as np


def branin(x):
    """Branin's function of columns x [2, N] in [0, 1]."""
    x, y = 15.0 * x[0] - 5.0, 15.0 * x[1]
    parabola = (y - 5.1 / (4.0 * np.pi**2) * x**2 + 5.0 / np.pi * x - 6.0) ** 2
    return parabola + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(x)
