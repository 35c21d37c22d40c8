"""Powers of a softmax: which rows each rule is used for, and that the rules agree."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close
from numpy.testing import assert_allclose, assert_array_equal, assert_array_less
from quick import partly_slow

from gpflow_pep.softmax import integrals as softmax
from gpflow_pep.softmax.integrals import softmax_power
from gpflow_pep.softmax.survival import LARGEST_VARIANCE


@pytest.fixture
def counts(monkeypatch):
    """Numbers of rows that use few points, many points and panels, in the order of the calls."""
    seen = []

    def counting(name, function, rows_of):
        def counted(*args):
            seen.append((name, rows_of(args)))
            return function(*args)

        return counted

    shapes = counting(
        "points", softmax._points, lambda args: (int(args[0].left.shape[0]), int(args[1].shape[0]))
    )
    monkeypatch.setattr(softmax, "_points", shapes)
    by_panels = softmax._by_panels
    monkeypatch.setattr(
        softmax,
        "_by_panels",
        lambda C: counting("panels", by_panels(C), lambda args: int(args[0].left.shape[0])),
    )
    return seen


def power(label, mean, variance, alpha, negligible=0.0):
    return softmax_power(
        tf.constant(label, tf.int32),
        tf.constant(mean),
        tf.constant(variance),
        tf.constant(alpha, tf.float64),
        tf.constant(negligible, tf.float64),
    )


def random_rows(C, R, spread, low, high):
    generator = np.random.default_rng(0)
    mean = generator.uniform(-spread, spread, (C, R))
    variance = np.exp(generator.uniform(*np.log([low, high]), (C, R)))
    return generator.integers(0, C, R), mean, variance


def assert_close(actual, expected):
    assert_allclose(actual[0], expected[0], rtol=2e-9)
    for value, wanted in zip(actual[1:], expected[1:], strict=True):
        assert_array_less(np.abs(value - wanted), 2e-9 * (1e-2 + np.abs(wanted)))


def by_panels(monkeypatch, *rows):
    """The result with panels only."""
    monkeypatch.setattr(
        softmax, "_is_accurate", lambda rows, *others: tf.zeros([tf.shape(rows.alpha)[0]], tf.bool)
    )
    return power(*rows)


@pytest.mark.parametrize(
    ("C", "spread", "low", "high"),
    [
        (3, 3.0, 1e-4, 0.05),
        (3, 15.0, 0.05, LARGEST_VARIANCE),
        (3, 40.0, 5.0 * LARGEST_VARIANCE, 50.0 * LARGEST_VARIANCE),
        (3, 3.0, 0.05, 10.0),
        (10, 3.0, 0.05, 10.0),
    ],
)
def test_trapezoid_rule_equals_panels(C, spread, low, high, counts, monkeypatch):
    for alpha in [0.0, 1e-6, 0.01, 0.3, 0.5, 1.0]:
        counts.clear()
        rows = *random_rows(C, 60, spread, low, high), alpha
        found = power(*rows)
        used = [number for name, number in counts if name == "points"]
        assert [points for _, points in used] == [56, 112][: len(used)]
        if spread < 10.0:
            assert sum(rows for rows, _ in used[1:]) < 30 and "panels" not in dict(counts)
        else:
            assert len(used) == 2
        with monkeypatch.context() as patched:
            assert_close(found, by_panels(patched, *rows))


def test_difficult_rows_use_panels(counts, monkeypatch):
    """Rows with very unequal variances; a variance beyond the table needs none."""
    label, mean, variance = random_rows(3, 6, 2.0, 0.1, 3.0)
    variance[:, 2] = 2.0 * LARGEST_VARIANCE
    mean[:, 4], variance[:, 4], label[4] = 0.0, (1e-4, 29.0, 29.0), 1
    rows = label, mean, variance, 0.5
    found = power(*rows)
    assert dict(counts)["panels"] == 1
    counts.clear()
    rough = power(*rows, np.inf)
    assert "panels" not in dict(counts)
    others = np.array([0, 1, 2, 3, 5])
    for value, wanted in zip(rough, found, strict=True):
        assert_allclose(value.numpy()[..., others], wanted.numpy()[..., others], rtol=1e-4)
        assert_allclose(value.numpy()[..., 4], wanted.numpy()[..., 4], rtol=0.05, atol=0.05)
    assert_close(found, by_panels(monkeypatch, *rows))


@pytest.mark.parametrize(("spread", "low", "high"), [(3.0, 1e-4, 0.05), (15.0, 1.0, 500.0)])
def test_coarse_integrals(spread, low, high, counts):
    """Fewer points, and absolute errors below 1e-3, here, in units of the standard deviation."""
    label, mean, variance = random_rows(10, 100, spread, low, high)
    for alpha in (0.1, 0.5, 1.0):
        counts.clear()
        found = power(label, mean, variance, alpha, softmax.COARSE)
        assert counts[0] == ("points", (100, 28))
        scales = 1.0, np.sqrt(variance), variance
        expected = power(label, mean, variance, alpha)
        for value, wanted, scale in zip(found, expected, scales, strict=True):
            assert_array_less(np.abs(value - wanted) * scale, 1e-3)


def test_narrow_classes_among_wide_ones(monkeypatch):
    """Their small derivatives are accurate, too, although sums over all classes hide them."""
    variance = np.random.default_rng(0).choice([61.0, 200.0, 1e3, 1e-4, 1e-2], (10, 100))
    variance[0] = 61.0
    rows = *random_rows(10, 100, 30.0, 1.0, 2.0)[:2], variance, 0.5
    found = power(*rows)
    for value, wanted in zip(found, by_panels(monkeypatch, *rows), strict=True):
        assert_array_less(np.abs(value - wanted), 3e-7 * (1e-4 + np.abs(wanted)))


def test_graphs_of_other_numbers_of_classes():
    for C, R in [(5, 2), (3, 2), (3, 4)]:
        evaluate = partial(power, *random_rows(C, R, 3.0, 200.0, 300.0), 0.5)
        assert_all_close(tf.function(evaluate, autograph=False)(), evaluate(), rtol=1e-12)


@partly_slow("variance", [0.0, 1e-4, 0.1, 1.0, 9.0, 50.0, 1e3], quick=[1e3])
@partly_slow("alpha", [0.0, 0.01, 0.5, 1.0], quick=[0.5])
def test_distant_means_in_single_precision(variance, alpha):
    """
    Equal to double precision up to 1e-3: numbers of some hundreds have roundings of 3e-5 in
    exponents.
    """
    generator = np.random.default_rng(5)
    mean = generator.choice([0.0, 1.0, 30.0, 50.0, 90.0, 100.0, 300.0, 1000.0], (3, 60))
    mean *= generator.choice([-1.0, 1.0], (3, 60))
    label = tf.constant(generator.integers(0, 3, 60), tf.int32)
    found, expected = (
        softmax_power(
            label,
            tf.constant(mean, dtype),
            tf.constant(variance, dtype, mean.shape),
            tf.constant(alpha, dtype),
        )
        for dtype in (tf.float32, tf.float64)
    )
    assert_all_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_negative_variance_equals_zero(alpha):
    """Rounding may give a tiny negative variance; it is treated as 0."""
    label, mean, variance = random_rows(3, 4, 3.0, 0.05, 10.0)
    variance[:, :2] = 0.0
    expected = power(label, mean, variance, alpha)
    variance[:, :2] = -1e-17
    for found, value in zip(power(label, mean, variance, alpha), expected, strict=True):
        assert np.all(np.isfinite(found))
        assert_array_equal(found, value)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 1.0])
def test_two_classes_depend_on_sum_of_variances(alpha):
    """
    On f_y - f_k only, whose variance it is: the same from one wide class and from two, which take
    other panels. Beyond 2e4 the one wide class errs by up to 1e-6.
    """
    total = np.geomspace(100.0, 2e4, 40)
    mean = np.zeros((2, 40))
    mean[0] = np.linspace(-1.0, 1.0, 40)
    label = np.zeros(40, int)
    narrow = np.full(40, 3e-4)
    alone = power(label, mean, np.stack([total - narrow, narrow]), alpha)
    shared = power(label, mean, np.stack([0.5 * total, 0.5 * total]), alpha)
    assert_all_close(alone, shared, rtol=1e-8)
