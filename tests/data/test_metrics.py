"""
Scores against scipy's and numpy's formulas, and their defining properties.

Sums of at most 200 float64 terms of order one err by under 200 eps = 4e-14 relative; 1e-12 leaves
room.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from refusals import refused
from scipy.stats import norm

from gpflow_pep.data.metrics import nlpd, rmse, smll, smse

EXACT = 1e-12


@pytest.fixture(params=[(50,), (50, 1), (50, 3)], ids=["vector", "column", "three outputs"])
def scored(request):
    """
    Targets, predicted means and variances, and training targets, far from zero mean and unit
    variance.
    """
    rng = np.random.default_rng(3)
    shape = request.param
    y = 5.0 + 2.0 * rng.normal(size=shape)
    mean = y + rng.normal(size=shape)
    variance = rng.uniform(0.2, 3.0, size=shape)
    y_train = 4.0 + 3.0 * rng.normal(size=(200, *shape[1:]))
    return y, mean, variance, y_train


def test_equal_formulas_of_scipy_and_numpy(scored):
    y, mean, variance, y_train = scored
    loss = -norm.logpdf(y, loc=mean, scale=np.sqrt(variance)).mean()
    trivial = -norm.logpdf(y, loc=y_train.mean(axis=0), scale=y_train.std(axis=0)).mean()
    assert_allclose(nlpd(y, mean, variance), loss, rtol=EXACT)
    assert_allclose(smll(y, mean, variance, y_train), loss - trivial, rtol=EXACT)
    squares = np.square(y - mean)
    assert_allclose(rmse(y, mean), np.sqrt(squares.mean()), rtol=EXACT)
    of_outputs = squares.mean(axis=0) / y.var(axis=0)
    assert_allclose(smse(y, mean), of_outputs.mean(), rtol=EXACT)


def good():
    """Arguments that every score accepts."""
    return {
        "y": np.array([[1.0], [2.0], [4.0]]),
        "mean": np.zeros((3, 1)),
        "variance": np.ones((3, 1)),
        "y_train": np.array([[0.0], [1.0]]),
    }


SCORES = {
    rmse: ("y", "mean"),
    smse: ("y", "mean"),
    nlpd: ("y", "mean", "variance"),
    smll: ("y", "mean", "variance", "y_train"),
}
EVERY_ARGUMENT = [
    pytest.param(score, name, id=f"{score.__name__}-{name}")
    for score, names in SCORES.items()
    for name in names
]


def call(score, **changed):
    arguments = good() | changed
    return score(**{name: arguments[name] for name in SCORES[score]})


@pytest.mark.parametrize(("score", "name"), EVERY_ARGUMENT)
def test_bad_values_and_shapes_are_refused(score, name):
    for bad in (np.nan, np.inf, -np.inf):
        values = np.append(good()[name], [[bad], [bad]], axis=0)
        row = len(values) - 2
        with refused(rf"^{name} must be finite in float64, got 2 .*, the first in row {row}\."):
            call(score, **{name: values})
    for shape in ((0, 1), (), (3, 1, 1)):
        with refused(rf"^{name} must have .*, got shape \[{shape[0] if shape else ''}"):
            call(score, **{name: np.ones(shape)})
    with refused(f"^{name} must hold real numbers"):
        call(score, **{name: ["one", "two", "three"]})
    # None is broadcast.
    for shape in ((3,), (1, 1), (3, 2), (2, 1)) if name in ("mean", "variance") else ():
        with refused(rf"^{name} must have the shape of y, \[3, 1\], got shape \[{shape[0]}"):
            call(score, **{name: np.ones(shape)})


@pytest.mark.parametrize("shape", [(4,), (4, 2)])
def test_training_targets_with_other_outputs(shape):
    with refused(r"^y_train must have the shape of y, \[3, 1\] except .*, got shape \[4"):
        call(smll, y_train=np.arange(math.prod(shape), dtype=float).reshape(shape))


@pytest.mark.parametrize("score", [nlpd, smll])
@pytest.mark.parametrize("bad", [0.0, -0.5])
def test_variance_must_be_positive(score, bad):
    with refused(rf"^variance must be positive, got 1 of 3 .* first in row 1: {bad}"):
        call(score, variance=np.array([[1.0], [bad], [2.0]]))


@pytest.mark.parametrize(("score", "name"), [(smse, "y"), (smll, "y_train")])
def test_constant_targets_have_no_standardized_score(score, name):
    values = np.full((3, 1), 0.1)  # numpy's variance of this is not 0 but 2e-34
    with refused(rf"^{name} must not be constant, .*, got 0.1 in every row of column 0"):
        call(score, **{name: values})
