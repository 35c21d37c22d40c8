"""Readers of data that arrive in an order: a signal, terrain, and generated functions of time.

A table has a row for each time or place, in the order of arrival, target last.
"""

import zipfile

import numpy as np

from experiments.datasets.files import PublishedFile, local_copy
from experiments.datasets.sources import Mask
from experiments.datasets.tables import Floats

_AUDIO_ROWS = slice(8_000, 26_000)


def alternate(table: Floats, period: int = 2) -> Mask:
    """Return a mask of the test rows of a table, the last of every `period` rows, [N]."""
    return np.arange(len(table)) % period == period - 1


def second_half(table: Floats) -> Mask:
    """Return a mask of the test rows of a table, the second half, [N]."""
    return np.arange(len(table)) >= len(table) // 2


def read_audio(file: PublishedFile) -> Floats:
    """
    Read 18,000 samples of a band of sound, moved from its center frequency to 0, with noise: time
    in seconds, value.

    The real part of the analytic signal times exp(-2πi μt), plus N(0, 0.02²), as in Bui and Turner
    (2014).
    """
    from scipy.io import loadmat  # slow to import, needed here only
    from scipy.signal import hilbert

    content = loadmat(local_copy(file), squeeze_me=True)
    sample = np.arange(1, content["y"].size + 1)
    moved = np.real(hilbert(content["y"]) * np.exp(-2j * np.pi * content["mu"] * sample))
    noise = 0.02 * np.random.RandomState(0).normal(size=sample.size)
    rows = np.column_stack([sample / float(content["fs"]), moved + noise])
    return rows[_AUDIO_ROWS]  # [18000, 2]


def read_toy(inputs: PublishedFile, targets: PublishedFile) -> Floats:
    """
    Read inputs and targets; the first and the last third of the inputs are moved apart by 1, as by
    the authors.
    """
    x, y = (np.loadtxt(local_copy(file)) for file in (inputs, targets))
    thirds = np.repeat([-1.0, 0.0, 1.0], len(x) // 3)
    return np.column_stack([x + thirds, y])  # [150, 2]


def read_grid(file: PublishedFile, member: str) -> Floats:
    """
    Read heights (m) of an ESRI ASCII grid in a zip file, by columns from the west; places in km
    from its corner.
    """
    with zipfile.ZipFile(local_copy(file)) as archive:
        lines = archive.read(member).decode("ascii").splitlines()
    header = {name: float(value) for name, value in (line.split() for line in lines[:5])}
    return by_columns(np.loadtxt(lines[5:]), header["cellsize"] / 1000.0)


def read_jacksboro() -> Floats:
    """Read Matplotlib's elevations, every second row and column, by columns from the west."""
    from matplotlib import cbook  # slow to import, needed here only

    with np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as content:
        # 3 seconds of arc, twice.
        return by_columns(content["elevation"][::2, ::2].astype(float), 2.0)


def by_columns(heights: Floats, step: float) -> Floats:
    """
    Return places and heights of a map with its first row in the north, by columns from the west,
    each from the south.

    :param heights: [rows, columns].
    :param step: distance between neighbors.
    :return: [rows * columns, 3].
    """
    rows, columns = heights.shape
    east, north = np.meshgrid(step * np.arange(columns), step * np.arange(rows), indexing="ij")
    return np.column_stack([east.ravel(), north.ravel(), heights[::-1].T.ravel()])


def between_places(table: Floats) -> Mask:
    """
    Return a mask of the test rows of a map by columns, [N]: all but every second place in either
    direction.
    """
    east, north = (np.unique(table[:, axis], return_inverse=True)[1] for axis in (0, 1))
    return (east % 2 == 1) | (north % 2 == 1)


def pseudo_periodic(number: int) -> Floats:
    """
    Draw the start of a pseudo-periodic series of 100,000 steps (Keogh and Pazzani 1999): time,
    value.

        y(t) = Σ_{i=3}^{7} 2^-i sin(2π (2^(2+i) + r_i) t) + N(0, 0.005²),    r_i a whole number
        below 2^i, 0 ≤ t < 1
    """
    rng = np.random.RandomState(number)
    t = np.arange(24_000) / 100_000.0
    waves = [
        np.sin(2.0 * np.pi * (2 ** (2 + i) + rng.randint(2**i)) * t) / 2**i for i in range(3, 8)
    ]
    return np.column_stack([t, np.sum(waves, axis=0) + 0.005 * rng.normal(size=len(t))])
