"""StreamingPEP: exact for Gaussian likelihoods, consistent for all likelihoods."""

import gpflow
import numpy as np
from comparisons import assert_all_near, assert_near
from covariances import Kuu_of
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import stopped

from gpflow_pep import PEP, PEPR, StreamingPEP
from gpflow_pep.likelihoods import Probit

rng = np.random.default_rng(4)
X = rng.uniform(-3.0, 3.0, (90, 2))
F = np.sin(2.0 * X[:, :1]) + X[:, 1:] ** 2 - 2.0
Y = F + 0.3 * rng.normal(size=F.shape)
LABELS = (Y > 0.0).astype(float)
Z = X[::9]


def kernel():
    return gpflow.kernels.SquaredExponential(2.0, [1.0, 1.2])


def batches(observations):
    return [(X[rows], observations[rows]) for rows in np.split(np.arange(len(X)), 3)]


def streamed(observations, likelihood, kernel=kernel, **options):
    """The model after all batches, and the sum of the log evidences of the batches."""
    first, *others = batches(observations)
    model = StreamingPEP(first, kernel(), likelihood, Z, tol=1e-10, **options)
    total = model.update_sites().log_evidence
    for batch in others:
        model.update(batch)
        total += model.update_sites().log_evidence
    return model, total


@partly_slow("alpha", [1.0, 0.0], 1)
def test_gaussian_likelihood_equals_batch(alpha):
    """Gaussian sites do not depend on the cavity: the result equals PEPR on all data."""
    model, total = streamed(Y, gpflow.likelihoods.Gaussian(0.3), alpha=alpha)
    whole = PEPR((X, Y), kernel(), Z, alpha=alpha, noise_variance=0.3)
    assert_allclose(total, whole.maximum_log_likelihood_objective(), rtol=1e-8)
    assert_all_near(model.predict_f(X), whole.predict_f(X), 1e-8)


def test_inducing_surrogate_has_the_posterior_of_all_batches_and_needs_enough_rows():
    """Also with several latent functions; the third batch alone has other sites."""
    likelihood = gpflow.likelihoods.Softmax(3)
    classes = np.floor(np.clip(Y, 0.0, 2.0))
    model, _ = streamed(classes, likelihood, gpflow.kernels.Matern12, alpha=0.5)
    targets, noise = map(np.array, model.inducing_surrogate())
    precision = np.linalg.inv(Kuu_of(model.kernel, Z)) + np.linalg.inv(noise)
    covariance = np.linalg.inv(precision)  # [C, M, M]
    mean = covariance @ np.linalg.solve(noise, targets.T[..., None])
    # Condition numbers of Kuu and Σ are below 1e4.
    assert_all_near([mean[..., 0].T, covariance], model.compute_qu(), 1e-9)
    model = PEP((X[:5], LABELS[:5]), kernel(), Probit(), Z)
    with stopped("determine every direction of u"):
        model.inducing_surrogate()


def test_sites_are_converged_before_they_are_absorbed():
    """Also if the model has not been evaluated before."""
    first, second, _ = batches(LABELS)
    models = [StreamingPEP(first, kernel(), Probit(), Z, tol=1e-10) for _ in range(2)]
    models[0].update_sites()
    for model in models:
        model.update(second)
    assert_near(models[0].predict_f(X)[0], models[1].predict_f(X)[0], 1e-6)
