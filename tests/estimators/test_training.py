"""Fits that share a compiled model give the results of new models and do not affect each other."""

import copy
import subprocess
import sys
import threading

import gpflow
import joblib
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Linear, Matern12, Matern32, Matern52, Periodic, SquaredExponential, Sum
from gpflow.likelihoods import Gaussian
from gpflow.models import GPR
from gpflow.quadrature import NDiagGHQuadrature
from numpy.testing import assert_allclose, assert_array_equal
from own_kernels import repeated, tied
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from gpflow_pep import PEPR
from gpflow_pep.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_pep.selection import reuse
from gpflow_pep.selection.reuse import structure

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    monkeypatch.setattr(reuse, "_kept", [])


def regressor(**options):
    return SparseGPRegressor(**{"n_inducing": 6, "max_iterations": 5, "random_state": 0, **options})


def classifier(**options):
    return SparseGPClassifier(
        **{"n_inducing": 6, "max_iterations": 2, "random_state": 0, **options}
    )


@pytest.mark.parametrize(
    ("make", "method"), [(regressor, "predict"), (classifier, "predict_proba")]
)
def test_a_fit_does_not_depend_on_earlier_ones(X, y, make, method):
    """
    Bit for bit, with other rows, other numbers of rows and points and another alpha in between.
    """
    targets = y if make is regressor else y > 100.0
    first = make().fit(X, targets)
    expected = getattr(first, method)(X)
    ((_, worker),) = reuse._kept
    compiled = vars(worker)["_training_step"]
    make(alpha=0.1).fit(X[:40] + 1.0, targets[:40])
    grown = make(n_inducing=50).fit(X[:30], targets[:30])
    assert grown.n_inducing_ == 30 and grown.model_.inducing_variable.Z.shape == [30, X.shape[1]]
    again = make().fit(X, targets)
    # All 30 rows are points: GPR was trained, by a model of its own.
    assert [model for _, model in reuse._kept if type(model) is not GPR] == [worker]
    assert vars(worker)["_training_step"] is compiled
    assert_array_equal(getattr(again, method)(X), expected)
    assert_array_equal(getattr(first, method)(X), expected)
    assert len(worker.data[0].numpy()) == 1  # no rows are kept
    assert again.log_marginal_likelihood_value_ == first.log_marginal_likelihood_value_


def test_structures_have_models_of_their_own(X, y):
    """
    Kernels, numbers of columns and trainable parameters, but not numbers of points; those used last
    are kept.
    """
    fixed = SquaredExponential()
    gpflow.set_trainable(fixed.variance, False)
    for kernel in (SquaredExponential(), fixed, Matern32()):
        regressor(optimizer=None, kernel=kernel).fit(X, y)
    for number in (2, 12, 5):
        regressor(optimizer=None, n_inducing=number).fit(X[:, :1], y)
    kernels = [type(model.kernel) for _, model in reuse._kept]
    assert kernels == [SquaredExponential, SquaredExponential, Matern32, Sum]
    for kernel in (Linear(), Matern12(), Matern52()):
        regressor(optimizer=None, kernel=kernel).fit(X, y)
    last = [type(model.kernel) for _, model in reuse._kept]
    assert last == [*kernels[1:], Linear, Matern12, Matern52]


@pytest.mark.parametrize("make", [regressor, classifier])
def test_refits_on_growing_rows_compile_once(X, y, make):
    """
    All rows are inducing points, of another number each time. The objective is the energy of a new
    model of the same points and parameters, whose sites are converged to 1e-6.
    """
    targets = y if make is regressor else y > 100.0
    for number in range(20, 23):
        found = make(n_inducing=50).fit(X[:number], targets[:number])
        assert found.n_inducing_ == number
        expected = copy.deepcopy(found.model_).maximum_log_likelihood_objective()
        assert_allclose(found.log_marginal_likelihood_value_, expected, rtol=1e-5)
    step = vars(reuse._kept[0][1])["_training_step"].functions[False, ()]
    assert [each.experimental_get_tracing_count() for each in step._functions.values()] == [1]


class Scaled(SquaredExponential):
    """A kernel with an attribute that is neither a setting nor a parameter."""

    def __init__(self, factor):
        super().__init__()
        self.held = {"factor": [factor]}

    def K(self, X, X2=None):
        return super().K(X, X2) * self.held["factor"][0]

    def K_diag(self, X):
        return super().K_diag(X) * self.held["factor"][0]


@pytest.mark.parametrize("kernels", [[Scaled(1.0), Scaled(5.0)], [tied("variance"), repeated(1)]])
def test_kernels_that_cannot_be_compared_are_not_confused(X, y, kernels):
    """Subclasses and kernels with shared parameters or parts are trained in place."""
    found = [regressor(kernel=kernel, optimizer=None).fit(X, y) for kernel in kernels]
    assert not reuse._kept
    objectives = [estimator.log_marginal_likelihood_value_ for estimator in found]
    expected = [-estimator.model_.training_loss() for estimator in found]
    assert_allclose(objectives, expected, rtol=1e-9)
    assert abs(objectives[0] - objectives[1]) > 0.1


def with_prior(loc, on):
    kernel = SquaredExponential()
    kernel.lengthscales.prior = tfp.distributions.Normal(np.float64(loc), np.float64(1.0))
    kernel.lengthscales.prior_on = on
    return kernel


class Softened(tfp.bijectors.Softplus):
    """A user-defined transform."""


def test_settings_describe_kernels():
    """Models with a structure are reused."""
    X = np.arange(6.0)[:, None]

    def model(kernel, **options):
        return PEPR((X, X), kernel, X[::2], **options)

    for kernel in (
        SquaredExponential() + Periodic(Matern32(active_dims=[0])),
        with_prior(0.0, "constrained"),
    ):
        assert structure(model(kernel)) == structure(model(copy.deepcopy(kernel))) is not None
    with_transform = SquaredExponential()
    with_transform.variance = gpflow.Parameter(1.0, transform=Softened())
    with_method = SquaredExponential()
    with_method.K_r2 = lambda r2: tf.exp(-r2)
    for kernel in (Scaled(1.0), tied("variance"), repeated(1), with_transform, with_method):
        assert structure(model(kernel)) is None
    first, other = (structure(model(with_prior(loc, "constrained"))) for loc in (0.0, 1.0))
    assert first is not None and other is not None and first != other
    assert structure(model(SquaredExponential(), blocks=[0, 1, 0, 1, 0, 1])) is None
    likelihoods = [Gaussian(), Gaussian()]
    likelihoods[1].quadrature = NDiagGHQuadrature(1, 5)
    one, other = (
        structure(model(SquaredExponential(), likelihood=likelihood)) for likelihood in likelihoods
    )
    assert one is not None and other is not None and one != other


def test_threads(X, y):
    """Four threads train four separate models."""
    estimators = [regressor(alpha=alpha) for alpha in (0.0, 0.3, 0.6, 1.0)]
    expected = [clone(estimator).fit(X, y).predict(X) for estimator in estimators]
    threads = [threading.Thread(target=estimator.fit, args=(X, y)) for estimator in estimators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_allclose([estimator.predict(X) for estimator in estimators], expected, rtol=1e-9)


LOADER = """
import sys, joblib, numpy as np
estimator = joblib.load(sys.argv[1])
np.save(sys.argv[3], estimator.predict(np.load(sys.argv[2]), return_std=True))
"""


def test_other_processes(X, y, tmp_path):
    """A new process gives the same predictions bit for bit; two processes search like one."""
    estimator = regressor().fit(X, y)
    joblib.dump(estimator, tmp_path / "estimator")
    np.save(tmp_path / "X.npy", X)
    arguments = [str(tmp_path / name) for name in ("estimator", "X.npy", "found.npy")]
    subprocess.run([sys.executable, "-c", LOADER, *arguments], check=True)
    assert_array_equal(np.load(tmp_path / "found.npy"), estimator.predict(X, return_std=True))
    grid = {"alpha": [0.0, 1.0]}
    scores = [
        GridSearchCV(regressor(), grid, cv=2, n_jobs=jobs).fit(X, y).cv_results_["mean_test_score"]
        for jobs in (1, 2)
    ]
    assert_allclose(*scores, rtol=1e-9)
