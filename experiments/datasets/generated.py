"""A generated data set: three classes in the plane."""

from functools import partial

import numpy as np

from experiments.datasets.info import multiclass_entry
from experiments.datasets.sources import TrainAndTest
from experiments.datasets.tables import Floats

_HALF_WIDTH = 2.5  # half the width of the square, in lengthscales
_NUM_ROWS = 1000  # rows of the training and of the test part
_NUM_WAVES = 500
_NOISE = 0.05  # fraction of labels drawn at random


def three_classes(part: int) -> Floats:
    """
    Draw points uniformly in a square, and last the index of the largest of three functions; for one row in twenty a
    random label.

    The functions are sums of 500 waves, with a random direction, phase and weight each: nearly draws from a GP with a
    squared exponential kernel of lengthscale 1. Random numbers come from ``numpy.random.RandomState``, whose stream
    numpy has frozen.

    :param part: 0 or 1: the same functions at different points.
    :return: [1000, 3].
    """
    rng = np.random.RandomState(0)
    direction = rng.normal(size=(3, _NUM_WAVES, 2))
    phase = rng.uniform(0.0, 2.0 * np.pi, size=(3, _NUM_WAVES))
    weight = rng.normal(size=(3, _NUM_WAVES))
    X = rng.uniform(-_HALF_WIDTH, _HALF_WIDTH, size=(2, _NUM_ROWS, 2))[part]
    f = [np.cos(X @ d.T + p) @ w for d, p, w in zip(direction, phase, weight, strict=True)]  # [3] of [1000]
    at_random = rng.uniform(size=(2, _NUM_ROWS))[part] < _NOISE
    labels = np.where(at_random, rng.randint(3, size=(2, _NUM_ROWS))[part], np.argmax(f, axis=0))  # [1000]
    return np.column_stack([X, labels])


THREE_CLASSES = multiclass_entry(
    "three-classes",
    TrainAndTest(partial(three_classes, 0), partial(three_classes, 1), files=()),
    N=2 * _NUM_ROWS,
    D=2,
    target="which of three smooth functions is the largest",
    classes=("first", "second", "third"),
    license="Apache-2.0",
    notes=(
        "Generated, like a synthetic set of Villacampa-Calvo and Hernández-Lobato (2020): a twentieth of the labels is "
        "drawn at random, so that the expected error is at least a thirtieth."
    ),
)
