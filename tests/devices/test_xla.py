"""
Functions compiled by XLA (``jit_compile=True``) give the same results as without it, and NaN if a
check fails, since they cannot raise an error. Functions that XLA cannot compile are refused when
they are traced.
"""

import contextlib
import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_near, assert_near
from configuration import configured
from gpflow.likelihoods import Bernoulli, Softmax
from gpflow.utilities import positive
from graph_nodes import nodes
from model_values import loss_and_gradient
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import stopped
from small_models import (
    LABELS,
    MAKERS,
    WITH_LABELS,
    X_NEW,
    X,
    Y,
    Z,
    classifier,
    collapsed,
    kernel,
    of_minibatches,
)

import gpflow_pep
from gpflow_pep import APEP, ARPEP, BTSGPR, PEPR, RPAPEP, MultiClassRobustMax, StreamingSGPR
from gpflow_pep.training import fit

# Condition numbers of Kuu are 1e5 here, and sums have another order: 1e-11. Gradients cancel by up
# to a factor of 100.
SAME = 1e-9
REFUSED_MODELS = ("BTSGPR", "PEP", *WITH_LABELS)
OURS = {
    name: make
    for name, make in MAKERS.items()
    if hasattr(gpflow_pep, name) and name not in REFUSED_MODELS
}


OTHERS = {
    "PEPR of chunks": lambda: collapsed(PEPR, chunk_size=25),
    "PEPR of chunks of one size": lambda: collapsed(PEPR, chunk_size=20),
    "VFE of chunks": lambda: collapsed(PEPR, alpha=0.0, chunk_size=25),
    "PEPR of a learned scale": lambda: collapsed(
        PEPR, scale=gpflow.Parameter(0.8, transform=positive())
    ),
    "PEPR with growing jitter": lambda: collapsed(PEPR, max_jitter=1e-3),
    "ARPEP of a Gaussian": lambda: of_minibatches(ARPEP),
    "APEP of a Gaussian": lambda: of_minibatches(APEP),
}
REFUSED = {
    "ARPEP of robust-max": lambda: of_minibatches(ARPEP, MultiClassRobustMax(3)),
    "APEP of softmax": lambda: of_minibatches(APEP, Softmax(3)),
    "RPAPEP of GPflow's probit": lambda: of_minibatches(RPAPEP, Bernoulli()),
}


by_xla = functools.partial(tf.function, jit_compile=True, autograph=False)


def made(name):
    """A model, and the data that its loss is given."""
    model = (OURS | OTHERS | REFUSED)[name]()
    if hasattr(model, "data"):
        return model, ()
    return model, ((tf.constant(X), tf.constant(LABELS if name in REFUSED else Y)),)


def evaluated(model, data, **options):
    """Loss and derivatives, and predictions, of a compiled function."""

    @functools.partial(tf.function, autograph=False, **options)
    def run():
        results = dict(zip(("loss", "gradient"), loss_and_gradient(model, *data), strict=True))
        results["f"] = model.predict_f(tf.constant(X_NEW))
        results["joint"] = model.posterior().predict_f(tf.constant(X_NEW[:5]), full_cov=True)
        if not isinstance(model.likelihood, Softmax):  # GPflow draws samples
            results["y"] = model.predict_y(tf.constant(X_NEW))
        return results

    return run()


@pytest.mark.parametrize("name", sorted(OURS | OTHERS))
def test_the_same_with_and_without(name):
    model, data = made(name)
    expected = evaluated(model, data)
    model, data = made(name)  # with its first sites
    for part, values in evaluated(model, data, jit_compile=True).items():
        wanted = tf.nest.flatten(expected[part])
        # A derivative that is nearly 0 is the difference of others' terms.
        scales = [np.abs(one).max() for one in wanted]
        scales = [max(scales)] * len(scales) if part == "gradient" else scales
        for one, other, scale in zip(wanted, tf.nest.flatten(values), scales, strict=True):
            assert_near(other, one, SAME * scale)


@pytest.mark.parametrize("name", ["PEPR", "PEPR of chunks"])
def test_leave_one_out_densities(name):
    model, _ = made(name)
    density = by_xla(model.loo_log_predictive_density)
    assert_allclose(density(), model.loo_log_predictive_density(), rtol=SAME)


def test_a_compiled_function_takes_other_numbers_of_rows():
    model = collapsed(PEPR, chunk_size=25)
    loss = by_xla(model.training_loss)
    for rows in (60, 20):
        model.data = (X[:rows], Y[:rows])
        assert_allclose(loss(), model.training_loss(), rtol=SAME)


# --- checks that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
def test_no_check_is_left_to_xla_which_would_drop_it(name):
    model, data = made(name)
    loss = by_xla(lambda: model.training_loss(*data))
    predict = by_xla(lambda: model.predict_f(X_NEW))
    for function in (loss, predict):
        operations = {node.op for node in nodes(function.get_concrete_function())}
        assert not operations & {
            "Assert",
            "CheckNumerics",
            "CheckNumericsV2",
            "PrintV2",
            "AsString",
            "StringFormat",
        }


@functools.cache
def compiled(make):
    """
    A shared model, left unchanged, and its results that depend on data; variances do not depend on
    Y.
    """
    model = make()

    @by_xla
    def run():
        return *loss_and_gradient(model), model.predict_f(tf.constant(X_NEW))[0]

    return model, run


def assert_is_nan(run):
    for value in tf.nest.flatten(run()):
        assert np.isnan(value).all()


@contextlib.contextmanager
def assigned(variable, value):
    before = variable.numpy()
    variable.assign(value)
    yield
    variable.assign(before)


def with_nan(variable):
    values = variable.numpy()
    values[3] = np.nan
    return values


def regression():
    return collapsed(PEPR)


NAN_TOO = [
    regression,
    lambda: collapsed(PEPR, alpha=0.0, chunk_size=25),
    lambda: collapsed(PEPR, blocks=7),
]


@pytest.mark.parametrize("make", NAN_TOO)
@pytest.mark.parametrize("place", [0, 1])
def test_data_that_are_not_finite(make, place):
    model, run = compiled(make)
    with assigned(model.data[place], with_nan(model.data[place])):
        assert_is_nan(run)
    assert np.isfinite(run()[0])


@pytest.mark.parametrize("make", [regression, lambda: collapsed(PEPR, chunk_size=25)])
def test_a_matrix_that_is_not_positive_definite(make):
    with configured(jitter=0.0):
        model, run = compiled.__wrapped__(make)  # of this jitter
        model.inducing_variable.Z.assign(np.zeros_like(Z))
        with stopped("Kuu"):
            model.training_loss()
        assert_is_nan(run)


def test_a_power_that_is_out_of_range():
    model, run = compiled(regression)
    with assigned(model._alpha, 2.0):
        assert_is_nan(run)


def test_numbers_of_rows_that_contradict_each_other():
    model = collapsed(PEPR)
    loss = by_xla(model.training_loss)
    loss()
    model.data[1].assign(Y[:1])  # one row of Y would be broadcast
    assert np.isnan(loss())


def test_predictions_at_what_is_not_finite():
    assert np.isnan(by_xla(collapsed(PEPR).predict_f)(np.full_like(X_NEW, np.nan))).all()


# --- refusals -------------------------------------------------------------------------------------


def refused(function, what=""):
    with pytest.raises(NotImplementedError, match=f"{what}.*leave out jit_compile=True"):
        by_xla(function)()


def of_dataset():
    return PEPR(tf.data.Dataset.from_tensor_slices((X, Y)).batch(20), kernel(), Z)


def test_rejects_datasets():
    refused(of_dataset().training_loss)


def test_rejects_models_with_sites():
    model = classifier()
    for function in (
        model.training_loss,
        lambda: model.predict_f(X_NEW),
        model.loo_log_predictive_density,
    ):
        refused(function)
    posterior = model.posterior()  # at sites that have converged
    predict = by_xla(posterior.predict_f)
    # The tolerance of the sites.
    assert_all_near(predict(X_NEW), model.predict_f(X_NEW), 1e-6)


@pytest.mark.parametrize(
    "make", [lambda: collapsed(PEPR, blocks=7), lambda: collapsed(BTSGPR, blocks=10, shared=True)]
)
def test_blocks_are_refused(make):
    refused(make().training_loss, "a model with blocks of rows")


@partly_slow("name", list(REFUSED), quick=["ARPEP of robust-max", "RPAPEP of GPflow's probit"])
def test_rejects_quadrature(name):
    """Its number of points depends on the data."""
    model, data = made(name)
    refused(lambda: model.training_loss(*data))


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PEPR", "ARPEP of a Gaussian"])
def test_training(name):
    losses = []
    for jit_compile in (False, True):
        model, _ = made(name)
        data = None if hasattr(model, "data") else (X, Y)
        result = fit(model, data, max_iterations=5, interval=5, jit_compile=jit_compile)
        assert result.iterations == 5
        losses.append(result.objective[-1])
    # Each step is one of a search from the last point, whose error a step may double.
    assert_allclose(*losses, rtol=2.0**5 * SAME)


def test_training_raises_the_usual_error():
    model = collapsed(PEPR)
    model.data[1].assign(with_nan(model.data[1]))
    with stopped("the objective is not finite"):
        fit(model, jit_compile=True)


def test_training_recovers_as_usual():
    """A learning rate that is far too large: some step fails."""
    reasons = []
    for jit_compile in (False, True):
        model = of_minibatches(ARPEP)
        with pytest.warns(UserWarning, match="the last good parameters restored"):
            result = fit(
                model, (X, Y), max_iterations=50, learning_rate=1e3, jit_compile=jit_compile
            )
        assert result.status == "failed"
        reasons.append(result.reason)
    assert reasons[0] == reasons[1]


def test_training_refuses_what_xla_cannot_compile():
    with pytest.raises(NotImplementedError, match=r"tf\.data\.Dataset"):
        fit(of_dataset(), jit_compile=True)
    with pytest.raises(NotImplementedError, match="XLA cannot compile expectation propagation"):
        fit(classifier(), jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile must be False with batch_size"):
        fit(classifier(), optimizer="adam", batch_size=20, jit_compile=True)


def test_a_stream_goes_on_after_it_was_compiled():
    model = StreamingSGPR((X[:30], Y[:30]), kernel(), Z, alpha=0.5)
    loss = by_xla(model.training_loss)
    loss()
    model.update((X[30:], Y[30:]))
    assert_allclose(loss(), model.training_loss(), rtol=SAME)
