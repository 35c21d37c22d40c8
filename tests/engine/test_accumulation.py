"""The engine's sums and their derivatives against dense evaluations.

The problems are of order one (eigenvalues of the joint covariance between 1/2 and 5, noise at least
0.3), so that values err by some 100 eps = 2e-14 and their derivatives, products of at most ten such
factors, by 2e-12 at the most: EXACT.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf
from dense_sums import (
    TensorRows,
    accumulate_sums,
    all_close,
    close,
    dense_sums,
    make_blocks,
    make_chunks,
    make_cotangents,
    make_problem,
    paired,
    values_of_sums,
)
from differences import derivative
from doubles import double
from products import preferring_products
from quick import some_slow

from gpflow_pep.engine import (
    BlockSites,
    IndependentSites,
    OneChunk,
    Powers,
    RowChunks,
    SharedBlockSites,
    StructuredBlockSites,
)

EXACT = 2e-12
ENGINE = sys.modules["gpflow_pep.engine.accumulation"]

POWERS = {
    "SGPR": Powers(0.0, 0.0, 0.5),
    "PEP 0.5": Powers(0.5, 0.5, 0.25),
    "FITC": Powers(1.0, 1.0, 0.0),
    "T-SGPR": Powers(0.0, 1.0, 0.5),
    "tiny": Powers(1e-5, 1e-5, 0.5),
}


@pytest.fixture(
    params=some_slow(
        ["PEP 0.5", "SGPR", "FITC", "T-SGPR", "tiny", "one per block"],
        quick=["T-SGPR", "one per block"],
    )
)
def powers_of(request):
    """A function of the number of blocks."""
    if request.param != "one per block":
        return lambda B: POWERS[request.param]

    def varied(B):
        alpha = np.resize([0.3, 0.0, 1.0, 1e-6, 0.8], B)
        return Powers(alpha, alpha, 0.5 * (1.0 - alpha))

    return varied


def collected(problem, chunks, sites, powers, scale):
    """The engine's sums and the variables of their derivatives."""
    scale = double(scale)
    rows = TensorRows(chunks, problem.Kuf, problem.Kff, problem.noise, problem.residual, scale)
    Kuu = tf.constant(problem.Kuu)
    sources = [Kuu, *rows.inputs]  # the scale is second
    with tf.GradientTape() as tape:
        tape.watch(sources)
        sums = accumulate_sums(rows, sites, powers, Kuu=Kuu)
        objective = paired(make_cotangents(sums, 5), sums)
    return sums, tape.gradient(objective, sources, unconnected_gradients="zero")


def with_symmetric_covariances(gradients):
    """
    Symmetrize the derivatives in Kuu and Kff (first and fourth): only their symmetric part is
    defined.
    """
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    return [
        0.5 * (g + tf.transpose(g)) if place in (0, 3) else g for place, g in enumerate(gradients)
    ]


def assert_dense(problem, blocks, chunks, sites, powers, scale=1.0, shared=False):
    """Sums and derivatives are those of the dense evaluation."""
    sums, gradients = collected(problem, chunks, sites, powers, scale)
    # A log det of I + k X divided by k = 1e-6 errs by eps / k in numpy's own evaluation.
    tolerance = 1e-8 if np.min(powers.penalty_power) < 1e-3 else EXACT
    all_close(sums, values_of_sums(problem, blocks, powers, scale, shared), tolerance)
    Kuu, *rows = vars(problem).values()
    sources = [double(values) for values in (Kuu, scale, *rows)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        Kuu, m, *rows = sources
        sums = dense_sums(Kuu, *rows, blocks, powers, m, shared)
        objective = paired(make_cotangents(sums, 5), sums)
    expected = tape.gradient(objective, sources, unconnected_gradients="zero")
    all_close(*map(with_symmetric_covariances, (gradients, expected)), EXACT)


@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        ("rows", 0.6), ("rows", 1.0), ("rows at once", 1.7), ("equal", 0.6), ("unequal", 1.7),
        ("rows", "each"), ("rows at once", "each"), ("unequal", "each"),
    ],
)  # fmt: skip
def test_sums_and_derivatives_equal_the_dense_ones(kind, powers_of, scale):
    problem = make_problem(seed=1)
    blocks = make_blocks(kind, 13)
    scale = np.linspace(0.5, 1.8, len(blocks)) if scale == "each" else scale
    sites = IndependentSites() if kind.startswith("rows") else BlockSites()
    chunks = make_chunks(kind, blocks, 4)
    assert_dense(problem, blocks, chunks, sites, powers_of(len(blocks)), scale)


@pytest.mark.parametrize("kind", ["equal", "unequal", "shared"])
def test_structured_blocks_equal_the_dense_ones(kind):
    """A shared block sums the relative variances instead."""
    problem = make_problem(seed=2, N=12)
    shared = kind == "shared"
    sites = SharedBlockSites(4) if shared else StructuredBlockSites()
    kind = "equal" if shared else kind
    blocks = make_blocks(kind, 12)
    chunks = make_chunks(kind, blocks, 5)
    assert_dense(problem, blocks, chunks, sites, POWERS["T-SGPR"], shared=shared)


@pytest.mark.parametrize(
    ("sites", "method"),
    [
        (IndependentSites(), "SGPR"),
        (IndependentSites(), "PEP 0.5"),
        (BlockSites(), "SGPR"),
        (BlockSites(), "PEP 0.5"),
        (StructuredBlockSites(), "T-SGPR"),
    ],
)
def test_a_derivative_in_A_need_not_be_symmetric(sites, method):
    """
    Functions of the sums may use A in a product, as in tr(R A), so that the derivative is not
    symmetric.
    """
    powers = POWERS[method]
    problem = make_problem(seed=3)
    kind = "rows" if isinstance(sites, IndependentSites) else "unequal"
    blocks = make_blocks(kind, 13)
    R = tf.constant(np.random.default_rng(0).normal(size=(5, 5)))

    def gradient(function):
        Kuf = tf.constant(problem.Kuf)
        return derivative(lambda Kuf: tf.reduce_sum(R * function(Kuf).A), Kuf)

    def engine(Kuf):
        chunks = make_chunks(kind, blocks)
        rows = TensorRows(chunks, Kuf, problem.Kff, problem.noise, problem.residual)
        return accumulate_sums(rows, sites, powers, Kuu=tf.constant(problem.Kuu))

    expected = gradient(
        lambda Kuf: dense_sums(
            problem.Kuu, Kuf, problem.Kff, problem.noise, problem.residual, blocks, powers, 1.0
        )
    )
    close(gradient(engine), expected, EXACT)


@pytest.mark.parametrize("products", [False, True], ids=["by solves", "by products"])
@pytest.mark.parametrize("seed", [1, 2])
def test_linear_and_general_adjoints_agree(monkeypatch, seed, products):
    """
    One product, two triangular solves and a product, and the general adjoint of one chunk, which
    takes one product as well on devices that prefer products.
    """
    problem = make_problem(seed)
    used = []
    linear = ENGINE.linear_adjoint
    monkeypatch.setattr(
        ENGINE,
        "linear_adjoint",
        lambda *args, **single: used.append(bool(args[-1])) or linear(*args, **single),
    )
    gradients = []
    rule = IndependentSites()
    powers = POWERS["SGPR"]
    for chunks, threshold in ((OneChunk(), 0.0), (RowChunks(4), 0.0), (RowChunks(4), np.inf)):
        monkeypatch.setattr(ENGINE, "_WELL_CONDITIONED", threshold)
        gradients.append(collected(problem, chunks, rule, powers, 1.0)[1])
    assert used == [False, True]
    with preferring_products(products):
        gradients.append(collected(problem, OneChunk(), rule, powers, 1.0)[1])
    assert len(used) == 2 + products
    for general, *others in zip(*gradients, strict=True):
        for other in others:
            close(other, general, EXACT)


def test_rounding_below_zero_is_no_variance():
    """
    Rows at inducing points have D = 0 up to rounding: where it is negative, v = s, no penalty, no
    derivative.
    """
    problem = make_problem(seed=15)
    Qff = problem.Kuf.T @ np.linalg.solve(problem.Kuu, problem.Kuf)
    problem.Kff = Qff - 1e-14 * np.eye(13)
    sums, gradients = collected(problem, RowChunks(4), IndependentSites(), POWERS["PEP 0.5"], 1.0)
    close(sums.log_noise, np.sum(np.log(problem.noise)), EXACT)
    assert float(sums.penalty) == 0.0
    assert not np.any(gradients[3])
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
