"""Adaptive quadrature: exactness for polynomials, and termination at singularities."""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from doubles import double
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.maths.adaptive_quadrature import Evaluated, Panels, gauss_legendre, integrate


def test_singularity_terminates():
    """The panel at 0 is accepted unresolved after 60 halvings; the integrand is 1."""
    levels = []

    def evaluate(panels):
        levels.append(panels.half.numpy().min())
        assert len(levels) < 100
        width = 2.0 * panels.half[:, None]
        tails = tf.where(panels.left == 0.0, double(np.inf), 0.0)[:, None]
        return Evaluated(width, width, tails)

    first = Panels(tf.constant([0]), double([0.0]), double([0.5]))
    total, _ = integrate(evaluate, first, tf.constant(1), shape=(1, 1), keep=False)
    assert_allclose(levels, 0.5 ** np.arange(1, 62), rtol=1e-12)
    assert_allclose(total, [[1.0]], rtol=1e-12)


def test_integrates_linear_functions_exactly():
    """
    Two rows, one of them of two panels, divided to a width of 1/4: 1 + x is integrated exactly.
    """

    def evaluate(panels):
        width = 2.0 * panels.half[:, None]
        middle = (panels.left + panels.half)[:, None]
        tails = tf.where(panels.half > 0.125, double(np.inf), 0.0)[:, None]
        return Evaluated(width * (1.0 + middle), width, tails, middle)

    first = Panels(
        tf.constant([0, 1, 1]),
        double([0.0, 0.0, 1.0]),
        double([0.5] * 3),
    )
    total, (row, left, half, middle) = integrate(
        evaluate, first, tf.constant(2), shape=(1, 1), keep=True
    )
    assert_allclose(total, [[1.5], [4.0]], rtol=1e-14)
    assert sorted(zip(row.numpy(), left.numpy(), strict=True)) == [
        (r, k / 4) for r in (0, 1) for k in range(4 * (r + 1))
    ]
    assert_array_equal(middle[:, 0], left + half)


def test_rule_integrates_polynomials_exactly():
    """
    Degree 22 exactly. Values are up to 1; the moduli of the 23 terms add up to less than 46: 1e-14.
    """
    rule = gauss_legendre(23)
    nodes = rule.nodes - 1.0
    for degree in range(23):
        values = nodes**degree
        assert_near(rule.weights @ values, (1.0 + (-1.0) ** degree) / (degree + 1), 1e-14)
    highest = np.polynomial.legendre.Legendre.basis(22)(nodes)
    assert_near(highest @ rule.last_coefficients, [0.0, 0.0, 1.0], 1e-13)


def test_rejects_xla():
    first = Panels(tf.constant([0]), double([0.0]), double([1.0]))

    @tf.function(jit_compile=True, autograph=False)
    def run():
        return integrate(lambda panels: panels, first, tf.constant(1), shape=(1, 1))

    with pytest.raises(NotImplementedError, match="leave out jit_compile=True"):
        run()
