"""
Tilted distributions of several latent values: robust-max against references, closed forms and
differences.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_near
from differences import assert_gradients, slope_and_curvature
from doubles import double
from model_values import references
from quick import partly_slow
from tilted_rules import observed

from gpflow_pep import MultiClassRobustMax
from gpflow_pep.tilted import Cavity, log_partition, rule_for

REFERENCES = references("robustmax_logZ")
POWERS = (0.0, 1e-6, 0.3, 1.0)
C = 3
N = 8
rng = np.random.default_rng(95)
CAVITY = Cavity(tf.constant(rng.normal(size=(C, N))), tf.constant(rng.uniform(0.2, 3.0, (C, N))))
OBSERVATIONS = observed(rng.integers(0, C, (N, 1)))


@pytest.mark.parametrize("convention", ["paper", "gpflow"])
def test_matches_references(convention):
    """
    The relative error of log E[p^α] is below 1e-10, the error of its derivatives in m and v below
    1e-9.
    """
    for case in REFERENCES:
        inputs = case["inputs"]
        expected = case["expected"][convention]
        if convention == "paper":
            likelihood = MultiClassRobustMax(inputs["C"], inputs["epsilon"])
        else:
            link = gpflow.likelihoods.RobustMax(inputs["C"], inputs["epsilon"])
            likelihood = gpflow.likelihoods.MultiClass(inputs["C"], link)
        cavity = Cavity(*(double(inputs[name])[:, None] for name in ("mean", "var")))
        rows = observed([[inputs["y"]]])
        rule = rule_for(likelihood, "kl")
        assert_near(
            rule.moments(cavity, rows, double(0.0)).log_partition[0, 0], expected["E_log_p"], 1e-10
        )
        for name, value in expected.items():
            if name.startswith("logZ_alpha="):
                alpha = float(name.removeprefix("logZ_alpha="))
                tilted = rule.moments(cavity, rows, double(alpha))
                assert_near(alpha * float(tilted.log_partition[0, 0]), value, 1e-10)
        tilted = rule.moments(cavity, rows, double(0.5))
        assert_near(0.5 * tilted.d1[:, 0], expected["dlogZ_dm_alpha=0.5"], 1e-9)
        in_v = 0.5 * (0.5 * tilted.d2 + tf.square(0.5 * tilted.d1))[:, 0]
        assert_near(in_v, expected["dlogZ_dv_alpha=0.5"], 1e-9)


@partly_slow("alpha", POWERS, quick=[0.0, 0.3])
def test_matches_finite_differences(alpha):
    """
    Fourth-order differences in each mean, h = 2e-3; rounding of the second derivative is 1e-14/h².
    """
    rule = rule_for(MultiClassRobustMax(C, 0.01), "kl")
    h = 2e-3
    found = rule.moments(CAVITY, OBSERVATIONS, double(alpha))
    assert found.log_partition.shape == (1, N)
    for k in range(C):
        step = h * (np.arange(C) == k)[:, None]
        values = [
            rule.moments(
                Cavity(CAVITY.mean + n * step, CAVITY.variance), OBSERVATIONS, double(alpha)
            ).log_partition.numpy()[0]
            for n in (-2, -1, 0, 1, 2)
        ]
        slope, curvature = slope_and_curvature(values, h)
        noise = 10.0 if alpha == 1e-6 else 1.0  # of log1p(x)/α
        assert_near(found.d1[k], slope, 1e-9 * noise)
        assert_near(found.d2[k], curvature, 1e-6 * noise)
    assert_near(found.variance_ratio, 1.0 + alpha * CAVITY.variance * found.d2, 1e-8)


def test_small_alpha_converges_to_alpha_zero():
    rule = rule_for(MultiClassRobustMax(C, 0.01), "kl")
    limit, near = (rule.moments(CAVITY, OBSERVATIONS, double(alpha)) for alpha in (0.0, 1e-10))
    assert_all_close(near, limit, rtol=1e-7, atol=1e-7)


@partly_slow("alpha", POWERS, quick=[0.0, 0.3])
def test_gradients_of_log_partition(alpha):
    """In means, variances and epsilon, as used by tied factors and minibatches."""
    likelihood = MultiClassRobustMax(C, 0.05)
    rule = rule_for(likelihood, "kl")
    gpflow.set_trainable(likelihood.epsilon, True)
    mean, variance = (tf.Variable(value) for value in CAVITY)
    sources = [mean, variance, likelihood.epsilon.unconstrained_variable]

    def value():
        return tf.reduce_sum(
            log_partition(rule, Cavity(mean, variance), OBSERVATIONS, double(alpha))
        )

    assert_gradients(value, sources, h=1e-3, tolerance=1e-8)
