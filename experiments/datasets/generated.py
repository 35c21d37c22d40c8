"""A set that is generated: three classes in the plane."""

from functools import partial

import numpy as np

from experiments.datasets.info import multiclass_entry
from experiments.datasets.sources import TrainAndTest
from experiments.datasets.tables import Floats

_HALF_WIDTH = 2.5  # of the square, in lengthscales
_NUM_ROWS = 1000  # of either part
_NUM_WAVES = 500
_NOISE = 0.05  # the fraction of labels that are drawn at random


def three_classes(part: int) -> Floats:
    """
    Points spread evenly over a square, and last which of three functions is the largest there, for one row in twenty
    any of the three.

    The functions are sums of 500 waves, with a random direction, phase and weight each: nearly draws from a GP with a
    squared exponential kernel of lengthscale 1. Random numbers are those of ``numpy.random.RandomState``, whose stream
    numpy has frozen.

    :param part: 0 or 1; the functions are the same, the points are not.
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
        "drawn at random, so that no method errs on less than a thirtieth but by chance."
    ),
)
