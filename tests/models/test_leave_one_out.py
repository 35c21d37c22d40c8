"""
Leave-one-out densities against predictions of models without the row.

Both ways solve with Kuu (condition number below 1e2) and B (below 1e3) once more than the other:
1e5 eps = 2e-11.
"""

import gpflow
import numpy as np
from comparisons import assert_near
from dense_formulas import make_problem
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import Gaussian
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import stopped

from gpflow_pep import BTSGPR, PEP, PEPR, TSGPR, StreamingSGPR
from gpflow_pep.likelihoods import Probit

EXACT = 1e-10


LABELS = np.array([2, 0, 1, 1, 0, 2, 2, 0])  # of the blocks of eight rows


def pep(data, kernel, Z, *, noise_variance, **options):
    """Sites of Gaussian noise do not depend on other rows: q without one is a fit to the others."""
    return PEP(data, kernel, Gaussian(noise_variance), Z, **options)


def stream(data, kernel, Z, **options):
    """After another batch: row n is predicted from the old posterior and the other rows."""
    X, Y = make_problem(N=20, P=2, seed=1)[:2]
    model = StreamingSGPR((X, Y), kernel, Z, **options)
    model.update(data)
    return model


def heteroscedastic(data, kernel, Z, *, noise_variance, **options):
    scale = gpflow.functions.Linear([[0.06], [0.04]], [noise_variance])
    return PEPR(data, kernel, Z, likelihood=Gaussian(scale=scale), **options)


MODELS = {
    "PEPR alpha 0": (PEPR, {"alpha": 0.0}),
    "T-PEP": (PEPR, {"alpha": 0.5, "scale": 0.7, "chunk_size": 5}),
    "varying noise": (heteroscedastic, {"alpha": 0.5}),
    "TSGPR": (TSGPR, {}),
    "PEPR blocks": (PEPR, {"alpha": 0.7, "chunk_size": 4, "blocks": LABELS}),
    "T-PEP of a scale per block": (
        PEPR,
        {"alpha": 0.5, "scale": [0.4, 1.0, 1.7], "blocks": LABELS},
    ),
    "BTSGPR": (BTSGPR, {"blocks": LABELS}),
    "PEP": (pep, {"alpha": 0.6, "scale": 0.7}),
    "StreamingSGPR": (stream, {"alpha": 0.7}),
}


@partly_slow("name", MODELS, quick=["PEPR blocks", "varying noise", "PEP", "StreamingSGPR"])
def test_equals_refits(name):
    constructor, options = MODELS[name]
    data = make_problem(N=8, P=2)

    def model(rows):
        blocks = {"blocks": LABELS[rows]} if "blocks" in options else {}
        return constructor(
            (data.X[rows], data.Y[rows]),
            SquaredExponential(1.3, [0.8, 1.1]),
            data.Z,
            mean_function=gpflow.functions.Constant(0.2 * np.ones(2)),
            noise_variance=0.1,
            **options | blocks,
        )

    whole = model(np.arange(8))
    actual = whole.loo_log_predictive_density()
    assert actual.shape == [8]
    errors, variances = ([], []) if name == "PEP" else whole._leave_one_out()
    for n in (1, 3, 6, 7):  # of all blocks, and the last one
        refit = model(np.delete(np.arange(8), n))
        x, y = data.X[[n]], data.Y[[n]]
        assert_near(actual[n], refit.predict_log_density((x, y))[0], EXACT)
        if name != "PEP":
            mean, variance = refit.predict_y(x)
            assert_near(errors[n], (y - mean)[0], EXACT)
            assert_near(variances[n], variance[0, 0], EXACT)


def test_shared_block_equals_sgpr():
    data = make_problem(N=12)
    kernel = SquaredExponential(1.3, [0.8, 1.1])
    shared = BTSGPR((data.X, data.Y), kernel, data.Z, blocks=4, shared=True, noise_variance=0.1)
    vfe = PEPR((data.X, data.Y), kernel, data.Z, alpha=0.0, noise_variance=0.1)
    assert_allclose(
        shared.loo_log_predictive_density(), vfe.loo_log_predictive_density(), atol=EXACT
    )


def test_without_a_site_q_may_be_improper():
    """
    Prior variances are 3, the correlation of the first two rows 0.9 or so: with precisions 2 and
    -0.5 B is positive definite, |I + K T| = 7 (1 - 1.5) + 9 (0.9²) > 0, but not without the first
    site, 1 - 1.5 < 0.
    """
    inputs = np.array([[0.0], [0.4], [5.0]])
    labels = np.array([[0.0], [1.0], [1.0]])
    model = PEP((inputs, labels), Matern52(3.0), Probit(), inputs, alpha=0.0)
    model._warned.assign(True)
    model._options.max_sweeps.assign(0)  # the sites stay
    model.sites.precision.assign([[2.0], [-0.5], [0.3]])
    assert np.isfinite(model.maximum_log_likelihood_objective())
    with stopped(r"site of an observation is not proper.*a smaller alpha"):
        model.loo_log_predictive_density()
