"""Anderson's acceleration: on a linear fixed point iteration of d dimensions it is exact after d + 1 sweeps."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.sites.acceleration import Acceleration
from gpflow_pep.sites.gaussian import Move, Site

DIMENSIONS, N = 3, 7
rng = np.random.default_rng(71)
MAP = rng.normal(size=(DIMENSIONS, DIMENSIONS))
MAP *= 0.98 / np.abs(np.linalg.eigvals(MAP)).max()
FIXED = rng.normal(size=DIMENSIONS)
SPREAD = rng.normal(size=(2, N, DIMENSIONS))  # sites, linear in the same unknowns
SQUARE = rng.normal(size=(2, 2, DIMENSIONS))


def as_move(c):
    """A change of c, with those of sites and of A that go with it."""
    site = (tf.constant((part @ c)[:, None]) for part in SPREAD)
    return Move(Site(*site), tf.constant(SQUARE @ c)[None], tf.constant(c)[None])


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_linear_iterations_end(fraction):
    acceleration, x = Acceleration(N), np.zeros(DIMENSIONS)
    for _ in range(DIMENSIONS + 1):
        found = as_move(MAP @ (x - FIXED) + FIXED - x)
        move = acceleration.moves(found, fraction)[0]
        acceleration.made(found, move)
        x = x + move.c[0].numpy()
        for actual, expected in zip(tf.nest.flatten(move), tf.nest.flatten(as_move(move.c[0].numpy())), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=0.0, atol=1e-6)
    assert np.abs(FIXED).max() > 0.3
    np.testing.assert_allclose(x, FIXED, rtol=0.0, atol=1e-5)  # the ridge, 1e-12, over products that are as small


@pytest.mark.parametrize("number", ["first", "after forgetting", "too many sites"])
def test_without_secants_it_is_the_fraction(number):
    acceleration = Acceleration(10**6 if number == "too many sites" else N)
    if number != "first":
        for value in (1.0, 0.4):
            acceleration.made(as_move(value * FIXED), as_move(0.5 * value * FIXED))
            acceleration.moves(as_move(0.3 * value * FIXED), 0.5)
    if number == "after forgetting":
        acceleration.forget()
    (move,) = acceleration.moves(as_move(FIXED), 0.25)
    for actual, expected in zip(tf.nest.flatten(move), tf.nest.flatten(as_move(0.25 * FIXED)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-15)
