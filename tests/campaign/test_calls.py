"""A small part of the calls campaign, and tests of its reference and its judgments."""

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

from campaign.calls import KERNELS, PLACES, Case, case_of, compare, make, run
from campaign.reference import power_ep

SOUND = Case(
    0, "PEPR", "squared exponential", "near", "array",
    *(np.random.default_rng(1).normal(size=shape) for shape in ((6, 2), (6, 1), (3, 2), (3, 2))),
    None, 0.5, 1.3, 0.8, 0.2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("alpha", "peer", "name"),
    [
        (0.0, gpflow.models.SGPR, "squared exponential"),
        (1.0, gpflow.models.GPRFITC, "Matern 5/2"),
    ],
)
def test_the_reference_is_gpflow_at_the_ends(alpha, peer, name):
    """SGPR and FITC; at a noise of 0.2 GPflow errs by some 1e-12."""
    constructor, kernel = KERNELS[name]
    model = peer(
        (SOUND.X, SOUND.Y), constructor(1.3, lengthscales=0.8), SOUND.Z, noise_variance=0.2
    )
    found = power_ep(
        (SOUND.X, SOUND.Y),
        kernel(1.3, 0.8),
        SOUND.Z,
        SOUND.Xnew,
        alpha=alpha,
        noise=0.2,
        jitter=1e-6,
    )
    assert found.objective == pytest.approx(
        float(model.maximum_log_likelihood_objective()), rel=1e-9
    )
    mean, variance = (value.numpy()[:, 0] for value in model.predict_f(SOUND.Xnew))
    assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-10)
    assert_allclose(found.variance, variance, rtol=1e-8)


def test_wrong_numbers_are_found():
    """The objective, a prediction or all results come from a model of another case."""
    model = make(SOUND)
    assert compare(SOUND, model).verdict == "right"
    model.alpha = 0.49
    assert compare(SOUND, model).verdict.startswith("wrong")
    assert run(SOUND._replace(X=np.full((6, 2), np.nan))).verdict == "raw error"


@pytest.mark.slow
def test_a_small_share():
    found = [(case, run(case)) for case in map(case_of, range(60))]
    assert all(outcome.verdict == "right" for _, outcome in found)
    assert {case.place for case, _ in found} == set(PLACES)
