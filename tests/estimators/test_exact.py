"""The exact model as GPflow's GPR. Its jitter, 1e-6, is at most 1/10,000 of the noise variance."""

import warnings
from copy import deepcopy

import gpflow
import numpy as np
import pytest
from comparisons import assert_all_close
from gpflow.kernels import Matern52, SharedIndependent, SquaredExponential, White
from gpflow.models import GPR
from model_values import loss_and_gradient
from numpy.testing import assert_allclose
from waves import line

from gpflow_pep import PEPR, weak_priors
from gpflow_pep.estimators import SparseGPRegressor, base, regressor
from gpflow_pep.estimators.exact import as_gpr, exact_leave_one_out, is_exact, trained_as_gpr
from gpflow_pep.training import fit
from gpflow_pep.training.options import FitOptions

rng = np.random.default_rng(3)
X = rng.normal(size=(40, 2))
Y = np.sin(X) + 0.3 * rng.normal(size=(40, 2))
TWICE = np.concatenate([X[:30], X[:10]])


def made(inputs=X, points=X, kernel=None, alpha=0.5):
    mean = gpflow.functions.Constant([0.2, -0.1])
    kernel = kernel or Matern52(lengthscales=[1.0, 2.0])
    model = PEPR((inputs, Y), kernel, points, alpha=alpha, mean_function=mean, noise_variance=0.1)
    gpflow.set_trainable(model.inducing_variable, False)
    weak_priors(model)
    return model


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize(("inputs", "points"), [(X, X), (TWICE, TWICE[:30])])
def test_gpr_has_the_same_evidence_and_predictions(inputs, points, alpha):
    model = made(inputs, points, alpha=alpha)
    gpr = as_gpr(model)
    assert is_exact(model)
    assert_allclose(gpr.training_loss(), model.training_loss(), rtol=1e-3)
    assert_allclose(gpr.predict_y(X), model.predict_y(X), rtol=1e-3, atol=1e-3)
    plain = GPR(gpr.data, gpr.kernel, gpr.mean_function, likelihood=gpr.likelihood)
    (loss, gradient), expected = map(loss_and_gradient, (gpr, plain))
    assert_allclose(loss, expected[0], rtol=1e-12)
    assert_all_close(gradient, expected[1], rtol=1e-9, atol=1e-9)
    errors, variances = model._leave_one_out()
    expected = exact_leave_one_out(model)
    assert_allclose(errors, expected[0], atol=1e-3)
    assert_allclose(variances, expected[1], rtol=1e-3)


def test_training_finds_the_maximum_of_the_model():
    model = made()
    other = deepcopy(model)
    result = trained_as_gpr(model, FitOptions(tolerance=1e-8))
    fit(other, tolerance=1e-8)
    assert result.converged
    assert_allclose(-result.objective[-1], other.training_loss(), rtol=1e-4)
    assert_allclose(model.training_loss(), other.training_loss(), rtol=1e-5)
    # The maximum is flat.
    assert_all_close(model.trainable_parameters, other.trainable_parameters, rtol=0.02)


class Noisy(SquaredExponential):
    """A kernel with a white part that is no part of a sum."""

    def K(self, X, X2=None):
        return super().K(X, X2) + White(0.3).K(X, X2)


@pytest.mark.parametrize(
    "options",
    [
        {"points": X[1:]},
        {"points": X + 0.1},
        {"kernel": SquaredExponential() + White(0.1)},
        {"kernel": Noisy()},
        {"kernel": SharedIndependent(SquaredExponential(), 2)},
    ],
)
def test_other_models_are_not_exact(options):
    assert not is_exact(made(**options))


class Rounded(SquaredExponential):
    """Distances of rows to copies of themselves may be rounded."""

    def K(self, X, X2=None):
        exact = super().K(X, X2)
        return exact if X2 is None else (1.0 - 1e-12) * exact


def test_rounding_of_the_kernel_is_no_white_part():
    assert is_exact(made(kernel=Rounded()))


def test_rows_far_from_0_are_not_exact():
    """Squares of their distances would be rounded; PEPR centers the rows."""
    x = rng.integers(0, 6 * 1024, (60, 1)) / 1024.0  # sums are not rounded
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=60)
    near, far = (SparseGPRegressor(n_draws=0).fit(x + shift, y) for shift in (0.0, 2.0**22))
    assert is_exact(near.model_) and not is_exact(far.model_)
    evidences = [each.log_marginal_likelihood_value_ for each in (near, far)]
    assert_allclose(*evidences, rtol=1e-3)


def test_many_rows_are_not_exact():
    rows = line(0.0, 1.0, 900)
    assert not is_exact(PEPR((rows, rows), Matern52(), rows))


def test_a_shared_kernel_of_two_outputs():
    kernel = SharedIndependent(SquaredExponential(), 2)
    assert SparseGPRegressor(kernel, random_state=0).fit(X, Y).result_.converged


def test_a_singular_matrix_of_gpr_leaves_training_to_the_model():
    """PEPR starts at the initial parameters and raises its jitter."""
    x = line(1.0, 100.0, 120)
    y = 3.0 * x[:, 0] ** 2 + rng.normal(size=120)
    kernel = SquaredExponential(1e10, 30.0)
    estimator = SparseGPRegressor(kernel, normalize_y=False, noise_variance=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the jitter
        estimator.fit(x, y)
    assert estimator.score(x, y) > 0.99


def test_all_rows_are_points_if_their_evidence_is_higher(monkeypatch):
    """
    By default, 100 points of 120 rows are compared with all rows. The difference is per value of
    two outputs.
    """
    monkeypatch.setattr(base, "_ALL_POINTS", 100)
    monkeypatch.setattr(base, "_WORK", 0.0)
    rows = line(-2.0, 2.0, 120)
    outputs = np.sin(rows * [3.0, 2.0]) + 0.3 * rng.normal(size=(120, 2))
    sparse, full = (
        SparseGPRegressor(n_inducing=number, random_state=0).fit(rows, outputs)
        for number in (100, 120)
    )
    evidences = [each.log_marginal_likelihood_value_ for each in (sparse, full)]
    difference = (evidences[1] - evidences[0]) / 240
    for clearly, expected in ((difference - 1e-5, full), (difference + 1e-5, sparse)):
        monkeypatch.setattr(regressor, "_CLEARLY", clearly)
        found = SparseGPRegressor(random_state=0).fit(rows, outputs)
        assert found.n_inducing_ == expected.n_inducing_
        assert_allclose(
            found.log_marginal_likelihood_value_, expected.log_marginal_likelihood_value_, rtol=1e-5
        )
        # Of both trainings.
        assert (found.n_iter_ > expected.n_iter_) == (expected is full)


def test_rows_without_noise_keep_fewer_points(monkeypatch):
    """At powers of at most 0.5: larger ones underestimate the noise."""
    monkeypatch.setattr(base, "_ALL_POINTS", 20)
    monkeypatch.setattr(base, "_WORK", 0.0)
    monkeypatch.setattr(regressor, "_CLEARLY", -np.inf)
    rows = line(-2.0, 2.0, 120)
    for noise, alpha, expected in ((0.3, 0.5, 120), (0.0, 0.5, 100), (0.0, 1.0, 120)):
        outputs = np.sin(rows[:, 0]) + noise * rng.normal(size=120)
        fitted = SparseGPRegressor(alpha=alpha, random_state=0).fit(rows, outputs)
        assert fitted.n_inducing_ == expected


def test_adam_trains_one_model(monkeypatch):
    """
    It never converges, and evidences of other models do not compare. The evidence is that after the
    last step.
    """
    monkeypatch.setattr(base, "_ALL_POINTS", 20)
    monkeypatch.setattr(base, "_WORK", 0.0)
    monkeypatch.setattr(regressor, "_CLEARLY", -np.inf)
    rows = line(-2.0, 2.0, 120)
    found = SparseGPRegressor(optimizer="adam", max_iterations=2).fit(rows, np.sin(rows))
    assert found.n_inducing_ == 100 and found.n_iter_ == 2
    evidence = found.model_.maximum_log_likelihood_objective()
    assert_allclose(found.log_marginal_likelihood_value_, evidence, rtol=1e-9)
