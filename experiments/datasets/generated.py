"""
Generated data sets: three classes in the plane, draws from Gaussian processes, and overlapping
clusters.
"""

import numpy as np
import numpy.typing as npt

from experiments.datasets.tables import Floats

_HALF_WIDTH = 2.5  # half the width of the square, in lengthscales
_NUM_ROWS = 1000  # rows of the training and of the test part
_NUM_WAVES = 500
_NOISE = 0.05  # fraction of labels drawn at random
_VALUE_SEEDS = 1000  # first seed of the values of series; hyperparameters have smaller ones


def three_classes(part: int) -> Floats:
    """
    Draw points uniformly in a square, and last the index of the largest of three functions; for one
    row in twenty a random label.

    The functions are sums of 500 waves, with a random direction, phase and weight each: nearly
    draws from a GP with a squared exponential kernel of lengthscale 1. Random numbers come from
    ``numpy.random.RandomState``, whose stream numpy has frozen.

    :param part: 0 or 1: the same functions at different points.
    :return: [1000, 3].
    """
    rng = np.random.RandomState(0)
    direction = rng.normal(size=(3, _NUM_WAVES, 2))
    phase = rng.uniform(0.0, 2.0 * np.pi, size=(3, _NUM_WAVES))
    weight = rng.normal(size=(3, _NUM_WAVES))
    X = rng.uniform(-_HALF_WIDTH, _HALF_WIDTH, size=(2, _NUM_ROWS, 2))[part]
    f = [
        np.cos(X @ d.T + p) @ w for d, p, w in zip(direction, phase, weight, strict=True)
    ]  # [3] of [1000]
    at_random = rng.uniform(size=(2, _NUM_ROWS))[part] < _NOISE
    labels = np.where(
        at_random, rng.randint(3, size=(2, _NUM_ROWS))[part], np.argmax(f, axis=0)
    )  # [1000]
    return np.column_stack([X, labels])


def gaussian_process_draw(number: int) -> Floats:
    """
    Draw 1000 inputs in five dimensions and, last, a Gaussian process with squared exponential
    kernel there, and noise.

    Inputs are N(0, 1), lengthscales from 1 to 5 (uniform logarithms), the kernel's variance is 1,
    the noise's 0.01.

    :return: [1000, 6].
    """
    rng = np.random.RandomState(number)
    lengthscales = 5.0 ** rng.uniform(size=5)
    X = rng.normal(size=(_NUM_ROWS, 5))
    return np.column_stack([X, _draw(X / lengthscales, 0.01, rng)])


def gaussian_process_series(number: int) -> Floats:
    """
    Draw a Gaussian process with squared exponential kernel at 2,000 times, and noise: time, value.

    Every second time from the first on is in [0, 10]. The kernel's variance is 1;
    :func:`series_hyperparameters` has the others.

    :return: [2000, 2].
    """
    lengthscale, noise_variance = series_hyperparameters(number)
    t = np.arange(2 * _NUM_ROWS) * 10.0 / (2 * _NUM_ROWS - 2)
    rng = np.random.RandomState(_VALUE_SEEDS + number)
    return np.column_stack([t, _draw(t[:, None] / lengthscale, noise_variance, rng)])


def series_hyperparameters(number: int) -> tuple[float, float]:
    """
    Draw lengthscale, from 0.2 to 0.8, and noise variance, from 0.01 to 0.16, of a series; their
    logarithms are uniform.
    """
    uniform = np.random.RandomState(number).uniform(size=2)
    return float(0.2 * 4.0 ** uniform[0]), float(0.01 * 16.0 ** uniform[1])


def _draw(scaled: Floats, noise_variance: float, rng: np.random.RandomState) -> Floats:
    """Draw a process at inputs over lengthscales [N, D], and noise; [N]."""
    squares = np.sum(scaled**2, axis=1)
    distances = np.maximum(squares[:, None] + squares - 2.0 * scaled @ scaled.T, 0.0)  # [N, N]
    covariance = np.exp(-0.5 * distances) + noise_variance * np.eye(len(scaled))
    draw: Floats = np.linalg.cholesky(covariance) @ rng.normal(size=len(scaled))
    return draw


def blobs(number: int) -> tuple[Floats, npt.NDArray[np.str_]]:
    """
    Draw 2 to 10 normal clusters of 100 to 1,000 rows in 2 to 10 columns, by scikit-learn's
    `make_blobs`.

    The centers are uniform in [-10, 10]; the standard deviation of all clusters is one number
    between 0.5 and 4.

    :return: X [N, D] and the names of the clusters [N].
    """
    from sklearn.datasets import make_blobs  # slow to import, needed here only

    rng = np.random.default_rng(number)
    num_classes, num_columns = rng.integers(2, 11, size=2).tolist()
    X, label = make_blobs(
        int(rng.integers(100, 1001)),
        num_columns,
        centers=num_classes,
        cluster_std=rng.uniform(0.5, 4.0),
        random_state=number,
    )
    names = np.array([f"cluster {index}" for index in range(num_classes)])
    return X, names[label]
