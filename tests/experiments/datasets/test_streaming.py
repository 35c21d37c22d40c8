"""
The sets whose rows have an order: sizes, which rows test, and what their readers make of small
files.
"""

import io
import zipfile

import numpy as np
import pytest
from comparisons import assert_near
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

from experiments import datasets
from experiments.datasets import generated, series

# Training rows, test rows, inputs.
PUBLISHED = {
    "toy-stream": (120, 30, 1),
    "audio-subband": (9000, 9000, 1),
    "terrain-nn27": (10000, 30000, 2),
}
WITHOUT_FILES = {
    "jacksboro": (8686, 26058, 2),
    "pseudo-periodic": (12000, 12000, 1),
    "gp-series": (1000, 1000, 1),
}
ALL = [*(pytest.param(name, marks=pytest.mark.data) for name in PUBLISHED), *WITHOUT_FILES]


def test_names_and_descriptions():
    assert datasets.names(task="streaming") == (*PUBLISHED, *WITHOUT_FILES)
    for name, (num_train, num_test, D) in (PUBLISHED | WITHOUT_FILES).items():
        info = datasets.describe(name)
        assert (info.task, info.N, info.D, info.classes) == (
            "streaming",
            num_train + num_test,
            D,
            (),
        )
        assert info.num_splits == {"pseudo-periodic": 4, "gp-series": 10}.get(name, 1)
        assert bool(info.files) == (name in PUBLISHED)


@pytest.mark.parametrize("name", ALL)
def test_rows_are_in_order_and_test_rows_lie_between_them(name):
    num_train, num_test, D = (PUBLISHED | WITHOUT_FILES)[name]
    data = datasets.load(name, standardize=False)
    assert data.X_train.shape == (num_train, D) and data.X_test.shape == (num_test, D)
    assert np.isfinite(np.vstack([data.Y_train, data.Y_test])).all()
    for X in (data.X_train, data.X_test):
        assert (np.diff(X[:, 0]) >= 0.0).all()
        if D == 1:
            assert (np.diff(X[:, 0]) > 0.0).all()
    rows = np.vstack([data.X_train, data.X_test])
    assert len(np.unique(rows, axis=0)) == len(rows)
    if D == 2:  # a grid: three neighbors of every training place test
        east, north = (np.unique(rows[:, axis]) for axis in (0, 1))
        assert len(east) * len(north) == len(rows)
        assert_array_equal(np.unique(data.X_train[:, 0]), east[::2])
        assert_array_equal(np.unique(data.X_train[:, 1]), north[::2])


def test_a_band_of_sound_is_moved_to_0(publish):
    """
    A tone at its center frequency becomes a constant, in a whole number of periods exactly; the
    noise is known.
    """
    n = np.arange(1, 27_001)
    content = io.BytesIO()
    savemat(content, {"y": np.cos(2.0 * np.pi * 0.1 * n + 0.5), "fs": 16_000.0, "mu": 0.1})
    rows = series.read_audio(publish("audio.mat", content.getvalue()))
    assert_allclose(rows[:, 0], n[8_000:26_000] / 16_000.0, rtol=1e-14)
    noise = 0.02 * np.random.RandomState(0).normal(size=len(n))[8_000:26_000]
    assert_near(rows[:, 1] - noise, np.cos(0.5), 1e-9)


def test_the_outer_thirds_of_a_toy_are_moved_apart(publish):
    files = publish("x.txt", b"0\n1\n2\n3\n4\n5\n"), publish("y.txt", b"5\n4\n3\n2\n1\n0\n")
    expected = [[-1.0, 5.0], [0.0, 4.0], [2.0, 3.0], [3.0, 2.0], [5.0, 1.0], [6.0, 0.0]]
    assert_array_equal(series.read_toy(*files), expected)


def test_every_so_many_rows_test():
    table = np.arange(20.0).reshape(10, 2)
    assert_array_equal(np.flatnonzero(series.alternate(table, 5)), [4, 9])
    assert_array_equal(np.flatnonzero(series.alternate(table)), [1, 3, 5, 7, 9])
    assert_array_equal(np.flatnonzero(series.second_half(table)), [5, 6, 7, 8, 9])


HEIGHTS = np.array([[7.0, 8.0, 9.0], [4.0, 5.0, 6.0]])  # 7 is in the north-west


def test_map_by_columns_from_the_south_west():
    table = series.by_columns(HEIGHTS, 0.5)
    assert_array_equal(
        table, [[0, 0, 4], [0, 0.5, 7], [0.5, 0, 5], [0.5, 0.5, 8], [1, 0, 6], [1, 0.5, 9]]
    )
    assert_array_equal(np.flatnonzero(series.between_places(table)), [1, 2, 3, 5])


def test_grid_in_a_zip_file(publish):
    text = "ncols 3\nnrows 2\nxllcorner 10\nyllcorner 20\ncellsize 50\n7 8 9\n4 5 6\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("tile.asc", text)
    table = series.read_grid(publish("tile.zip", packed.getvalue()), "tile.asc")
    assert_array_equal(table, series.by_columns(HEIGHTS, 0.05))


def test_generated_series_are_what_their_formulas_say():
    t, y = generated.gaussian_process_series(3).T
    lengthscale, noise_variance = generated.series_hyperparameters(3)
    distances = (t[:, None] - t) / lengthscale
    covariance = np.exp(-0.5 * distances**2) + noise_variance * np.eye(len(t))
    white = np.linalg.solve(np.linalg.cholesky(covariance), y)
    # Of 2000 draws: a standard error of 3.2 %.
    assert_allclose([np.mean(white**2), t[-2]], [1.0, 10.0], rtol=0.1)
    t, y = series.pseudo_periodic(0).T
    assert not np.array_equal(y, series.pseudo_periodic(1)[:, 1])
    assert (t[0], t[1], len(t)) == (0.0, 1e-5, 24000)
    # Neighbors differ by waves of at most 512 + 127 periods, 2π 639e-5 / 128 each, and noise.
    assert_allclose(np.std(np.diff(y)), 0.005 * np.sqrt(2.0), rtol=0.05)
