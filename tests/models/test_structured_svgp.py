"""
TSVGP, BTSVGP and PEPSVGP: recorded values, limits, orderings, collapsed relatives, minibatches and
derivatives.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from dense_formulas import Dense
from gpflow.functions import Constant, Linear
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, ScalarLikelihood
from gpflow.models import SGPR, SVGP
from model_values import loss_and_gradient, random_q, references
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import stopped

from gpflow_pep import BTSGPR, BTSVGP, PEPR, PEPSVGP, TSGPR, TSVGP
from gpflow_pep.models import structured_svgp

CASES = {case["name"].split("/")[1]: case for case in references("uncollapsed")}
N = 14
D = 2
M = 4


def data(C=1):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N, D))
    return X, np.sin(2.0 * X[:, :1] + np.arange(C)) + 0.1 * rng.normal(size=(N, C))


def model(kind, C=1, *, likelihood=None, kernel=None, **options):
    kernel = kernel or SquaredExponential(1.3, lengthscales=[0.8, 1.1])
    options.setdefault("num_data", N)
    return kind(
        kernel,
        likelihood or Gaussian(0.05),
        data()[0][:M] + 0.1,
        mean_function=Constant(0.1 * np.ones(C)),
        num_latent_gps=C,
        **random_q(np.random.default_rng(7), M, C),
        **options,
    )


def dependent_noise():
    """A standard deviation that is linear in x, between 0.1 and 0.5 on [-2, 2]^2."""
    return Gaussian(scale=Linear(np.array([[0.06], [0.04]]), np.array([0.3])))


@partly_slow("name", CASES, quick=["A", "C"])
def test_matches_references(name, no_jitter):
    """
    The mean over blocks, weighted by their rows. 1e-9, as the references were recorded.
    """
    inputs = CASES[name]["inputs"]
    expected = CASES[name]["expected"]
    X, Z = (np.array(inputs[name]) for name in ("X", "Z"))
    Y = np.array(inputs["Y"]).reshape(len(X), -1)[:, :1]
    blocks = [np.array(block) for block in inputs["blocks"]]
    rows = [np.arange(len(X))]
    kernel = SquaredExponential(inputs["kernel"]["variance"], inputs["kernel"]["lengthscales"])
    q_mu, q_sqrt = (np.array(inputs[name]) for name in ("q_mu", "q_sqrt"))
    shared = {
        "mean_function": Constant(inputs["mean_constant"]),
        "num_data": len(X),
        "q_mu": q_mu.reshape(len(Z), -1)[:, :1],
        "q_sqrt": q_sqrt.reshape(-1, len(Z), len(Z))[:1],
        "whiten": False,
    }

    def value(kind, parts, **options):
        made = kind(kernel, Gaussian(inputs["noise_variance"]), Z, **shared, **options)
        objectives = (made.maximum_log_likelihood_objective((X[p], Y[p])) for p in parts)
        return np.average(list(objectives), weights=list(map(len, parts)))

    found = {
        "SVGP (eq 3)": value(PEPSVGP, rows, alpha=0.0),
        "T-SVGP (eq 5)": value(TSVGP, rows),
        "BT-SVGP (eq 9)": value(BTSVGP, blocks),
        "PEPSVGP alpha=0.5 m=1 B=N": value(PEPSVGP, rows, alpha=0.5),
        "PEPSVGP alpha=0.5 m=0.7 B=N": value(PEPSVGP, rows, alpha=0.5, scale=0.7),
        "PEPSVGP alpha=0.5 m=0.7 unequal": value(
            PEPSVGP, blocks, alpha=0.5, scale=0.7, minibatch_is_block=True
        ),
        "PEPSVGP alpha=1 m=0.7 unequal": value(
            PEPSVGP, blocks, alpha=1.0, scale=0.7, minibatch_is_block=True
        ),
    }
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("whiten", "noise"), [(True, "constant"), (False, "of x")])
def test_alpha_zero_equals_svgp_and_bounds_are_ordered(whiten, noise):
    """
    SVGP <= TSVGP <= BTSVGP at equal parameters, with all rows in one block; PEPSVGP at alpha 0
    equals SVGP to 1e-12.
    """
    likelihood = None if noise == "constant" else dependent_noise()
    X, Y = data(2)
    svgp, of_rows, of_block, tighter, tightest = (
        model(kind, 2, whiten=whiten, likelihood=likelihood, **options).training_loss((X, Y))
        for kind, options in (
            (SVGP, {}),
            (PEPSVGP, {"alpha": 0.0}),
            (PEPSVGP, {"alpha": 0.0, "minibatch_is_block": True}),
            (TSVGP, {}),
            (BTSVGP, {}),
        )
    )
    assert_allclose([of_rows, of_block], svgp, rtol=1e-12)
    assert svgp > tighter + 1e-2 and tighter > tightest + 1e-2


COLLAPSED = {
    "TSVGP": (TSVGP, TSGPR, {}, {}),
    "BTSVGP": (BTSVGP, BTSGPR, {}, {"blocks": N}),
    "rows": (PEPSVGP, PEPR, {"alpha": 0.4, "scale": 0.8}, {"alpha": 0.4, "scale": 0.8}),
    "block": (
        PEPSVGP,
        PEPR,
        {"alpha": 0.4, "minibatch_is_block": True},
        {"alpha": 0.4, "blocks": N},
    ),
    "EP": (PEPSVGP, PEPR, {"alpha": 1.0}, {"alpha": 1.0}),
    "bound": (PEPSVGP, PEPR, {"alpha": 0.0, "scale": 1.7}, {"alpha": 0.0, "scale": 1.7}),
}


def with_optimal_q(made, collapsed, **options):
    """
    Give a model the q(u) of a collapsed one of the same parts, which is optimal; return both
    objectives.
    """
    C = made.num_latent_gps
    observed = data(C)
    exact = collapsed(
        observed,
        made.kernel,
        made.inducing_variable,
        mean_function=made.mean_function,
        **options,
    )
    mean, covariance = exact.compute_qu()
    made.q_mu.assign(mean)
    made.q_sqrt.assign(np.broadcast_to(np.linalg.cholesky(covariance), (C, M, M)))
    return made.maximum_log_likelihood_objective(observed), exact.maximum_log_likelihood_objective()


@pytest.mark.parametrize("case", COLLAPSED)
def test_optimal_q_gives_collapsed_model(case):
    """
    The objective is quadratic in q_mu and log-concave in q_sqrt: at its optimum, the collapsed
    model's q(u).
    """
    kind, collapsed, options, collapsed_options = COLLAPSED[case]
    for likelihood in (None, dependent_noise()):
        made = model(kind, 2, likelihood=likelihood, whiten=False, **options)
        value, exact = with_optimal_q(
            made, collapsed, likelihood=made.likelihood, **collapsed_options
        )
        assert_allclose(value, exact, rtol=1e-10)


def test_blocks_are_unbiased():
    """
    The mean over equal blocks is the bound of the collapsed model with these blocks and the same
    q(u).
    """
    made = model(BTSVGP, whiten=False)
    X, Y = data()
    parts = np.random.default_rng(3).permutation(N).reshape(2, -1)
    _, exact = with_optimal_q(made, BTSGPR, likelihood=made.likelihood, blocks=list(parts))
    values = [made.maximum_log_likelihood_objective((X[part], Y[part])) for part in parts]
    assert_allclose(np.mean(values), exact, rtol=1e-10)


def test_nongaussian_likelihoods_learn_one_scale():
    """
    m = 1 is SVGP's bound; with Gaussian noise the best m is 1/(1 + mean(d)/s), the spherical
    bound's.
    """
    X, Y = data()
    labels = (Y > 0.0).astype(float)
    probit = Bernoulli()
    tighter = model(TSVGP, likelihood=probit)
    plain = model(SVGP, likelihood=probit)
    assert tighter.scale.trainable
    at_one = tighter.training_loss((X, labels))
    assert_allclose(at_one, plain.training_loss((X, labels)), rtol=1e-12)
    gpflow.optimizers.Scipy().minimize(
        tighter.training_loss_closure((X, labels)), tighter.scale.trainable_variables
    )
    assert tighter.training_loss((X, labels)) < at_one - 1e-3

    class Unknown(ScalarLikelihood):
        """A Gaussian likelihood that is not a subclass of Gaussian."""

        def _scalar_log_prob(self, X, F, Y):
            return gpflow.logdensities.gaussian(Y, F, tf.constant(0.05, F.dtype))

        def _conditional_mean(self, X, F):
            return F

        def _conditional_variance(self, X, F):
            return 0.05 * tf.ones_like(F)

    learned = model(TSVGP, likelihood=Unknown(), whiten=False)
    sgpr = SGPR((X, Y), learned.kernel, learned.inducing_variable, noise_variance=0.05)
    learned.scale.assign(Dense.of(sgpr).spherical_scale())
    value, spherical = with_optimal_q(
        learned, PEPR, alpha=0.0, scale="optimal", noise_variance=0.05
    )
    loss, (slope,) = loss_and_gradient(learned, (X, Y), variables=learned.scale.trainable_variables)
    assert_allclose([-loss, value], spherical, rtol=1e-9)
    assert abs(slope) < 1e-8


def test_indefinite_block_raises():
    """Neither BTSVGP nor PEPSVGP adds jitter to a block."""
    block = tf.constant([[[1.0, 1.0], [1.0, 1.0 - 1e-9]]], tf.float64)
    one = tf.ones([], tf.float64)
    with stopped(r"not successful: a block has size.*smaller minibatches"):
        structured_svgp._log_det_and_squares(one, block - tf.eye(2, dtype=tf.float64), block)
