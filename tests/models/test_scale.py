"""One scale per block or row of PEPR against dense formulas, and the best scales at alpha = 0.

Problems are tiny (N = 24, M = 5) and Kuu is well conditioned (below 1e3): two routes to one number
differ by the rounding error 1.1e-16 times this condition number and a factor of ten for that of Qff
+ S. ``CLOSE``, relative to the largest, is that bound.
"""

import mpmath
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from dense_formulas import UNEVEN, Dense, make_problem
from doubles import double
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from model_values import (
    assert_close,
    linear_mean,
    positive_parameter,
    value_and_gradients,
    varying_noise,
)
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import refused

from gpflow_pep import BTSGPR, PEPR, TSGPR
from gpflow_pep.engine import scale_terms

CLOSE = 1e-12
N = 24
ALPHAS = {"0": 0.0, "0.5": 0.5, "1": 1.0, "one each": [0.3, 0.0, 1.0, 0.7, 1e-5]}


def scales_of(blocks):
    """Below and above 1, none of them equal."""
    return np.random.default_rng(5).permutation(
        np.linspace(0.3, 1.9, N if blocks is None else len(blocks))
    )


def make(constructor=PEPR, likelihood=None, **options):
    """A model of two outputs, made of new parts."""
    X, Y, Z, _ = make_problem(P=2)
    parts = SquaredExponential(1.3, lengthscales=[0.8, 1.1]), InducingPoints(Z)
    return constructor(
        (X, Y),
        *parts,
        mean_function=linear_mean(2),
        likelihood=likelihood or Gaussian(0.15),
        **options,
    )


@pytest.mark.parametrize(
    ("of", "alpha", "chunk_size"),
    [
        ("rows", "0", 5),
        ("rows", "0.5", 5),
        ("rows", "1", None),
        ("blocks", "1", 5),
        ("blocks", "one each", 5),
    ],
)
def test_equals_the_dense_formulas(of, alpha, chunk_size):
    """Objective and predictions; derivatives in the scales are in test_gradients.py."""
    blocks = None if of == "rows" else UNEVEN
    scales = scales_of(blocks)
    alpha = np.resize(ALPHAS[alpha], np.shape(scales)) if alpha == "one each" else ALPHAS[alpha]
    model = make(
        likelihood=varying_noise("variance"),
        alpha=alpha,
        blocks=blocks,
        scale=scales,
        chunk_size=chunk_size,
    )
    reference = Dense.of(model)
    blocks = reference.singletons() if blocks is None else blocks
    objective = model.maximum_log_likelihood_objective()
    assert_allclose(objective, reference.pep(alpha, blocks, scales), rtol=10 * CLOSE)
    *_, Xnew = make_problem(P=2)
    expected, covariance = reference.predictions(model, Xnew, alpha, blocks, scales)
    mean, found = model.predict_f(Xnew, full_cov=True)
    assert_close([mean, found[0]], [expected, covariance], CLOSE)


def test_the_best_scale_of_each_row_gives_tsgpr():
    """
    m = 1/(1 + d/σ²) at alpha = 0: the derivatives in the scales vanish, all others are TSGPR's.
    """
    tsgpr = make(TSGPR)
    scales = Dense.of(tsgpr).best_scales(Dense.of(tsgpr).singletons())
    model = make(alpha=0.0, scale=positive_parameter(scales))
    (expected, gradients), (value, (*others, slopes)) = map(value_and_gradients, (tsgpr, model))
    assert_allclose(value, expected, rtol=CLOSE)
    assert_close(others, gradients, CLOSE)
    assert np.abs(slopes).max() < 1e-9
    model.scale.assign(scales * np.where(np.arange(N) == 3, 0.9, 1.0))
    assert model.elbo() < expected


@partly_slow("blocks", [UNEVEN, None], 1, ids=["blocks", "rows"])
def test_optimal_per_block(blocks):
    """
    Objective and derivatives at the best scales, between the bounds of one scale and of a matrix
    per block.
    """
    model = make(alpha=0.0, scale="optimal per block", blocks=blocks, chunk_size=5)
    reference = Dense.of(model)
    indices = reference.singletons() if blocks is None else blocks
    scales = reference.best_scales(indices)
    given = make(alpha=np.zeros(len(indices)), scale=scales, blocks=blocks)
    (expected, gradients), (value, others) = map(value_and_gradients, (given, model))
    assert_allclose(value, expected, rtol=CLOSE)
    assert_close(others, gradients, CLOSE)
    assert (
        reference.spherical() + 1e-3
        < value
        < reference.structured(indices) + (-1e-3 if blocks else 1e-9)
    )
    assert_close([model.loo_log_predictive_density()], [given.loo_log_predictive_density()], CLOSE)
    assert value < make(BTSGPR, blocks=UNEVEN).elbo()
    with refused("alpha must be 0 with scale='optimal per block'"):
        model.alpha = 0.5


def test_assigned_scales_are_used_by_compiled_functions():
    model = make(alpha=0.4, scale=scales_of(UNEVEN), blocks=UNEVEN)
    compiled = tf.function(model.training_loss, autograph=False)
    before = compiled()
    changed = 1.3 * scales_of(UNEVEN)
    model.scale = changed
    assert_allclose(compiled(), model.training_loss(), rtol=CLOSE)
    assert compiled.experimental_get_tracing_count() == 1 and abs(compiled() - before) > 1e-3
    expected = make(alpha=0.4, scale=changed, blocks=UNEVEN).training_loss()
    assert_allclose(compiled(), expected, rtol=CLOSE)
    assert not model.scale.trainable
    with refused(r"scale must keep the shape \[5\], got \[4\]"):
        model.scale = np.ones(4)
    assert_allclose(model.scale, changed, rtol=1e-12)


def test_a_parameter_in_place_of_the_scales_has_their_number():
    model = make(alpha=0.4, scale=scales_of(None))
    with refused(r"scale must be one number or one per row \[24\] in \(0, inf\), got shape \[1\]"):
        model.scale = positive_parameter([1.0])
    model.scale = positive_parameter(0.8)
    expected = make(alpha=0.4, scale=0.8).training_loss()
    assert_allclose(model.training_loss(), expected, rtol=CLOSE)


@pytest.mark.parametrize("alpha", [0.0, 1e-9, 0.3, 1.0 - 1e-9, 1.0])
def test_scale_terms_of_tiny_and_huge_scales(alpha):
    """Against 60 digits; at alpha = 1 the two terms of each row cancel exactly."""
    m = np.array([1e-20, 1e-13, 1e-3, 0.9, 1.1, 1e6])
    scale = tf.constant(m)
    with tf.GradientTape() as tape:
        tape.watch(scale)
        total = scale_terms(double(alpha), scale, tf.constant(12.0), 2.0)
    with mpmath.workdps(60):
        a = mpmath.mpf(alpha)
        terms = [
            mpmath.log(x) - (mpmath.log(1 + a * (x - 1)) / a if a else x - 1)
            for x in map(mpmath.mpf, m)
        ]
        slopes = [1 / x - 1 / (1 + a * (x - 1)) for x in map(mpmath.mpf, m)]
    assert_near(total, float(sum(terms)), 1e-15 * max(1.0, *map(abs, map(float, terms))))
    assert_allclose(tape.gradient(total, scale), np.array(slopes, float), rtol=1e-9, atol=0.0)


def test_new_data_keep_the_number_of_scales():
    X, Y, _, _ = make_problem(P=2)
    model = make(alpha=0.4, scale=scales_of(None))
    model.data = (X[::-1], Y[::-1])
    reversed_scales = make(alpha=0.4, scale=scales_of(None)[::-1])
    assert_allclose(model.training_loss(), reversed_scales.training_loss(), rtol=CLOSE)
    with refused("data must keep 24 blocks, because scale was given per block, got 20"):
        model.data = (X[:20], Y[:20])
