"""
Derivatives of the objective against central finite differences, in a direction of every trainable
variable.

Five-point differences of step h = 2e-3 err by h^4 F'''''/30 + 1.5 e/h. The rounding e of an
objective below 1e3 is below 1e3 * 1.1e-16 * 1e2 (condition numbers, N terms) = 1e-11: the second
term is below 1e-8. The variables are of order one; fifth derivatives of up to a thousand times the
slope make the first 5e-10 of it. So slopes agree to 1e-7, absolute or relative (``DIFFERENCES``),
if they are right; a missing or wrong term is of order one.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from dense_formulas import make_problem
from differences import assert_gradients
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import Gaussian
from model_values import (
    assert_close,
    linear_mean,
    named,
    positive_parameter,
    value_and_gradients,
    varying_noise,
)
from numpy.testing import assert_allclose

from gpflow_pep import BTSGPR, PEPR, TSGPR

STEP = 2e-3
DIFFERENCES = 1e-7
N = 20

UNEVEN = np.split(np.random.default_rng(9).permutation(N), [3, 10, 12, 13])
POWERS = [0.3, 0.0, 1.0, 0.7, 1e-5]  # of the blocks
ROW_POWERS = np.where(np.arange(N) % 5 == 0, 0.0, np.linspace(0.0, 1.0, N))


# The other models are special cases (one alpha, and no scale) or in test_oracle.py.
CASES = {
    "learned scale of each row, noise of x": (
        PEPR,
        lambda: {
            "alpha": ROW_POWERS,
            "scale": positive_parameter(np.linspace(0.4, 1.8, N)),
            "likelihood": varying_noise("scale"),
        },
    ),
    "learned scale of each row, bound in chunks": (
        PEPR,
        lambda: {
            "alpha": 0.0,
            "scale": positive_parameter(np.linspace(0.4, 1.8, N)),
            "chunk_size": 5,
        },
    ),
    "learned scale of each block": (
        PEPR,
        lambda: {
            "alpha": POWERS,
            "blocks": UNEVEN,
            "scale": positive_parameter(np.linspace(0.4, 1.8, 5)),
            "chunk_size": 5,
        },
    ),
    "optimal scale of each block": (
        PEPR,
        lambda: {"alpha": 0.0, "scale": "optimal per block", "blocks": UNEVEN},
    ),
    "learned scale, tiny alpha": (PEPR, lambda: {"alpha": 1e-7, "scale": positive_parameter(0.6)}),
    "BTSGPR, noise of x": (
        BTSGPR,
        lambda: {"blocks": UNEVEN, "likelihood": varying_noise()},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_match_finite_differences(name):
    """
    Two outputs and a linear mean; the squared exponential has a specialized Kuf. Compiled and eager
    evaluation agree.
    """
    constructor, options = CASES[name]
    X, Y, Z, _ = make_problem(N=N, M=4, P=2)
    kernel = SquaredExponential(1.3, lengthscales=[0.8, 1.1])
    parts = {"likelihood": Gaussian(0.2), "mean_function": linear_mean(2), **options()}
    model = constructor((X, Y), kernel, Z, **parts)
    variables = named(model)
    noise = {variable for variable in variables if variable.startswith(".likelihood")}
    assert len(noise) == (2 if "noise of x" in name else 1)
    assert set(variables) - noise == {
        ".kernel.variance", ".kernel.lengthscales", ".inducing_variable.Z",
        ".mean_function.A", ".mean_function.b", *([".scale"] if "learned" in name else []),
    }  # fmt: skip
    compiled = tf.function(model.maximum_log_likelihood_objective)
    value = model.maximum_log_likelihood_objective()
    assert abs(value) < 1e3
    # Other kernels, the same operations.
    assert_allclose(compiled(), value, rtol=1e-12)
    gradients = assert_gradients(compiled, list(variables.values()), STEP, DIFFERENCES)
    assert all(np.any(gradient != 0.0) for gradient in gradients)


def test_gradients_of_the_upper_bound_match_finite_differences():
    X, Y, Z, _ = make_problem(N=N, M=4)
    model = TSGPR((X, Y), Matern52(), Z, likelihood=varying_noise())
    assert_gradients(model.upper_bound, model.trainable_variables, STEP, DIFFERENCES)


@pytest.mark.parametrize(
    ("blocks", "scale", "noise"),
    [(None, 0.6, "varying"), (UNEVEN, 0.6, "constant"), (None, 1.0, "constant")],
    ids=["rows, scale", "blocks, scale", "rows"],
)
def test_tiny_alpha_equals_alpha_zero(blocks, scale, noise):
    """
    Gradients are analytic in alpha, with derivatives of up to 1e3 times their size (d/s is below
    1e2): alpha = 1e-12 makes no difference of 1e-8. At alpha = 0 and without blocks they come from
    a formula of their own.
    """
    X, Y, Z, _ = make_problem(N=N, M=4, P=2)
    parts = {
        "kernel": SquaredExponential(1.3, lengthscales=0.9),
        "inducing_variable": InducingPoints(Z),
        "likelihood": Gaussian(0.2) if noise == "constant" else varying_noise(),
        "mean_function": gpflow.functions.Constant(np.array([0.3, -0.2])),
        "scale": positive_parameter(scale),
    }
    zero, tiny = (PEPR((X, Y), alpha=alpha, blocks=blocks, **parts) for alpha in (0.0, 1e-12))
    variables = list(named(zero).values())
    value, gradients = value_and_gradients(zero, variables)
    tiny_value, tiny_gradients = value_and_gradients(tiny, variables)
    assert_allclose(tiny_value, value, rtol=1e-9)
    assert_close(tiny_gradients, gradients, 1e-8)


@pytest.mark.parametrize("distance", [0.3, 0.0])
def test_close_inducing_points_match_gpflow(distance):
    """
    Gradients at alpha = 0 against GPflow's as two inducing points meet and cond(Kuu) grows to 4 /
    jitter = 4e6, on both sides of the switch between the two formulas: rounding of 1e2 * 1.1e-16 *
    cond = 5e-8, of the largest.
    """
    X, Y, Z, _ = make_problem(N=N, M=4, P=2)
    Z = np.concatenate([Z, Z[:1] + distance])
    parts = {
        "kernel": SquaredExponential(1.3, lengthscales=0.9),
        "inducing_variable": InducingPoints(Z),
        "likelihood": Gaussian(0.2),
    }
    sgpr = gpflow.models.SGPR((X, Y), **parts)
    variables = list(named(sgpr).values())
    expected, expected_gradients = value_and_gradients(sgpr, variables)
    for alpha in (0.0, np.zeros(N)):
        value, gradients = value_and_gradients(PEPR((X, Y), alpha=alpha, **parts), variables)
        assert_allclose(value, expected, rtol=5e-8)
        assert_close(gradients, expected_gradients, 5e-8)
