"""The collapsed models against references with 50 digits (tests/data), at jitter 0.

Tolerances, unit rounding 1.1e-16. Solves with Kuu (condition number at most 26) and accumulation
over M + N <= 50 terms amplify it to at most 26 * 50 * 1.1e-16 = 1.4e-13. OBJECTIVE, relative: its
terms cancel by a factor of ten at most. PREDICTION, relative to the largest: as above, with a power
of ten for the condition number of B (up to 1e3, but of its root in products). GRADIENT, relative to
the largest: differences of terms that are up to a hundred times larger.
"""

import gpflow
import numpy as np
import pytest
from comparisons import assert_near
from model_values import assert_close, log_gradients, positive_parameter, recorded
from numpy.testing import assert_allclose
from quick import named_cases

from gpflow_pep import BTSGPR, PEPR, TSGPR

OBJECTIVE = 1e-12
PREDICTION = 2e-12
GRADIENT = 1e-11


CASES = [
    case for group in ("pep_reg", "block_pep", "structured", "tpep") for case in recorded(group)
]
ORDERINGS = [case for case in CASES if case["name"].endswith("/ordering")]
OPTIMA = [case for case in CASES if "/m_opt/" in case["name"]]
VALUES = [case for case in CASES if case not in ORDERINGS and case not in OPTIMA]


def _named(cases):
    """Those of one data set, and those of several columns, are not slow."""
    return named_cases(cases, lambda name: name.split("/")[1] == "A" or "/P=2/" in name)


def _arrays(blocks):
    return None if blocks is None else [np.array(block) for block in blocks]


def _model(inputs, constructor, **options):
    kernel = gpflow.kernels.SquaredExponential(
        inputs["kernel"]["variance"], inputs["kernel"]["lengthscales"]
    )
    X, Y, Z = (np.array(inputs[name]) for name in ("X", "Y", "Z"))
    mean = gpflow.functions.Constant(inputs["mean_constant"])
    return constructor(
        (X, Y), kernel, Z, mean_function=mean, noise_variance=inputs["noise_variance"], **options
    )


def _structured(inputs, method, blocks):
    blocks = _arrays(blocks)
    return {
        "SGPR": lambda: _model(inputs, PEPR, alpha=0.0),
        "spherical": lambda: _model(inputs, PEPR, alpha=0.0, scale="optimal"),
        "T-SGPR": lambda: _model(inputs, TSGPR),
        "BT-SGPR": lambda: _model(inputs, BTSGPR, blocks=blocks),
        "F5": lambda: _model(inputs, BTSGPR, blocks=blocks, shared=True),
        "exact": lambda: _model(inputs, PEPR, alpha=1.0, blocks=[np.arange(len(inputs["X"]))]),
    }[method]()


def _model_of(case):
    inputs = case["inputs"]
    group, _, method, *_ = case["name"].split("/")
    if group == "structured":
        return _structured(inputs, method, inputs["blocks"])
    options = {"alpha": inputs["alpha"], "blocks": _arrays(inputs.get("blocks"))}
    if group == "tpep":
        options["scale"] = positive_parameter(inputs.get("m", 1.0))
    return _model(inputs, PEPR, **options)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("case", _named(VALUES))
def test_matches_oracle(case):
    model = _model_of(case)
    expected = case["expected"]
    objective, gradients = log_gradients(model)
    assert_allclose(objective, expected["objective"], rtol=OBJECTIVE)
    if "grad" in expected:
        assert set(expected["grad"]) == set(gradients)
        assert_close(
            [gradients[name] for name in expected["grad"]], expected["grad"].values(), GRADIENT
        )
    if "f_mean" in expected:
        mean, variance = model.predict_f(np.array(case["inputs"]["Xtest"]))
        found = mean, *model.compute_qu()
        for name, value in zip(("f_mean", "q_mu", "q_cov"), found, strict=True):
            assert_close([value], [expected[name]], PREDICTION)
        for column in range(mean.shape[1]):
            assert_close([variance[:, column]], [expected["f_var"]], PREDICTION)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("case", _named(OPTIMA))
def test_learned_scale_matches_oracle(case):
    """
    Maximized over m alone. Where the slope in m's variable is g, the curvature k at least 1, m is
    off by g/k, the objective by g^2/2k: 1e-5 (as the reference, itself the result of a search) and
    5e-11 at the slope asserted.
    """
    model = _model_of(case)
    expected = case["expected"]
    status = gpflow.optimizers.Scipy().minimize(
        model.training_loss,
        [model.scale.unconstrained_variable],
        compile=False,
        options={"gtol": 1e-8, "ftol": 1e-15},
    )
    assert np.abs(status.jac).max() < 1e-5
    assert_allclose(model.scale, expected["m_opt"], rtol=1e-5)
    assert_near(-status.fun, expected["objective"], 2e-10)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("case", _named(ORDERINGS))
def test_bounds_are_ordered(case):
    """As the references are, which they equal."""
    inputs = case["inputs"]
    for name, value in case["expected"].items():
        method, _, kind = name.partition("/")
        model = _structured(inputs, method, inputs[f"blocks_{kind}"] if kind else None)
        found = model.maximum_log_likelihood_objective()
        assert_allclose(found, value, rtol=OBJECTIVE, err_msg=name)
