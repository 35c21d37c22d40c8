"""
What PEP keeps: its sites, which follow every change by themselves; data, compiled functions,
copies, checkpoints.
"""

import tracemalloc
import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close, assert_all_equal, assert_all_near, assert_near
from configuration import configured
from covariances import Kuu_of
from gpflow.kernels import Linear, Matern52, SquaredExponential
from gpflow.likelihoods import Softmax
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused, stopped
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from gpflow_pep import PEP, PEPClassifier
from gpflow_pep.likelihoods import MultiClassRobustMax, Probit

rng = np.random.default_rng(11)
X = rng.uniform(-2.0, 2.0, (14, 2))
Y = np.where(X[:, :1] * X[:, 1:] + 0.3 * rng.normal(size=(14, 1)) > 0.0, 1.0, 0.0)
XNEW = rng.uniform(-2.0, 2.0, (5, 2))
Z = X[:5] + 0.1
TOL = 1e-8
CLOSE = 1e-6  # of predictions: TOL over 1 - contraction, for means and deviations of order 1


def make(**options):
    parts = {"mean_function": gpflow.functions.Constant(0.1), "tol": TOL, **options}
    return PEP((X, Y), SquaredExponential(2.0, lengthscales=[0.8, 1.1]), Probit(), Z, **parts)


@pytest.fixture(scope="module")
def _shared():
    """Two models that are the same."""
    models = make(), make()
    return models, gpflow.utilities.read_values(models[0])


def as_in_the_beginning(model, values):
    model.data = (X, Y)
    model.alpha, model.tol, model.max_sweeps, model.damping = 0.5, TOL, 1000, 1.0
    gpflow.utilities.multiple_assign(model, values)
    model.reset_sites()
    model._warned.assign(False)
    assert model.update_sites().converged
    return model


@pytest.fixture
def model(_shared):
    """Always the same, compiled once, as it was in the beginning: its sites have converged."""
    (model, _), values = _shared
    return as_in_the_beginning(model, values)


@pytest.fixture
def other(_shared):
    """Another one like it."""
    (_, model), values = _shared
    return as_in_the_beginning(model, values)


def sites(model):
    return np.stack([model.sites.precision, model.sites.linear])


# --- what follows changes -------------------------------------------------------------------------

CHANGES = {
    "variance": lambda model: model.kernel.variance.assign(2.5),
    "lengthscales": lambda model: model.kernel.lengthscales.assign([0.8, 1.2]),
    "Z": lambda model: model.inducing_variable.Z.assign(Z + 0.05),
    "mean": lambda model: model.mean_function.c.assign(0.2),
    "alpha": lambda model: setattr(model, "alpha", 0.9),
    "alpha by assign": lambda model: model.alpha.assign(0.9),
    "data": lambda model: setattr(model, "data", (X, 1.0 - Y)),
    "labels by assign": lambda model: model.data[1].assign(1.0 - Y),
    "fewer data": lambda model: setattr(model, "data", (X[:9], Y[:9])),
}
USES = {
    "predict_f": lambda model: model.predict_f(XNEW, full_cov=True),
    "predict_y": lambda model: model.predict_y(XNEW),
    "predict_log_density": lambda model: [model.predict_log_density((XNEW, np.ones((5, 1))))],
    "posterior": lambda model: model.posterior().predict_f(XNEW),
    "compute_qu": lambda model: model.compute_qu(),
    "leave one out": lambda model: [model.loo_log_predictive_density()],
    "objective": lambda model: [model.maximum_log_likelihood_objective()],
}


def test_labels_that_are_assigned_are_checked(model):
    """As those that the constructor is given: a Probit has no probability of a label 2."""
    for use in USES:
        for labels in (1.0 + Y, np.nan * Y):
            model.data[1].assign(labels)
            with stopped("must hold the labels 0 and 1 for Probit"):
                USES[use](model)


@pytest.mark.parametrize("change", CHANGES)
def test_results_after_a_change_equal_a_new_model(model, other, change):
    """With no further call, each as the other model has it, whose sites start from nothing."""
    before = model.predict_f(XNEW)
    CHANGES[change](other)
    other.reset_sites()
    start = sites(model)
    for use in USES.values():
        CHANGES[change](model)
        if sites(model).shape == start.shape:
            model.sites.precision.assign(start[0])
            model.sites.linear.assign(start[1])
        assert_all_near(use(model), use(other), CLOSE)
        assert model.sites_status.converged
    assert np.abs(model.predict_f(XNEW)[0] - before[0]).max() > 1e-3


@pytest.mark.filterwarnings("error")
def test_repeated_calls_take_no_sweep(model, capfd):
    """One sweep finds it so, without a warning, and results are the same bit by bit."""
    before = sites(model)
    for use in USES.values():
        first = use(model)
        assert model.sites_status.sweeps == 0
        assert_all_equal(use(model), first)
    assert_array_equal(sites(model), before)
    assert "gpflow_pep" not in capfd.readouterr().err


def test_a_tighter_tolerance_is_met_at_once(model):
    model.tol = 1e-3
    model.kernel.variance.assign(3.0)
    model.training_loss()
    assert 1e-10 < model.sites_status.change <= 1e-3
    model.tol = 1e-10
    model.training_loss()
    assert model.sites_status.change <= 1e-10


def test_data_of_another_size(model):
    model.data = (X[:9], Y[:9])
    assert sites(model).shape == (2, 9, 1) and not sites(model).any()
    assert model.loo_log_predictive_density().shape == [9]
    assert sites(model).shape == (2, 9, 1) and sites(model).all()


@pytest.mark.parametrize(
    ("M", "classes", "rows"), [(10, 2, 5120), (2000, 2, 2097), (2000, 3, 1024)]
)
def test_default_chunk_size_bounds_memory_of_V(M, classes, rows):
    """
    As many as there are entries of V for, one for each of M inducing points and of C latent
    functions.
    """
    labels = np.arange(6.0)[:, None] % classes
    Z = np.linspace(0.0, 1.0, M)[:, None]
    assert (
        PEPClassifier((labels, labels), SquaredExponential(), inducing_variable=Z)._chunk_size
        == rows
    )


def test_the_surrogate_has_the_posterior_of_the_sites(model):
    """
    Exact regression on N rows K_nu Kuu⁻¹ u, and on M observations of u, by numpy; a site that says
    nothing is a row of infinite noise.
    """
    found = model.surrogate()
    inducing = model.inducing_surrogate()
    Kuu = Kuu_of(model.kernel, Z)
    W = np.linalg.solve(Kuu, model.kernel(Z, X))
    weight = W / found.noise_variance[:, 0]
    precision = np.linalg.inv(inducing.noise_covariance[0])
    expected = model.compute_qu()
    for of_noise, linear in (
        (weight @ W.T, weight @ (found.targets - 0.1)),
        (precision, precision @ inducing.targets),
    ):
        covariance = np.linalg.inv(np.linalg.inv(Kuu) + of_noise)
        # The condition numbers of Kuu and Σ are below 1e3.
        assert_all_near([covariance @ linear, covariance], expected, 1e-9)

    model._warned.assign(True)
    model._options.max_sweeps.assign(0)  # the sites stay
    model.sites.precision[3].assign([0.0])
    for linear in (0.0, 0.7):
        model.sites.linear[3].assign([linear])
        found = model.surrogate()
        assert found.targets[3, 0] == 0.1 and np.isinf(found.noise_variance[3, 0])
        assert np.all(np.isfinite(np.delete(found.targets, 3)))


# --- sites that have not converged ----------------------------------------------------------------


def test_a_warning_is_given_once(model, capfd):
    model.max_sweeps = 1
    model.reset_sites()
    status = model.sites_status
    assert not status.converged and status.sweeps == 0 and status.change == np.inf
    with pytest.warns(
        UserWarning, match=r"The sites have not converged.*max_sweeps.*sites_status"
    ) as caught:
        model.predict_f(XNEW)
    assert len(caught) == 1
    status = model.sites_status
    assert not status.converged and status.sweeps == 1 and status.change > TOL
    model.reset_sites()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_f(XNEW)
        model.training_loss()
        tf.function(model.training_loss)()
    assert not model.sites_status.converged
    assert "gpflow_pep" not in capfd.readouterr().err


def test_a_compiled_function_prints_it_once(model, capfd):
    predict = tf.function(model.predict_f)
    predict(XNEW)
    assert "gpflow_pep" not in capfd.readouterr().err
    model.max_sweeps = 1
    for _ in range(2):
        model.reset_sites()
        predict(XNEW)
        assert not model.sites_status.converged
    assert capfd.readouterr().err.count("gpflow_pep: the sites have not converged") == 1
    assert predict.experimental_get_tracing_count() == 1
    model.max_sweeps = 1000
    assert_all_near(predict(XNEW), model.predict_f(XNEW), CLOSE)
    assert model.sites_status.converged


def test_few_sweeps_at_a_time_converge_too(model):
    """From where the sites are: training need not wait for them."""
    expected = model.predict_f(XNEW)
    model.max_sweeps = 1
    model.reset_sites()
    with pytest.warns(UserWarning, match="have not converged"):
        changes = [model.update_sites().change for _ in range(60)]
    assert model.sites_status.converged
    assert changes[-1] <= TOL < changes[0]
    assert_all_near(model.predict_f(XNEW), expected, CLOSE)


# --- compiled functions ---------------------------------------------------------------------------


def traces(model):
    """How often any function that belongs to the model was traced."""
    step = type(PEP._converge_step)
    names = [name for name in dir(PEP) if isinstance(getattr(PEP, name), step)]
    return sum(getattr(model, name).func.experimental_get_tracing_count() for name in names)


def test_a_compiled_loss_sees_what_changes(model, other):
    """Alpha, data, tolerance and sweeps are variables."""
    loss = tf.function(model.training_loss)
    for change in ("alpha", "data", "fewer data", "variance"):
        loss()
        before = traces(model)
        CHANGES[change](model)
        CHANGES[change](other)
        other.reset_sites()
        assert_near(loss(), other.training_loss(), 1e-10)
        assert traces(model) == before
    assert loss.experimental_get_tracing_count() == 1
    model.max_sweeps, model._warned = 2, tf.Variable(True)
    model.reset_sites()
    loss()
    assert model.sites_status.sweeps == 2 and not model.sites_status.converged


# --- between the objective and its gradient -------------------------------------------------------


def gradient_of(model):
    return loss_and_gradient(model)[1]


@pytest.mark.parametrize("change", ["fewer data", "data", "alpha", "variance"])
def test_a_gradient_is_that_of_the_objective_when_it_was_computed(model, other, change):
    """Sites converged to 1e-10 leave 1e-10 of a gradient, times a condition number of 10 or so."""
    model.tol = other.tol = 1e-10
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    CHANGES[change](model)
    found = tape.gradient(loss, model.trainable_variables)
    assert_all_close(found, gradient_of(other), rtol=1e-7, atol=1e-7)


def test_a_gradient_in_a_compiled_function_is_that_of_its_objective(model, other):
    @tf.function
    def step(alpha):
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        model.alpha.assign(alpha)
        return tape.gradient(loss, model.trainable_variables)

    model.tol = other.tol = 1e-10
    expected = gradient_of(other)
    assert_all_close(step(tf.constant(0.2, tf.float64)), expected, rtol=1e-7, atol=1e-7)
    assert not np.allclose(gradient_of(model)[0], expected[0], rtol=1e-3)


# --- minibatches ----------------------------------------------------------------------------------


def test_predictions_within_an_epoch_do_not_spoil_it(model):
    """They converge the sites; the epoch continues with the sums of these sites."""
    model.tol = 1e-10
    model.update_sites()
    converged = [gradients[1] for gradients in model.minibatches(5, seed=1)]
    model.reset_sites()
    steps = model.minibatches(5, seed=1)
    next(steps)
    model.predict_f(X[:2])
    rest = [gradients[1] for gradients in steps]
    assert_allclose(rest, converged[1:], rtol=1e-7)


def test_data_that_change_within_an_epoch_are_an_error(model):
    steps = model.minibatches(5)
    next(steps)
    model.data = (X[:10], Y[:10])
    with pytest.raises(RuntimeError, match="data must not change within an epoch"):
        next(steps)


# --- settings, copies and data of other kinds -----------------------------------------------------


def test_other_active_dimensions():
    """A setting that is no variable."""
    model = make()
    fresh = make()
    model.kernel = SquaredExponential(active_dims=[0])
    before = model.training_loss()
    model.kernel.active_dims = [1]
    fresh.kernel = SquaredExponential(active_dims=[1])
    found = model.training_loss()
    assert_allclose(found, fresh.training_loss(), rtol=1e-7)
    assert abs(found - before) > 1e-3


def test_X_and_Y_of_different_lengths_raise():
    """X alone has other rows than Y; then both have others than the sites."""
    model = make(chunk_size=4)
    uses = [*USES.values(), lambda model: model.update_sites(batch_size=5)]
    for variable, values in zip(model.data, (X[:9], Y[:9]), strict=True):
        variable.assign(values)
        for use in (*uses, lambda model: next(model.minibatches(5))):
            with stopped(r"numbers of rows: set model.data = \(X, Y\)"):
                use(model)
    model.data = (X[:9], Y[:9])
    assert np.isfinite(model.training_loss())


def test_a_softmax_takes_floating_labels_wherever_labels_are_taken():
    classes = Y + (X[:, :1] > 1.0)
    model = PEPClassifier((X, classes), SquaredExponential(), Softmax(3), Z)
    found = []
    for labels in (classes, classes.astype(np.int64)):
        tf.random.set_seed(0)
        found.append(model.predict_log_density((X, labels)))
    assert_allclose(*found, rtol=1e-12)


def test_models_with_data_refuse_other_data(model):
    with pytest.raises(
        TypeError, match=r"PEP stores its data: call training_loss\(\) without data"
    ):
        model.training_loss((X, Y))


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        (Y, Probit),
        (2.0 * Y - 1.0, Probit),
        (np.hstack([Y, Y]), Probit),
        (Y + (X[:, :1] > 1.0), MultiClassRobustMax),
    ],
)
def test_a_classifier_chooses_its_likelihood(labels, chosen):
    model = PEPClassifier((X, labels), SquaredExponential(), inducing_variable=Z)
    assert type(model.likelihood) is chosen and isinstance(model, PEP)
    assert model.num_latent_gps == (labels.shape[1] if chosen is Probit else 3)
    model.likelihood.log_prob(X, np.zeros((len(X), model.num_latent_gps)), labels)  # takes them


@pytest.mark.parametrize(
    ("labels", "likelihood", "message"),
    [
        (3.0 * Y, None, "every label 0, 1, ..., C - 1 .*, got labels up to 3 but none of class 1"),
        (Y - 0.5, None, r"labels 0 and 1, or -1 and 1, .* got -0.5, 0.5 among 2 values"),
        (np.hstack([Y, 2.0 * Y]), None, "labels 0 and 1"),
        (
            np.hstack([Y, 1.0 - Y]),
            None,
            r"one column of labels, .* np.argmax\(Y, axis=1\)\[:, None",
        ),
        (np.hstack([Y, Y]), MultiClassRobustMax(3), "one column of labels, got 2 columns"),
    ],
)
def test_a_classifier_rejects_values_that_are_no_labels(labels, likelihood, message):
    with refused(message):
        PEPClassifier((X, labels), SquaredExponential(), likelihood, Z)


@pytest.mark.parametrize("largest", [5e7, 1e300])
def test_large_numbers_that_are_no_labels_take_no_memory(largest):
    """Seconds since 1970, say: as many classes would take gigabytes before they are refused."""
    labels = Y.copy()
    labels[-1] = largest
    tracemalloc.start()
    with refused(r"data\[1\] \(Y\) must hold .*(up to [0-9]+ but none of class 2;|among 3 values)"):
        PEPClassifier((X, labels), SquaredExponential(), None, Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def test_updates_reject_invalid_batch_size_and_damping(model):
    """At the door, before anything is computed."""
    for update in [
        lambda model: model.update_sites(batch_size=0),
        lambda model: model.minibatches(5, damping=-1.0),
        lambda model: model.minibatches(2.5),
    ]:
        before = sites(model)
        with refused(r"^(damping|batch_size) must be"):
            update(model)
        assert_array_equal(sites(model), before)


def test_update_sites_raises_in_compiled_function(model):
    with pytest.raises(RuntimeError, match=r"outside of a tf\.function"):
        tf.function(model.update_sites)()


def test_assigned_invalid_alpha_raises_in_next_update(model):
    model.alpha.assign(1.5)
    with stopped("alpha must be in"):
        model.update_sites()


# --- a power of each row; it comes last, since it is compiled anew --------------------------------


def test_a_power_of_each_row_stays_with_the_rows():
    model = make(alpha=np.linspace(0.0, 1.0, 14))
    assert model.alpha.numpy().shape == (14,)
    with refused(
        r"alpha must stay one number for each row or block, as in the constructor, got shape \[\]"
    ):
        model.alpha = 0.5
    with refused("data must keep 14 rows, because alpha was given for them, got 9"):
        model.data = (X[:9], Y[:9])
    assert not model.is_lower_bound
    model.alpha = np.zeros(14)
    assert model.is_lower_bound
    assert_allclose(model.training_loss(), make(alpha=0.0).training_loss(), rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_default_options(dtype):
    """The tolerance follows the type: rounding of float32 alone changes marginals by 1e-6."""
    with configured(float=dtype, jitter=1e-5):
        model = PEP((X, Y), SquaredExponential(), Probit(), Z)
        assert model.tol == pytest.approx(max(1e-6, 1000.0 * np.finfo(dtype).eps))
        assert (int(model.max_sweeps), float(model.damping)) == (1000, 1.0)
        assert 0 < model.update_sites().sweeps < 20 and model.sites_status.converged


def test_rounding_of_float32_does_not_delay_convergence():
    """A large linear part: rounding moves marginals by 2e-5 standard deviations."""
    inputs, labels = load_wine(return_X_y=True)
    inputs = StandardScaler().fit_transform(inputs[::2]).astype(np.float32)
    data = inputs, labels[::2, None].astype(np.float32)
    with configured(float=np.float32, jitter=1e-5):
        kernel = Matern52(12.0, lengthscales=1.4) + Linear(10.0)
        assert PEP(data, kernel, Softmax(3), inputs, max_sweeps=60).update_sites().converged
