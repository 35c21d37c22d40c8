"""
Anderson's acceleration: on a linear fixed point iteration of d dimensions it is exact after d + 1
sweeps.
"""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from doubles import double
from numpy.testing import assert_allclose

from gpflow_pep.ep.anderson import Secants
from gpflow_pep.runtime.distribution import Workers

DIMENSIONS = 3
N = 7
DEPTH = 5
rng = np.random.default_rng(71)
MAP = rng.normal(size=(DIMENSIONS, DIMENSIONS))
MAP *= 0.98 / np.abs(np.linalg.eigvals(MAP)).max()
FIXED = rng.normal(size=DIMENSIONS)
SPREAD = rng.normal(size=(N, 2, 1, DIMENSIONS))  # sites [N, 2, C], linear in the unknowns
WEIGHTS = tf.constant(rng.uniform(0.5, 2.0, (N, 2, 1)))
YES = tf.constant(True)
NO = tf.constant(False)


def sites(x):
    return tf.constant(SPREAD @ x)


def normalized(change):
    """Sum one change or all secants."""
    return WEIGHTS * change


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_linear_fixed_point_is_found_exactly(fraction):
    """The ridge, 1e-12, is over products that are as small: the residual is 1e-5 of FIXED."""
    secants = Secants.none(DEPTH, sites(FIXED))
    x = np.zeros(DIMENSIONS)
    before = None
    plain = np.zeros(DIMENSIONS)
    for _ in range(DIMENSIONS + 1):
        update = MAP @ (x - FIXED) + FIXED - x
        if before is not None:
            secants = secants.updated(
                sites(x - before[0]), sites(update - before[1]), add=YES, forget=NO
            )
        move = secants.step(sites(update), normalized).move(double(fraction))
        step = np.linalg.lstsq(SPREAD.reshape(-1, DIMENSIONS), np.ravel(move), rcond=None)[0]
        # It stays among the values that are reached.
        assert_near(sites(step), move, 1e-6)
        before = (x, update)
        x = x + step
        plain = plain + fraction * (MAP @ (plain - FIXED) + FIXED - plain)
    assert int(secants.count) == DIMENSIONS
    assert np.abs(plain - FIXED).max() > 0.1
    assert_near(x, FIXED, 1e-5)


def test_move_without_secants_is_the_damped_update():
    secants = Secants.none(DEPTH, sites(FIXED))
    update = sites(FIXED)
    ignored = secants.updated(2.0 * update, update, add=NO, forget=NO)
    kept = secants.updated(2.0 * update, -update, add=YES, forget=NO)
    assert np.abs(kept.step(update, normalized).move(double(0.25)) - 0.25 * update).max() > 0.1
    forgotten = kept.updated(update, update, add=YES, forget=YES)
    for none in (secants, ignored, forgotten):
        assert int(none.count) == 0
        assert_allclose(none.step(update, normalized).move(double(0.25)), 0.25 * update, rtol=1e-15)


def test_the_oldest_is_replaced():
    secants = Secants.none(2, sites(FIXED))
    values = [double(k) * tf.ones_like(sites(FIXED)) for k in (1.0, 2.0, 3.0)]
    for value in values:
        secants = secants.updated(value, 10.0 * value, add=YES, forget=NO)
    assert sorted(secants.steps[:-1, 0, 0, 0].numpy()) == [2.0, 3.0]
    assert sorted(secants.changes[:-1, 0, 0, 0].numpy()) == [20.0, 30.0]
    assert int(secants.count) == 3


def test_no_change_of_the_update_is_no_secant():
    """Equal consecutive updates, as at a fixed point, cause no division by 0."""
    secants = Secants.none(DEPTH, sites(FIXED)).updated(
        sites(FIXED), 0.0 * sites(FIXED), add=YES, forget=NO
    )
    move = secants.step(sites(FIXED), normalized).move(double(0.5))
    assert_allclose(move, 0.5 * sites(FIXED), rtol=1e-12)


def test_workers_add_up_the_same_shape_in_every_sweep():
    """
    However many secants there are: a collective operation refuses another shape than that of its
    first run.
    """
    shapes = []

    class Recorded(Workers):
        def sum(self, value):
            shapes.append(value.shape)
            return value

    secants = Secants.none(DEPTH, sites(FIXED))
    update = sites(FIXED)
    for count in range(DEPTH + 2):
        secants.step(update, normalized, Recorded(2, 0))
        secants = secants.updated(sites(MAP[0] ** count), sites(FIXED + count), add=YES, forget=NO)
    assert set(shapes) == {(DEPTH + 1, DEPTH + 2)}
