"""The solver: status, convergence from any start, and no improper or worse sites as a result."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from covariances import whitened
from gpflow.kernels import Constant, Linear, SquaredExponential
from gpflow.likelihoods import Bernoulli, Exponential, Ordinal, Poisson, Softmax, StudentT
from marks import needs_data
from numpy.testing import assert_allclose, assert_array_equal
from quick import partly_slow
from refusals import stopped
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_breast_cancer
from tensorflow.errors import InvalidArgumentError
from waves import line, signs, wave

from experiments import datasets
from gpflow_pep import PEP, PEPClassifier
from gpflow_pep.ep import SitesStatus
from gpflow_pep.likelihoods import Probit

X, Y = signs(20, 31)
Z = line(-1.8, 1.8, 6)


def assert_proper(model):
    """
    B is positive definite, and so is every cavity, 1 - α τ s > 0: by numpy, from q(u) = N(m, S).
    """
    V = whitened(model.kernel, Z, X)
    t = model.sites.precision.numpy()[:, 0]
    B = np.eye(len(Z)) + (V * t) @ V.T
    assert np.linalg.eigvalsh(B).min() > 0.0
    s = np.sum(V * np.linalg.solve(B, V), axis=0)
    assert np.min(1.0 - model.alpha * t * s) > 0.0


@pytest.fixture(scope="module")
def _shared():
    return PEP((X, Y), SquaredExponential(4.0), Probit(), Z)


@pytest.fixture
def model(_shared):
    """A model compiled once, with empty sites."""
    _shared.kernel.variance.assign(4.0)
    _shared.kernel.lengthscales.assign(1.0)
    _shared.alpha, _shared.tol, _shared.max_sweeps, _shared.damping = 0.5, 1e-6, 1000, 1.0
    _shared._warned.assign(False)
    _shared.reset_sites()
    return _shared


def test_status_of_converged_sites(model):
    reports = []
    model.tol, model.damping = 1e-7, 0.7
    status = model.update_sites(callback=reports.append)
    assert isinstance(status, SitesStatus) and status.converged
    assert reports == [status] and model.sites_status == status
    assert status.change <= 1e-7
    assert 0.0 < status.damping <= 0.7
    assert status.sweeps > 2
    assert_allclose(status.log_evidence, model.maximum_log_likelihood_objective(), rtol=1e-12)
    again = model.update_sites()
    assert again.sweeps == 0 and again.change <= 1e-7


def test_batches_take_fewer_sweeps(model):
    """
    One after the other sites see each other's updates; together they overshoot, and are damped.
    """
    model.alpha, model.tol, reports = 1.0, 1e-9, []
    parallel = model.update_sites()
    model.reset_sites()
    one_by_one = model.update_sites(batch_size=1, callback=reports.append)
    assert parallel.converged and one_by_one.converged
    assert len(reports) - 2 <= parallel.sweeps
    assert_near(one_by_one.log_evidence, parallel.log_evidence, 1e-10)


JUMPS = [(4.0, 1.0), (400.0, 0.3), (0.01, 3.0), (1e4, 0.5), (50.0, 10.0), (4.0, 1.0)]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.filterwarnings("error")
def test_sites_converge_after_large_hyperparameter_changes(model, alpha):
    """Sites of other hyperparameters, possibly improper, lead to the same sites as empty sites."""
    model.alpha, model.tol = alpha, 1e-8
    evidence = {}
    for variance, lengthscales in JUMPS:
        model.kernel.variance.assign(variance)
        model.kernel.lengthscales.assign(lengthscales)
        status = model.update_sites()
        assert status.converged
        assert_proper(model)
        kept = evidence.setdefault((variance, lengthscales), status.log_evidence)
        assert_near(status.log_evidence, kept, 1e-8)
    model.reset_sites()
    assert_near(model.update_sites().log_evidence, status.log_evidence, 1e-8)


@pytest.mark.parametrize("precision", [-100.0, 1e4], ids=["B", "cavities"])
def test_improper_initial_sites_are_scaled_down(model, trace, precision):
    """B is not positive definite, or a cavity not proper: they are scaled down until all are."""
    model.tol = 1e-9
    expected = model.update_sites()
    values = np.where(
        np.arange(len(Y))[:, None] == 3, precision, -0.02 if precision < 0.0 else -precision / 100.0
    )
    model.sites.precision.assign(values)
    model.sites.linear.assign(np.zeros_like(Y))
    run = trace(model)
    assert not run.loops[0].attempt.is_valid and int(run.loops[0].attempt.halvings) == 1
    first = next(loop for loop in run.loops if loop.attempt.is_valid)
    scaled = first.iterate.swept.sites.numpy()[:, 0] / values
    assert_allclose(scaled, scaled[0, 0], rtol=1e-14)
    assert scaled[0, 0] == 0.0 or np.log2(scaled[0, 0]) % 1.0 == 0.0
    status = model.update_sites()
    assert status.converged
    assert_proper(model)
    assert_near(status.log_evidence, expected.log_evidence, 1e-8)


@pytest.mark.parametrize("sweep", [1, 3])
def test_ctrl_c_leaves_proper_sites(model, sweep):
    """
    Interrupt between two sweeps in batches: sites are proper, options are unchanged, and the next
    call continues.
    """
    left, model.tol = [sweep + 1], 1e-10

    def interrupt(status):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.update_sites(batch_size=6, callback=interrupt)
    assert model.max_sweeps == 1000
    assert_proper(model)
    assert model.sites.precision.numpy().any()
    assert model.update_sites(batch_size=6).converged


@pytest.fixture(scope="module")
def outliers():
    """
    A sine with three gross errors, by Student's t, whose log density is convex away from the
    observations.
    """
    X, Y = wave(20, 31, noise=0.1)
    Y[[3, 9, 15]] += [[4.0], [-5.0], [3.0]]
    return PEP((X, Y), SquaredExponential(), StudentT(scale=0.1), Z)


@partly_slow("alpha", [0.0, 0.5, 0.8], quick=[0.5])
def test_sites_of_negative_precision(outliers, alpha):
    outliers.alpha = alpha
    outliers.reset_sites()
    assert outliers.update_sites().converged
    assert {3, 9, 15} <= set(np.flatnonzero(outliers.sites.precision.numpy() < 0.0))
    assert_proper(outliers)
    mean, _ = outliers.predict_f(X)
    assert np.abs(mean - np.sin(2.0 * X)).max() < 0.5  # gross errors are disregarded


# --- real data ------------------------------------------------------------------------------------

ALPHAS = (0.0, 0.2, 0.5, 0.8, 1.0)


def converges_on(X, Y):
    """Empty sites and default settings, small and large variance, M = 30."""
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    Z = MiniBatchKMeans(30, random_state=0, n_init=1).fit(X).cluster_centers_
    kernel = SquaredExponential(1.0, lengthscales=np.sqrt(X.shape[1]))
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
        # The slack of the bound shrinks, as is known on such data.
        assert np.all(np.diff(values) > 0.0)


@pytest.mark.filterwarnings("error::UserWarning:gpflow_pep")
def test_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    converges_on(X, y[:, None].astype(float))


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    "name", ["australian", "breast", "crabs", "iono", "pima", "sonar", "banana"]
)
def test_binary_sets(name):
    split = datasets.load(name, split=0)
    converges_on(split.X_train, split.Y_train)


@pytest.mark.parametrize("likelihood", [Exponential, Poisson])
def test_a_prior_under_which_rates_are_huge(likelihood):
    """
    The first sites are some 1e19, next to which nothing else is left in the sums: they are taken
    anew.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5.0, (40, 1))
    Y = 1.0 * rng.poisson(np.exp(2.0 * np.sin(3.0 * X) + 1.0))
    kernel = SquaredExponential(100.0, lengthscales=0.5)
    model = PEP((X, Y + 0.1 * (likelihood is Exponential)), kernel, likelihood(),
                line(0.0, 5.0, 8), alpha=0.0)  # fmt: skip
    status = model.update_sites()
    assert status.converged
    assert_allclose(status.log_evidence, model.maximum_log_likelihood_objective(), rtol=1e-8)


# --- bad luck: it converges from defaults, or says that it does not -------------------------------


def column(values):
    return np.asarray(values, float)[:, None]


LINE = np.linspace(-2.0, 2.0, 24)
SMOOTH = np.sin(3.0 * LINE)
HARD = {
    "separable": (Probit, column(LINE > 0.1)),
    "one label only": (Probit, column(0.0 * LINE)),
    "logit separable": (Bernoulli, column(LINE > 0.1)),
    "StudentT": (
        lambda: StudentT(scale=0.1),
        column(SMOOTH + 4.0 * (np.arange(24) % 7 == 0)),
    ),
    "Poisson exp": (Poisson, column(np.floor(np.exp(1.5 * SMOOTH + 1.0)))),
    "Poisson square": (
        lambda: Poisson(invlink=tf.square),
        column(np.floor(np.exp(1.5 * SMOOTH + 1.0))),
    ),
    "ordinal": (
        lambda: Ordinal(np.array([-0.5, 0.5])),
        column(np.digitize(SMOOTH, [-0.5, 0.5])),
    ),
}
# At alpha = 0 the expected rate under the prior is infinite, or E[(log f²)''] is: they do not
# converge, which is said.
NO_BOUND = {"Poisson exp": (1e4,), "Poisson square": (1.0, 1e4)}
# Log-concave: these do converge.
CERTAIN = (
    "separable",
    "one label only",
    "logit separable",
    "Poisson exp",
)


def ends_well(model):
    """
    Return whether the sites converge; an error must name the non-finite value and leave the sites
    empty.
    """
    try:
        return model.update_sites().converged
    except InvalidArgumentError as error:
        message = str(error)
    assert "tilted distributions are not finite" in message
    assert not model.sites.stacked().numpy().any()
    return False


@pytest.mark.parametrize("case", HARD)
@pytest.mark.filterwarnings("ignore:The sites have not converged")
def test_hard_problems_converge_or_say_so(case):
    """
    For large and small prior variances and every power: the end is finite and proper, and its
    status is right.
    """
    likelihood, observed = HARD[case]
    kernel = SquaredExponential(1.0)
    model = PEP((LINE[:, None], observed), kernel, likelihood(), LINE[1::4, None])
    for variance in (1.0, 1e4):
        for alpha in (0.0, 0.5, 1.0):
            kernel.variance.assign(variance)
            model.alpha = alpha
            model.reset_sites()
            if alpha == 0.0 and variance in NO_BOUND.get(case, ()):
                assert not ends_well(model)
                continue
            status = model.update_sites()
            assert np.isfinite(status.log_evidence) and np.isfinite(status.change), (
                variance,
                alpha,
            )
            assert status.converged == (status.change <= model.tol)
            assert status.converged or case not in CERTAIN, (variance, alpha, status)
            mean, spread = model.predict_f(LINE[:, None])
            assert np.all(np.isfinite(mean)) and np.all(spread > 0.0)
            assert model.update_sites().change <= max(status.change, model.tol)
            if variance == 1.0:
                assert status.converged or case in ("StudentT", "Poisson square"), (
                    variance,
                    alpha,
                    status,
                )


def test_an_update_that_overflows_is_an_error():
    """The update overflows even under the prior; the sites are unchanged."""
    kernel = SquaredExponential(1.0)
    likelihood = Poisson()
    observed = np.full((24, 1), 2.0)
    mean = gpflow.functions.Constant(0.0)
    model = PEP((LINE[:, None], observed), kernel, likelihood, LINE[1::4, None], mean_function=mean)
    assert model.update_sites().converged
    before = model.sites.stacked().numpy()
    mean.c.assign(1e200)  # its square overflows, whatever the sites
    with stopped(r"The sites cannot be updated.*overflowing"):
        model.predict_f(LINE[:, None])
    assert_array_equal(model.sites.stacked(), before)
    mean.c.assign(0.0)
    assert model.update_sites().sweeps == 0


def test_many_rows_under_a_wide_prior():
    """
    Their first updates together go much too far. It takes 20 sweeps; if no update is rejected for
    its loss of energy, 100 do not suffice.
    """
    rng = np.random.default_rng(6)
    inputs = rng.normal(size=(300, 2))
    functions = np.stack([inputs[:, 0], inputs[:, 1] - inputs[:, 0], -inputs[:, 1]], axis=1)
    labels = np.argmax(functions + 0.8 * rng.normal(size=(300, 3)), axis=1)
    model = PEP(
        (inputs, labels[:, None].astype(float)),
        Linear(300.0) + Constant(100.0),
        Softmax(3),
        inputs[:6],
        max_sweeps=60,
    )
    assert model.update_sites().converged
