"""Limits of the collapsed models: GPflow's models, dense formulas, each other.

Problems are tiny (N = 24, M = 5) and Kuu is well conditioned (below 1e3 with the kernels used
here). Two routes to one number then differ by rounding alone: 1.1e-16 times the condition number of
Kuu, and a factor of ten for that of Qff + S (below 1e2, but of its root in products). ``CLOSE``,
relative to the largest, is that bound.
"""

import gpflow
import numpy as np
import pytest
from dense_formulas import UNEVEN, Dense, make_problem
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Linear, Matern32, Matern52, RationalQuadratic, SquaredExponential, White
from gpflow.models import GPR, GPRFITC, SGPR
from model_values import (
    assert_close,
    assert_same,
    linear_mean,
    named,
    value_and_gradients,
    varying_noise,
)
from numpy.testing import assert_allclose
from quick import partly_slow, some_slow

from gpflow_pep import BTSGPR, PEPR, TSGPR

CLOSE = 1e-12

KERNELS = {
    "active dims": lambda: SquaredExponential(1.1, lengthscales=0.7, active_dims=[1]),
    "sum": lambda: (
        Matern32(0.7, lengthscales=0.8, active_dims=[0]) + SquaredExponential(0.6, active_dims=[1])
    ),
    "product": lambda: RationalQuadratic(1.2, lengthscales=1.0) * Linear(0.5) + Matern52(0.2),
    "white": lambda: SquaredExponential(1.0) + White(0.2),
}
EQUAL = list(np.random.default_rng(8).permutation(24).reshape(6, 4))
POWERS = [0.3, 0.0, 1.0, 0.7, 0.05]

# Each kind of collapsed model on 24 rows, with its dense formula.
MODELS = {
    "VFE": (PEPR, {"alpha": 0.0}, lambda d: d.sgpr()),
    "PEP": (PEPR, {"alpha": 0.4}, lambda d: d.pep(0.4, d.singletons())),
    "FITC": (PEPR, {"alpha": 1.0}, lambda d: d.pep(1.0, d.singletons())),
    "block PEP": (PEPR, {"alpha": POWERS, "blocks": UNEVEN}, lambda d: d.pep(POWERS, UNEVEN)),
    "T-PEP": (PEPR, {"alpha": 0.4, "scale": 0.6}, lambda d: d.pep(0.4, d.singletons(), 0.6)),
    "block T-PEP": (
        PEPR,
        {"alpha": POWERS, "blocks": UNEVEN, "scale": 1.3},
        lambda d: d.pep(POWERS, UNEVEN, 1.3),
    ),
    "spherical": (PEPR, {"alpha": 0.0, "scale": "optimal"}, lambda d: d.spherical()),
    "TSGPR": (TSGPR, {}, lambda d: d.structured(d.singletons())),
    "BTSGPR": (BTSGPR, {"blocks": UNEVEN}, lambda d: d.structured(UNEVEN)),
    "shared": (BTSGPR, {"blocks": EQUAL, "shared": True}, lambda d: d.shared(EQUAL)),
}


@pytest.fixture(params=some_slow(KERNELS, quick=["active dims", "product", "white"]))
def kernel(request):
    return KERNELS[request.param]()


def _parts(kernel=None, likelihood=None, mean_function=None, **others):
    """Parts that two models share, so that their gradients are in the same variables."""
    return others | {
        "kernel": SquaredExponential(1.3, lengthscales=[0.8, 1.1]) if kernel is None else kernel,
        "likelihood": gpflow.likelihoods.Gaussian(0.15) if likelihood is None else likelihood,
        "mean_function": mean_function or gpflow.functions.Zero(),
    }


def _objective(model):
    return model.maximum_log_likelihood_objective().numpy()


def _assert_predicts_as(model, other, Xnew):
    for full_cov in (False, True):
        assert_close(
            model.predict_f(Xnew, full_cov=full_cov),
            other.predict_f(Xnew, full_cov=full_cov),
            CLOSE,
        )
    assert_close(model.predict_y(Xnew), other.predict_y(Xnew), CLOSE)


# --- GPflow's models ------------------------------------------------------------------------------


@partly_slow(
    ("kernel", "P", "noise"),
    [
        ("active dims", 1, "constant"),
        ("product", 2, "constant"),
        ("sum", 2, "varying"),
        ("white", 2, "varying"),
    ],
    3,
    indirect=["kernel"],
)
def test_alpha_zero_equals_sgpr(kernel, P, noise):
    X, Y, Z, Xnew = make_problem(P=P)
    likelihood = varying_noise() if noise == "varying" else None
    parts = _parts(kernel, likelihood, linear_mean(P), inducing_variable=InducingPoints(Z))
    sgpr = SGPR((X, Y), **parts)
    pepr = PEPR((X, Y), alpha=0.0, **parts)
    assert_same(pepr, sgpr, CLOSE)
    _assert_predicts_as(pepr, sgpr, Xnew)
    assert_close(pepr.compute_qu(), sgpr.compute_qu(), CLOSE)
    # SGPR's upper bound counts the determinant once, whatever P, and is another with varying noise.
    if P == 1 and noise == "constant":
        assert _objective(pepr) < pepr.upper_bound().numpy()
        assert_close([pepr.upper_bound()], [sgpr.upper_bound()], CLOSE)


def test_alpha_one_equals_fitc(kernel):
    X, Y, Z, Xnew = make_problem()
    parts = _parts(kernel, mean_function=linear_mean(1), inducing_variable=InducingPoints(Z))
    fitc = GPRFITC((X, Y), **parts)
    pepr = PEPR((X, Y), alpha=1.0, **parts)
    assert_same(pepr, fitc, CLOSE)
    _assert_predicts_as(pepr, fitc, Xnew)


def test_one_block_at_alpha_one_is_exact(kernel):
    """Qff + D = Kff wherever Z is: evidence and gradients are GPR's, and none of them is in Z."""
    X, Y, Z, _ = make_problem(P=2)
    parts = _parts(kernel, mean_function=linear_mean(2))
    model = PEPR((X, Y), inducing_variable=Z, alpha=1.0, blocks=[np.arange(24)], **parts)
    gpr = GPR((X, Y), **parts)
    variables = list(named(gpr).values())
    value, gradients = value_and_gradients(
        model, [*variables, model.inducing_variable.Z.unconstrained_variable]
    )
    expected, expected_gradients = value_and_gradients(gpr, variables)
    assert_allclose(value, expected, rtol=CLOSE)
    assert_close(gradients, [*expected_gradients, np.zeros_like(Z)], CLOSE)


def test_upper_bound_equals_dense_formula():
    X, Y, Z, _ = make_problem(P=2)
    model = TSGPR((X, Y), inducing_variable=Z, **_parts(likelihood=varying_noise()))
    d = Dense.of(model)
    inflated = d.Qff + (1.0 + np.trace(d.relative)) * np.diag(d.noise)
    log_det = np.linalg.slogdet(2.0 * np.pi * (d.Qff + np.diag(d.noise)))[1]
    # P / 2 = 1.
    expected = -log_det - 0.5 * np.sum(d.residual * np.linalg.solve(inflated, d.residual))
    assert_allclose(model.upper_bound(), expected, rtol=CLOSE)


# --- the formulas, evaluated densely --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernel"),
    list(zip(MODELS, ["active dims", "sum", "product", "white", "sum"] * 2, strict=True)),
    indirect=["kernel"],
)
def test_objective_equals_dense_formula(name, kernel):
    X, Y, Z, _ = make_problem(P=2)
    constructor, options, formula = MODELS[name]
    parts = _parts(kernel, varying_noise("scale"), linear_mean(2))
    model = constructor((X, Y), inducing_variable=Z, **options, **parts)
    d = Dense.of(model)
    assert d.noise.max() > 1.5 * d.noise.min()
    assert_allclose(_objective(model), formula(d), rtol=CLOSE)


@partly_slow(
    "name", ["FITC", "block PEP", "block T-PEP", "BTSGPR"], quick=["block T-PEP", "BTSGPR"]
)
def test_predictions_equal_dense_formula(name):
    X, Y, Z, Xnew = make_problem(P=2)
    constructor, options, _ = MODELS[name]
    parts = _parts(Matern52(1.3, lengthscales=0.9), varying_noise(), linear_mean(2))
    model = constructor((X, Y), inducing_variable=Z, **options, **parts)
    d = Dense.of(model)
    blocks = options.get("blocks", d.singletons())
    mean, cov = d.predictions(
        model, Xnew, options.get("alpha", 0.0), blocks, options.get("scale", 1.0)
    )
    assert_close(model.predict_f(Xnew, full_cov=True), [mean, np.stack([cov, cov])], CLOSE)
    variance = np.tile(np.diag(cov)[:, None], (1, 2))
    assert_close(model.predict_f(Xnew), [mean, variance], CLOSE)
    assert_close(
        model.predict_y(Xnew), [mean, variance + model.likelihood.variance_at(Xnew)], CLOSE
    )


# --- each other -----------------------------------------------------------------------------------


@partly_slow(
    ("constructor", "options"),
    [
        (TSGPR, {}),
        (PEPR, {"alpha": np.linspace(0.0, 1.0, 24).tolist(), "scale": 0.7}),
        (PEPR, {"alpha": 0.0, "scale": "optimal"}),
    ],
    2,
)
def test_blocks_of_one_row_equal_no_blocks(constructor, options):
    X, Y, Z, Xnew = make_problem(P=2)
    parts = _parts(mean_function=linear_mean(2), inducing_variable=InducingPoints(Z))
    without = constructor((X, Y), **options, **parts)
    singletons = (BTSGPR if constructor is TSGPR else PEPR)((X, Y), blocks=1, **options, **parts)
    assert_same(singletons, without, CLOSE)
    _assert_predicts_as(singletons, without, Xnew)


@partly_slow("blocks", [None, UNEVEN], 1, ids=["rows", "blocks"])
def test_best_scale_at_alpha_zero_is_optimal(blocks):
    """
    The spherical bound is the maximum over m: also its gradients agree (the derivative in m
    vanishes there).
    """
    X, Y, Z, _ = make_problem(P=2)
    parts = _parts(inducing_variable=InducingPoints(Z))
    optimal = PEPR((X, Y), alpha=0.0, scale="optimal", blocks=blocks, **parts)
    m = gpflow.Parameter(Dense.of(optimal).spherical_scale(), transform=gpflow.utilities.positive())
    given = PEPR((X, Y), alpha=0.0, scale=m, blocks=blocks, **parts)
    assert_same(given, optimal, CLOSE)
    _, (slope,) = value_and_gradients(given, [m.unconstrained_variable])
    assert abs(slope) < 1e-9
    m.assign(0.9 * m)
    assert _objective(given) < _objective(optimal) - 1e-3
