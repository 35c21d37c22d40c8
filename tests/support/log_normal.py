"""The Laplace transform of a log-normal variable by the trapezoid rule on many points."""

import numpy as np


def survival(x, variance):
    """
    log S and the hazard, from terms that are all positive; exp(-π²/0.12) is the error of the sums.
    """
    sd = np.sqrt(variance)
    z = np.arange(-26.0 - sd, sd + 12.0, min(0.2, 0.12 / max(sd, 0.1)))
    weight = np.exp(-0.5 * z**2) / np.sum(np.exp(-0.5 * z**2))
    y = np.exp(np.minimum(x[:, None] + sd * z, 700.0))
    S, F, slope = (value @ weight for value in (np.exp(-y), -np.expm1(-y), y * np.exp(-y)))
    return np.where(F < 0.5, np.log1p(-np.minimum(F, 0.5)), np.log(S)), slope / S
