"""Sweeps: what they report, that they converge from where they start, and that nothing improper is left behind."""

import os

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_breast_cancer

from gpflow_pep import PEPClassifier, datasets
from gpflow_pep.likelihoods import Probit
from gpflow_pep.sites import SitesStatus

rng = np.random.default_rng(31)
X = rng.uniform(-2.0, 2.0, (20, 1))
Y = np.where(np.sin(2.5 * X) + 0.3 * rng.normal(size=X.shape) > 0.0, 1.0, 0.0)
Z = np.linspace(-1.8, 1.8, 6)[:, None]


def assert_proper(model):
    """B is positive definite, and so is every cavity, 1 - α τ s > 0: by numpy, from q(u) = N(m, S)."""
    Kuu = model.kernel(model.inducing_variable.Z).numpy() + gpflow.config.default_jitter() * np.eye(len(Z))
    W = np.linalg.solve(Kuu, model.kernel(model.inducing_variable.Z, model.data[0]).numpy())
    t = model.sites.precision.numpy()[:, 0]
    L = np.linalg.cholesky(Kuu)
    V = L.T @ W
    B = np.eye(len(L)) + (V * t) @ V.T
    assert np.linalg.eigvalsh(B).min() > 0.0
    s = np.sum(V * np.linalg.solve(B, V), axis=0)
    assert np.min(1.0 - float(model.alpha) * t * s) > 0.0


@pytest.fixture(scope="module")
def _shared():
    return PEPClassifier((X, Y), gpflow.kernels.SquaredExponential(4.0), Probit(), Z)


@pytest.fixture
def model(_shared):
    """Compiled once; always the same, with sites that say nothing."""
    _shared.kernel.variance.assign(4.0)
    _shared.kernel.lengthscales.assign(1.0)
    _shared.alpha = 0.5
    _shared.reset_sites()
    return _shared


def test_status(model):
    reports = []
    status = model.update_sites(tol=1e-7, damping=0.7, report=reports.append)
    assert isinstance(status, SitesStatus) and status.converged
    assert status.change <= 1e-7
    assert 0.0 < status.damping <= 0.7
    assert reports[0].sweeps <= 1 and status.sweeps > 2
    assert [report.sweeps for report in reports] == list(range(reports[0].sweeps, status.sweeps + 1))
    assert reports[-1] == status
    assert not any(report.converged for report in reports[:-1])
    assert all(report.change > 1e-7 for report in reports[:-1])
    assert status.log_evidence == pytest.approx(float(model.maximum_log_likelihood_objective()), rel=1e-12)
    again = model.update_sites(tol=1e-7)
    assert again.sweeps == 0 and again.change <= 1e-7


@pytest.mark.parametrize("batch_size", [None, 7])
def test_too_few_sweeps_are_no_secret(model, batch_size):
    with pytest.warns(UserWarning, match=r"sites have not converged after 2 sweeps: the change is .* above 1e-10"):
        status = model.update_sites(max_sweeps=2, tol=1e-10, batch_size=batch_size)
    assert not status.converged and status.sweeps == 2 and status.change > 1e-10
    more = model.update_sites(tol=1e-10, batch_size=batch_size)
    assert more.converged and more.sweeps > 0


def test_batches_take_fewer_sweeps(model):
    """One after the other sites see each other's updates; together they overshoot, and are damped."""
    model.alpha = 1.0
    parallel = model.update_sites(tol=1e-9)
    model.reset_sites()
    one_by_one = model.update_sites(tol=1e-9, batch_size=1)
    assert parallel.converged and one_by_one.converged
    assert one_by_one.sweeps <= parallel.sweeps
    assert one_by_one.log_evidence == pytest.approx(parallel.log_evidence, abs=1e-10)


JUMPS = [(4.0, 1.0), (400.0, 0.3), (0.01, 3.0), (1e4, 0.5), (50.0, 10.0), (4.0, 1.0)]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.filterwarnings("error")
def test_hyperparameters_that_jump(model, alpha):
    """From the sites of other hyperparameters, which may be improper here, to the same sites as from none."""
    model.alpha = alpha
    evidence = {}
    for variance, lengthscales in JUMPS:
        model.kernel.variance.assign(variance)
        model.kernel.lengthscales.assign(lengthscales)
        status = model.update_sites(tol=1e-8)
        assert status.converged
        assert_proper(model)
        kept = evidence.setdefault((variance, lengthscales), status.log_evidence)
        assert status.log_evidence == pytest.approx(kept, abs=1e-8)
    model.reset_sites()
    assert model.update_sites(tol=1e-8).log_evidence == pytest.approx(status.log_evidence, abs=1e-8)


@pytest.mark.parametrize("precision", [-100.0, 1e4], ids=["B", "cavities"])
def test_sites_that_are_improper(model, precision):
    """B is not positive definite, or a cavity not proper, which the energy says: they are scaled down until all are."""
    expected = model.update_sites(tol=1e-9)
    model.sites.precision.assign(np.where(np.arange(len(Y))[:, None] == 3, precision, -0.02))
    model.sites.linear.assign(np.zeros_like(Y))
    model.alpha = 1.0
    if precision > 0.0:
        model.sites.precision.assign(np.where(np.arange(len(Y))[:, None] == 3, precision, -precision / 100.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"positive|proper|failed"):
        model.maximum_log_likelihood_objective()
    model.alpha = 0.5
    status = model.update_sites(tol=1e-9)
    assert status.converged
    assert_proper(model)
    assert status.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)


@pytest.mark.parametrize("batch_size", [None, 6])
@pytest.mark.parametrize("sweep", [1, 3])
def test_an_interrupt(model, sweep, batch_size):
    """By hand, between two sweeps: the sites are proper, are known to be stale, and go on from there."""

    def interrupt(status):
        if status.sweeps == sweep:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.update_sites(tol=1e-10, batch_size=batch_size, report=interrupt)
    assert model.is_stale
    assert_proper(model)
    assert model.sites.precision.numpy().any()
    assert model.update_sites(tol=1e-10, batch_size=batch_size).converged


def test_an_interrupt_within_a_sweep(model, monkeypatch):
    """While the next sweep is looked at: the sites are those before the step, not some of each."""
    states, look = [], type(model)._look

    def count(status):
        states.append((status.sweeps, model.sites.precision.numpy(), model.sites.linear.numpy()))
        if status.sweeps == 2:
            # The next thing that is done is a step, and after it a look, which fails.
            monkeypatch.setattr(type(model), "_look", stop)

    def stop(*arguments):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.update_sites(tol=1e-10, report=count)
    monkeypatch.setattr(type(model), "_look", look)
    # A step is taken and taken back: rounding of numbers of order 1.
    np.testing.assert_allclose(model.sites.precision, states[-1][1], rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(model.sites.linear, states[-1][2], rtol=0.0, atol=1e-14)
    assert model.update_sites(tol=1e-10).converged


@pytest.fixture(scope="module")
def outliers():
    """A sine with three gross errors, by Student's t, whose log density is convex away from the observations."""
    Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)
    Y[[3, 9, 15]] += [[4.0], [-5.0], [3.0]]
    return PEPClassifier((X, Y), gpflow.kernels.SquaredExponential(), gpflow.likelihoods.StudentT(scale=0.1), Z)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8])
def test_sites_of_negative_precision(outliers, alpha):
    outliers.alpha = alpha
    outliers.reset_sites()
    status = outliers.update_sites(max_sweeps=1000)
    assert status.converged
    negative = np.flatnonzero(outliers.sites.precision.numpy() < 0.0)
    assert {3, 9, 15} <= set(negative)
    assert_proper(outliers)
    mean, _ = outliers.predict_f(X)
    assert np.abs(mean - np.sin(2.0 * X)).max() < 0.5  # gross errors are disregarded


# --- real data ------------------------------------------------------------------------------------------------------

ALPHAS = (0.0, 0.2, 0.5, 0.8, 1.0)


def converges_on(X, Y):
    """From nothing and with default settings, for small and large variance, M = 30."""
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    Z = MiniBatchKMeans(30, random_state=0, n_init=1).fit(X).cluster_centers_
    kernel = gpflow.kernels.SquaredExponential(1.0, lengthscales=np.sqrt(X.shape[1]))
    model = PEPClassifier((X, Y), kernel, Probit(), Z)
    evidence = []
    for variance in (1.0, 50.0):
        for alpha in ALPHAS:
            model.kernel.variance.assign(variance)
            model.alpha = alpha
            model.reset_sites()
            status = model.update_sites()
            assert status.converged, (variance, alpha, status)
            evidence.append(status.log_evidence)
    small, large = np.reshape(evidence, (2, len(ALPHAS)))
    assert np.all(small > len(Y) * np.log(0.5))  # better than a coin
    for values in (small, large):
        assert np.all(np.diff(values) > 0.0)  # the slack of the bound shrinks, as it is known to on such data


@pytest.mark.filterwarnings("error::UserWarning:gpflow_pep")
def test_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    converges_on(X, y[:, None].astype(float))


@pytest.mark.data
@pytest.mark.skipif(
    not os.environ.get("GPFLOW_PEP_DATA"), reason="needs the published files: set GPFLOW_PEP_DATA to their directory"
)
@pytest.mark.parametrize("name", ["australian", "breast", "crabs", "iono", "pima", "sonar", "banana"])
def test_binary_sets(name):
    split = datasets.load(name, split=0)
    converges_on(split.X_train, split.Y_train)


@pytest.mark.parametrize("likelihood", [gpflow.likelihoods.Exponential, gpflow.likelihoods.Poisson])
def test_a_prior_under_which_rates_are_huge(likelihood):
    """The first sites are some 1e19, next to which nothing else is left in the sums: they are taken anew."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5.0, (40, 1))
    Y = 1.0 * rng.poisson(np.exp(2.0 * np.sin(3.0 * X) + 1.0))
    kernel = gpflow.kernels.SquaredExponential(100.0, lengthscales=0.5)
    model = PEPClassifier((X, Y + 0.1 * (likelihood is gpflow.likelihoods.Exponential)), kernel, likelihood(),
                          np.linspace(0.0, 5.0, 8)[:, None], alpha=0.0)  # fmt: skip
    status = model.update_sites()
    assert status.converged
    assert status.log_evidence == pytest.approx(float(model.maximum_log_likelihood_objective()), rel=1e-8)
