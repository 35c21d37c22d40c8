"""The engine's sums and their derivatives against dense evaluations.

The problems are of order one (eigenvalues of the joint covariance between 1/2 and 5, noise at least
0.3), so that values err by some 100 eps = 2e-14 and their derivatives, products of at most ten such
factors, by 2e-12 at the most: EXACT.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf
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
from gpflow_pep.maths.linalg import preferring_products

EXACT = 2e-12
ENGINE = sys.modules["gpflow_pep.engine.accumulation"]

POWERS = {
    "SGPR": Powers(0.0, 0.0, 0.5),
    "PEP 0.5": Powers(0.5, 0.5, 0.25),
    "FITC": Powers(1.0, 1.0, 0.0),
    "T-SGPR": Powers(0.0, 1.0, 0.5),
    "tiny": Powers(1e-5, 1e-5, 0.5),
}


@pytest.fixture(params=["rows", "equal", "unequal"])
def kind(request):
    return request.param


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


def collected(dense, problem, chunks, sites, powers, scale):
    """The engine's sums and the variables of their derivatives."""
    scale = tf.constant(scale, tf.float64)
    rows = dense.TensorRows(
        chunks, problem.Kuf, problem.Kff, problem.noise, problem.residual, scale
    )
    Kuu = tf.constant(problem.Kuu)
    sources = [Kuu, *rows.inputs]  # the scale is second
    with tf.GradientTape() as tape:
        tape.watch(sources)
        sums = dense.accumulate_sums(
            rows, sites, dense.tensors(powers), Kuu=Kuu, factorize=dense.factorize
        )
        objective = dense.paired(dense.cotangents(sums, 5), sums)
    return sums, tape.gradient(objective, sources, unconnected_gradients="zero")


def expected_gradients(dense, problem, blocks, powers, scale, shared=False):
    sources = [
        tf.constant(values, tf.float64)
        for values in (
            problem.Kuu,
            scale,
            problem.Kuf,
            problem.Kff,
            problem.noise,
            problem.residual,
        )
    ]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        Kuu, m, *rows = sources
        sums = dense.sums(Kuu, *rows, blocks, powers, m, shared)
        objective = dense.paired(dense.cotangents(sums, 5), sums)
    gradients = [
        tf.convert_to_tensor(g)
        for g in tape.gradient(objective, sources, unconnected_gradients="zero")
    ]
    return with_symmetric_covariances(gradients)


def with_symmetric_covariances(gradients):
    """
    Symmetrize the derivatives in Kuu and Kff (first and fourth): only their symmetric part is
    defined.
    """
    return [
        0.5 * (g + tf.transpose(g)) if place in (0, 3) else g for place, g in enumerate(gradients)
    ]


def assert_dense(dense, problem, blocks, chunks, sites, powers, scale=1.0, shared=False):
    """Sums and derivatives are those of the dense evaluation."""
    sums, gradients = collected(dense, problem, chunks, sites, powers, scale)
    # A log det of I + k X divided by k = 1e-6 errs by eps / k in numpy's own evaluation.
    tolerance = 1e-8 if np.min(powers.penalty_power) < 1e-3 else EXACT
    for actual, expected in zip(
        sums, dense.values_of_sums(problem, blocks, powers, scale, shared), strict=True
    ):
        dense.close(actual, expected, tolerance)
    expected = expected_gradients(dense, problem, blocks, powers, scale, shared)
    for actual, wanted in zip(with_symmetric_covariances(gradients), expected, strict=True):
        dense.close(actual, wanted, EXACT)


@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        ("rows", 0.6), ("rows", 1.0), ("rows at once", 1.7), ("equal", 0.6), ("unequal", 1.7),
        ("rows", "each"), ("rows at once", "each"), ("unequal", "each"),
    ],
)  # fmt: skip
def test_sums_and_derivatives_equal_the_dense_ones(dense, kind, powers_of, scale):
    problem = dense.problem(seed=1)
    blocks = dense.blocks(kind, 13)
    scale = np.linspace(0.5, 1.8, len(blocks)) if scale == "each" else scale
    sites = IndependentSites() if kind.startswith("rows") else BlockSites()
    chunks = dense.chunks(kind, blocks, 4)
    assert_dense(dense, problem, blocks, chunks, sites, powers_of(len(blocks)), scale)


@pytest.mark.parametrize("kind", ["equal", "unequal", "shared"])
def test_structured_blocks_equal_the_dense_ones(dense, kind):
    """A shared block sums the relative variances instead."""
    problem, shared = dense.problem(seed=2, N=12), kind == "shared"
    sites = SharedBlockSites(4) if shared else StructuredBlockSites()
    kind = "equal" if shared else kind
    blocks = dense.blocks(kind, 12)
    chunks = dense.chunks(kind, blocks, 5)
    assert_dense(dense, problem, blocks, chunks, sites, POWERS["T-SGPR"], shared=shared)


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
def test_a_derivative_in_A_need_not_be_symmetric(dense, sites, method):
    """
    Functions of the sums may use A in a product, as in tr(R A), so that the derivative is not
    symmetric.
    """
    powers = POWERS[method]
    problem = dense.problem(seed=3)
    kind = "rows" if isinstance(sites, IndependentSites) else "unequal"
    blocks = dense.blocks(kind, 13)
    R = tf.constant(np.random.default_rng(0).normal(size=(5, 5)))

    def gradient(function):
        Kuf = tf.constant(problem.Kuf)
        with tf.GradientTape() as tape:
            tape.watch(Kuf)
            value = tf.reduce_sum(R * function(Kuf).A)
        return tf.convert_to_tensor(tape.gradient(value, Kuf))

    def engine(Kuf):
        chunks = dense.chunks(kind, blocks)
        rows = dense.TensorRows(chunks, Kuf, problem.Kff, problem.noise, problem.residual)
        return dense.accumulate_sums(
            rows,
            sites,
            dense.tensors(powers),
            Kuu=tf.constant(problem.Kuu),
            factorize=dense.factorize,
        )

    expected = gradient(
        lambda Kuf: dense.sums(
            problem.Kuu, Kuf, problem.Kff, problem.noise, problem.residual, blocks, powers, 1.0
        )
    )
    dense.close(gradient(engine), expected, EXACT)


@pytest.mark.parametrize("chunk_size", some_slow([1, 2, 5, 12, 13, 400], quick=[1, 5]))
def test_the_chunk_size_changes_nothing(dense, kind, chunk_size):
    """
    One chunk or many: other orders of summation, 13 eps; asked for is 1e-10, which also holds for
    many rows.
    """
    problem = dense.problem(seed=7)
    blocks = dense.blocks(kind, 13)
    sites = IndependentSites() if kind == "rows" else BlockSites()
    alpha = np.linspace(0.0, 1.0, len(blocks))
    powers = Powers(alpha, alpha, 0.5 * (1.0 - alpha))
    one = collected(dense, problem, dense.chunks(kind, blocks, 10_000), sites, powers, 0.9)
    many = collected(dense, problem, dense.chunks(kind, blocks, chunk_size), sites, powers, 0.9)
    for actual, expected in zip([*many[0], *many[1]], [*one[0], *one[1]], strict=True):
        dense.close(actual, expected, 1e-10)


@pytest.mark.parametrize("products", [False, True], ids=["by solves", "by products"])
@pytest.mark.parametrize("seed", [1, 2])
def test_linear_and_general_adjoints_agree(dense, monkeypatch, seed, products):
    """
    One product, two triangular solves and a product, and the general adjoint of one chunk, which
    takes one product as well on devices that prefer products.
    """
    problem = dense.problem(seed)
    used = []
    linear = ENGINE.LinearAdjoint.of
    monkeypatch.setattr(
        ENGINE.LinearAdjoint,
        "of",
        lambda *args, **single: used.append(bool(args[-1])) or linear(*args, **single),
    )
    gradients = []
    rule, powers = IndependentSites(), POWERS["SGPR"]
    for chunks, threshold in ((OneChunk(), 0.0), (RowChunks(4), 0.0), (RowChunks(4), np.inf)):
        monkeypatch.setattr(ENGINE, "_WELL_CONDITIONED", threshold)
        gradients.append(collected(dense, problem, chunks, rule, powers, 1.0)[1])
    assert used == [False, True]
    with preferring_products(products):
        gradients.append(collected(dense, problem, OneChunk(), rule, powers, 1.0)[1])
    assert len(used) == 2 + products
    for general, *others in zip(*gradients, strict=True):
        for other in others:
            dense.close(other, general, EXACT)


@pytest.mark.parametrize(
    "name", some_slow([*POWERS, "one per row"], quick=["T-SGPR", "one per row"])
)
@pytest.mark.parametrize("chunks", [RowChunks(5), OneChunk()], ids=["in chunks", "at once"])
def test_several_latent_functions_are_several_calls(dense, name, chunks):
    powers = POWERS.get(
        name, Powers(np.linspace(0, 1, 13), np.linspace(0, 1, 13), np.linspace(0.5, 0, 13))
    )
    problems = [dense.problem(seed) for seed in (11, 12, 13)]
    together = type(problems[0])(
        **{
            name: np.stack([getattr(problem, name) for problem in problems])
            for name in vars(problems[0])
        }
    )
    sources = [
        tf.constant(getattr(together, name)) for name in ("Kuu", "Kuf", "Kff", "noise", "residual")
    ]
    weights = [
        dense.cotangents(dense.values_of_sums(p, dense.blocks("rows", 13), powers, 1.2), 5)
        for p in problems
    ]
    scale = tf.constant(1.2, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([*sources, scale])
        sums = dense.accumulate_sums(
            dense.TensorRows(chunks, *sources[1:], scale),
            IndependentSites(),
            dense.tensors(powers),
            Kuu=sources[0],
            factorize=dense.factorize,
        )
        stacked = [np.stack(bars) for bars in zip(*weights, strict=True)]
        objective = dense.paired(stacked, sums)
    gradients = tape.gradient(objective, [*sources, scale], unconnected_gradients="zero")
    scale_bar = 0.0
    for number, problem in enumerate(problems):
        alone, (Kuu_bar, m_bar, *rows_bar) = collected(
            dense, problem, chunks, IndependentSites(), powers, 1.2
        )
        scale_bar += m_bar
        for actual, expected in zip(sums[:-1], alone[:-1], strict=True):  # rows share no matrix
            dense.close(actual[number], expected, EXACT)
        for actual, expected in zip(gradients[:5], [Kuu_bar, *rows_bar], strict=True):
            dense.close(actual[number], expected, EXACT)
    dense.close(gradients[5], scale_bar, EXACT)


def test_several_latent_functions_share_a_residual(dense):
    """
    Kuu [C, M, M] with residuals and noise [1, N, ...] that broadcast: one y, several functions.
    """
    problem = dense.problem(seed=14)
    chunks = RowChunks(5)
    shared = [problem.Kuf[None], problem.Kff[None], problem.noise[None], problem.residual[None]]
    copies = [np.repeat(values, 2, axis=0) for values in shared]
    Kuu = tf.constant(np.repeat(problem.Kuu[None], 2, axis=0))
    results = []
    for rows in (copies, [*copies[:2], *shared[2:]]):
        results.append(
            dense.accumulate_sums(
                dense.TensorRows(chunks, *rows),
                IndependentSites(),
                dense.tensors(POWERS["PEP 0.5"]),
                Kuu=Kuu,
                factorize=dense.factorize,
            )
        )
    for first, second in zip(*results, strict=True):
        dense.close(second, first, EXACT)


def test_rounding_below_zero_is_no_variance(dense):
    """
    Rows at inducing points have D = 0 up to rounding: where it is negative, v = s, no penalty, no
    derivative.
    """
    problem = dense.problem(seed=15)
    Qff = problem.Kuf.T @ np.linalg.solve(problem.Kuu, problem.Kuf)
    problem.Kff = Qff - 1e-14 * np.eye(13)
    sums, gradients = collected(
        dense, problem, RowChunks(4), IndependentSites(), POWERS["PEP 0.5"], 1.0
    )
    dense.close(sums.log_noise, np.sum(np.log(problem.noise)), EXACT)
    assert float(sums.penalty) == 0.0
    assert not np.any(gradients[3])
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
